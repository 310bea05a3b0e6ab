"""Two clients of Kafka on the same broker: the measurement behind decision 0009.

`python -m bench.clients [--records N]` prints, for kafka-python and for confluent-kafka, what a
record of telemetry (64 series, with its headers) costs to write and to read: processor time (all
threads of this process) and records a second by the wall. Medians of three runs, printed, never a
gate.

Written "alone" is what an agent does: one record, then its acknowledgement, then the next. Written
"together" is a backlog. Read "alone" is what a scorer meets, a log whose batches hold one record
each; "together" is a log whose writer could gather them. Both clients are set up alike: idempotent,
acknowledged by all, no waiting for company. Both readers look at key, value, time and place of each
record, as the product's reader does, and kafka-python unpacks zstd as the product has it do.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, libversion
from confluent_kafka import TopicPartition as ConfluentPlace
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from bench.kafka_pipeline import Headers, broker, like, open_bus
from bench.pipeline import Fleet
from deploy.kafka.jars import kafka_version
from runtime.errors import Unavailable

RUNS = 3
NODES = 500
ALONE = 20  # of so many records one is written alone: each waits for its answer
CODECS = ("none", "lz4", "zstd")
POLL_MAX = 2000  # the scorer's limit of records a turn
BATCH_BYTES = 256 << 10
FETCH_BYTES = 8 << 20
WAIT_S = 30.0


class Record(NamedTuple):
    """One record to write."""

    key: bytes
    value: bytes
    headers: Headers


class Cost(NamedTuple):
    """What one record cost, and how many passed in a second."""

    processor_us: float
    per_second: float


def records(count: int) -> list[Record]:
    """Return telemetry as agents would write it."""
    fleet = Fleet(NODES, 7)
    made: list[Record] = []
    number = 0
    while len(made) < count:
        for node, value in enumerate(fleet.second(number)):
            made.append(Record(b"n%05d" % node, value, like(value, f"collect@n{node:05d}")))
        number += 1
    return made[:count]


def measured(count: int, work: Callable[[], object]) -> Cost:
    """Return what `count` records cost in `work`."""
    processor_s, wall_s = time.process_time(), time.perf_counter()
    work()
    processor_s, wall_s = time.process_time() - processor_s, time.perf_counter() - wall_s
    return Cost(processor_s / count * 1e6, count / wall_s)


# --- kafka-python --------------------------------------------------------------------------------


def python_writes(
    bootstrap: list[str], topic: str, codec: str, given: list[Record], *, alone: bool
) -> Cost:
    """Write with kafka-python."""
    producer: Any = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=0,
        batch_size=BATCH_BYTES,
        metrics_enabled=False,
    )

    def write() -> None:
        for one in given:
            future = producer.send(topic, one.value, one.key, list(one.headers), 0)
            if alone:
                future.get(WAIT_S)
        producer.flush(WAIT_S)

    producer.send(topic, b"first", partition=0).get(WAIT_S)
    cost = measured(len(given), write)
    producer.close()
    return cost


def python_reads(bootstrap: list[str], topic: str, count: int) -> Cost:
    """Read with kafka-python."""
    consumer: Any = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
        metrics_enabled=False,
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)

    def read() -> None:
        left, end_s = count, time.monotonic() + WAIT_S
        while left > 0:
            within(end_s, topic)
            for found in consumer.poll(timeout_ms=1000, max_records=POLL_MAX).values():
                left -= sum(bool(one.value and one.timestamp and one.offset >= 0) for one in found)

    cost = measured(count, read)
    consumer.close()
    return cost


# --- confluent-kafka -----------------------------------------------------------------------------


def confluent_writer(bootstrap: list[str], codec: str, together: int) -> Producer:
    """Return a writer that puts at most so many records into one batch."""
    return Producer(
        {
            "bootstrap.servers": ",".join(bootstrap),
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 0,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": together,
            "queue.buffering.max.kbytes": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )


def confluent_writes(
    bootstrap: list[str], topic: str, codec: str, given: list[Record], *, alone: bool
) -> Cost:
    """Write with confluent-kafka."""
    producer = confluent_writer(bootstrap, codec, 10_000)

    def write() -> None:
        for one in given:
            producer.produce(topic, one.value, one.key, 0, headers=one.headers)
            if alone:
                producer.flush(WAIT_S)
            else:
                producer.poll(0)
        producer.flush(WAIT_S)

    producer.produce(topic, b"first", partition=0)
    producer.flush(WAIT_S)
    return measured(len(given), write)


def confluent_reads(bootstrap: list[str], topic: str, count: int) -> Cost:
    """Read with confluent-kafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(bootstrap),
            "group.id": "bench",  # asked for, though there is no group
            "enable.auto.commit": False,
            "check.crcs": True,
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
    )
    consumer.assign([ConfluentPlace(topic, 0, 0)])

    def read() -> None:
        left, end_s = count, time.monotonic() + WAIT_S
        while left > 0:
            within(end_s, topic)
            for one in consumer.consume(POLL_MAX, 1.0):
                good = one.error() is None and one.value() and one.timestamp() and one.key()
                left -= bool(good and (one.offset() or 0) >= 0)

    cost = measured(count, read)
    consumer.close()
    return cost


def within(end_s: float, topic: str) -> None:
    """Raise `Unavailable` when it is too late."""
    if time.monotonic() > end_s:
        raise Unavailable(f"{topic} was not read within {WAIT_S:g} s")


# --- all of it -----------------------------------------------------------------------------------


def fill(bootstrap: list[str], topic: str, codec: str, given: list[Record], together: int) -> None:
    """Write a topic to be read, its batches of at most so many records."""
    producer = confluent_writer(bootstrap, codec, together)
    for one in given:
        producer.produce(topic, one.value, one.key, 0, headers=one.headers)
        producer.poll(0)
    if producer.flush(WAIT_S):
        raise Unavailable(f"{topic} was not filled within {WAIT_S:g} s")


def row(what: str, python: list[Cost], confluent: list[Cost]) -> None:
    """Print a line of the table: medians of both, and how many times cheaper the second is."""
    columns = [
        (
            statistics.median(one.processor_us for one in costs),
            statistics.median(one.per_second for one in costs),
        )
        for costs in (python, confluent)
    ]
    cells = [f"{spent:,.1f} µs | {rate:,.0f}" for spent, rate in columns]
    print(f"| {what} | {' | '.join(cells)} | {columns[0][0] / columns[1][0]:.1f} |", flush=True)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--records", type=int, default=10_000)
    given = records(options.parse_args().records)
    some = given[: len(given) // ALONE]
    size = statistics.mean(len(one.value) for one in given)
    print(f"Kafka {kafka_version()}, Python {sys.version.split()[0]}, kafka-python "
          f"{version('kafka-python')}, confluent-kafka {version('confluent-kafka')} (librdkafka "
          f"{libversion()[0]}); {len(given):,} records of {size:,.0f} bytes\n")  # fmt: skip
    print("| a record | kafka-python | records/s | confluent-kafka | records/s | times |")
    print("|---|---|---|---|---|---|")
    with broker() as cluster:
        at, bus = cluster.bootstrap, open_bus(cluster, "bench")
        for codec in CODECS:
            for name, part in (("alone", some), ("together", given)):
                topic = f"bench-{codec}-{name}"
                bus.admin.create(f"{topic}-written", 1, 1, {})
                bus.admin.create(topic, 1, 1, {})
                alone = name == "alone"
                written = [
                    [write(at, f"{topic}-written", codec, part, alone=alone) for _ in range(RUNS)]
                    for write in (python_writes, confluent_writes)
                ]
                row(f"written {name}, {codec}", *written)
                fill(at, topic, codec, given, 1 if alone else 10_000)
                count = len(given)
                read = [
                    [read(at, topic, count) for _ in range(RUNS)]
                    for read in (python_reads, confluent_reads)
                ]
                row(f"read {name}, {codec}", *read)
        bus.close()


if __name__ == "__main__":
    main()
