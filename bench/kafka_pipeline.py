"""From bytes on the topic to suspicions, over a real Kafka: samples a second on one core.

`python -m bench.kafka_pipeline [--nodes N] [--seconds S] [--profile]` starts a broker of its own,
fills the telemetry topic as that many agents would, and reads it in this one process: the product's
own reader and scorer, with the product's limit of records a turn. It prints processor time (all
threads of this process; the broker's is its own) and wall time for each second of telemetry, and
where the time goes. Medians over the seconds of the run, printed, never a gate.

An agent sends one record a period, so each record is a batch of its own, compressed alone. The
bench's writer is another client (the one that the decision about clients compares with), since it
can write so many small batches in seconds; what lies in the log is the same. For this topic alone
the broker keeps the writer's times, so that the telemetry's clock does not depend on how fast the
topic was filled. One node in a thousand leaks.
"""

import argparse
import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from bench.pipeline import BEGIN, Fleet, Stopwatch
from bus.cloudevents import headers
from bus.codec import decode, encode
from bus.kafka import KafkaBus
from bus.kafka import Settings as KafkaSettings
from bus.messages import Suspicion, Tick
from bus.signals import catalogue
from bus.topics import TELEMETRY
from deploy.kafka.cluster import Cluster
from deploy.kafka.jars import kafka_version
from detector.scorer import Scorer
from detector.settings import ModelSettings, ScorerSettings
from detector.worker import WorkerSettings
from runtime.clock import NANOSECONDS, Instant, SystemClock
from runtime.errors import Unavailable

SERIES = 64
Headers = list[tuple[str, str | bytes | None]]  # as the bench's writer wants them
WARM_SECONDS = 2  # of telemetry: series are new, the first fetches are on their way
LATE_NS = 20_000_000  # the log takes a batch so long after its time
MILLISECOND = 1_000_000
QUEUE_KBYTES = 256 << 10
SILENCE_S = 30.0


class Second(NamedTuple):
    """What one second of telemetry cost."""

    processor_s: float
    wall_s: float


@contextmanager
def broker() -> Iterator[Cluster]:
    """Give a broker of this bench's own with all topics empty."""
    with (
        tempfile.TemporaryDirectory(prefix="farside-bench-", ignore_cleanup_errors=True) as folder,
        Cluster.start(Path(folder)) as cluster,
    ):
        cluster.renew_topics()
        yield cluster


def open_bus(cluster: Cluster, role: str, writes: tuple[str, ...] = ()) -> KafkaBus:
    """Return the product's bus over this broker."""
    settings = KafkaSettings(bootstrap=tuple(cluster.bootstrap))
    return KafkaBus(settings, SystemClock(), cluster="bench", role=role, writes=writes)


def fill(cluster: Cluster, nodes: int, seconds: int) -> float:
    """Write so many seconds of telemetry; return the bytes of an encoded batch, the mean."""
    fleet = Fleet(nodes, 7)
    client = Producer(
        {
            "bootstrap.servers": ",".join(cluster.bootstrap),
            "compression.type": "zstd",
            "batch.num.messages": 1,
            "linger.ms": 0,
            "acks": "1",
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
        }
    )
    size = 0
    for number in range(seconds):
        appended = Instant(BEGIN + number * NANOSECONDS + LATE_NS)
        records = fleet.second(number)
        if number == 0:
            about = [like(record, f"collect@n{node:05d}") for node, record in enumerate(records)]
        for node, record in enumerate(records):
            size += len(record)
            write(client, f"n{node:05d}", record, about[node], appended)
        tick = Tick(cell="bench", time=appended)
        record = encode(tick)
        write(client, "bench", record, like(record, "detect@d1"), appended)
        client.flush(SILENCE_S)
    return size / (nodes * seconds)


def like(record: bytes, writer: str) -> Headers:
    """Return the headers of an encoded message."""
    return [*headers(decode(record), record, "bench", writer)]


def write(client: Producer, key: str, record: bytes, about: Headers, appended: Instant) -> None:
    """Hand one record over, waiting while the client's queue is full."""
    while True:
        try:
            client.produce(TELEMETRY, record, key, 0,
                           timestamp=int(appended) // MILLISECOND, headers=about)  # fmt: skip
        except BufferError:
            client.poll(0.1)
        else:
            client.poll(0)
            return


def judge(
    cluster: Cluster, seconds: int, stopwatch: Stopwatch | None = None
) -> tuple[list[Second], int]:
    """Read and judge the whole topic; return the cost of each second, and suspicions told."""
    bus = open_bus(cluster, "bench")
    source = bus.source([(TELEMETRY, 0)])
    scorer = Scorer(ScorerSettings(), ModelSettings(), catalogue(), "bench")
    if stopwatch is not None:
        stopwatch.watch(source._codec, "decode", "decode")  # noqa: SLF001  # a benchmark looks inside
        stopwatch.watch(source, "_opened", "envelopes")
        stopwatch.watch(source, "poll", "client: fetch, check, decompress, parse")
        stopwatch.watch(scorer, "step", "step")
    limit = WorkerSettings().poll_max
    costs: list[Second] = []
    told = 0
    source.log()  # connected: what follows is reading
    processor_s, wall_s = time.process_time(), time.perf_counter()
    heard_s = wall_s
    while len(costs) < seconds:
        envelopes = source.poll(limit, 1.0)
        told += sum(isinstance(one.message, Suspicion) for one in scorer.step(envelopes))
        now_s = time.perf_counter()
        if envelopes:
            heard_s = now_s
        elif now_s - heard_s > SILENCE_S:
            raise Unavailable(f"{len(costs)} of {seconds} seconds of telemetry were read")
        for _ in range(sum(isinstance(one.message, Tick) for one in envelopes)):
            spent_s = time.process_time()
            costs.append(Second(spent_s - processor_s, now_s - wall_s))
            processor_s, wall_s = spent_s, now_s
            if len(costs) == WARM_SECONDS and stopwatch is not None:
                stopwatch.spent_s.clear()
    source.close()
    bus.close()
    return costs, told


def report(costs: list[Second], told: int, nodes: int, bytes_each: float) -> None:
    """Print the table of figures."""
    counted = costs[WARM_SECONDS:]
    processor_s = statistics.median(one.processor_s for one in counted)
    wall_s = statistics.median(one.wall_s for one in counted)
    samples = nodes * SERIES
    print("| figure | value |\n|---|---|")
    print(f"| nodes x series at 1 Hz | {nodes:,} x {SERIES} |")
    print(f"| a record before compression | {bytes_each:,.0f} bytes |")
    print(f"| processor time for one second of telemetry, median | {processor_s * 1e3:,.0f} ms |")
    print(f"| the same by the wall | {wall_s * 1e3:,.0f} ms |")
    print(f"| processor time for one record | {processor_s / nodes * 1e6:,.0f} µs |")
    print(f"| samples a second and core | {samples / processor_s / 1e6:.2f} M |")
    slowest_s = max(one.processor_s for one in counted)
    print(f"| slowest second (first {WARM_SECONDS} left out) | {slowest_s * 1e3:,.0f} ms |")
    print(f"| the very first second, all nodes new | {costs[0].processor_s * 1e3:,.0f} ms |")
    print(f"| share of a core left at 1 Hz | {1 - processor_s:.0%} |")
    print(f"| suspicions told in {len(costs)} s | {told} |\n")


def shares(cluster: Cluster, seconds: int) -> None:
    """Print where the time goes; of another run, since measuring costs time itself."""
    stopwatch = Stopwatch()
    judge(cluster, seconds, stopwatch)
    whole = sum(stopwatch.spent_s.values())
    print("| where the time goes, by the wall (measured apart) | share |\n|---|---|")
    for name, spent in sorted(stopwatch.spent_s.items(), key=lambda one: -one[1]):
        print(f"| {name} | {spent / whole:.0%} |")


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=10_000)
    options.add_argument("--seconds", type=int, default=12)
    options.add_argument("--profile", action="store_true", help="print the costliest functions")
    given = options.parse_args()
    clients = f"kafka-python {version('kafka-python')}, zstandard {version('zstandard')}"
    print(f"Kafka {kafka_version()}, Python {sys.version.split()[0]}, {clients}, one process\n")
    with broker() as cluster:
        bus = open_bus(cluster, "bench")
        bus.admin.alter_config(TELEMETRY, {"message.timestamp.type": "CreateTime"})
        bus.close()
        began_s = time.perf_counter()
        bytes_each = fill(cluster, given.nodes, given.seconds)
        print(f"topic filled in {time.perf_counter() - began_s:.0f} s\n")
        if given.profile:
            profile = cProfile.Profile()
            profile.runcall(judge, cluster, given.seconds)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        report(*judge(cluster, given.seconds), given.nodes, bytes_each)
        shares(cluster, given.seconds)


if __name__ == "__main__":
    main()
