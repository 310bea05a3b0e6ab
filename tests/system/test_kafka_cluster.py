"""The clusters that the other tests here stand on: they answer, keep records, break and heal."""

import contextlib
import signal
import socket
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from bench import sizing
from bus.cloudevents import headers
from bus.codec import encode
from bus.topics import TELEMETRY, TOPICS
from deploy.kafka import admin
from deploy.kafka.cluster import Cluster
from runtime.errors import Misconfigured, Unavailable
from runtime.process import Running, start
from runtime.wait import wait_until

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0
FAMILIES, LISTEN = ("tcp", "tcp6"), "0A"  # of /proc/net; the state of a socket that listens


def produce(addresses: list[str], values: Iterable[bytes], **how: object) -> None:
    producer = KafkaProducer(bootstrap_servers=addresses, reconnect_backoff_max_ms=1000, **how)
    try:
        for sent in [producer.send(TELEMETRY, value=value, partition=0) for value in values]:
            sent.get(timeout=WAIT_S)
    finally:
        producer.close()


def consume(addresses: list[str], count: int, **how: object) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=addresses, enable_auto_commit=False, **how)
    found: list[Any] = []
    try:
        place = TopicPartition(TELEMETRY, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)

        def enough() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(records)
            return len(found) >= count

        wait_until(enough, WAIT_S, what=f"{count} records")
    finally:
        consumer.close()
    return found


def test_a_record_comes_back_with_the_time_at_which_the_log_took_it(fresh_topics: Cluster) -> None:
    produce(fresh_topics.bootstrap, [b"one"])
    [record] = consume(fresh_topics.bootstrap, 1)
    assert (record.value, record.timestamp_type) == (b"one", 1)


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_begins_with_empty_topics(fresh_topics: Cluster, turn: str) -> None:
    produce(fresh_topics.bootstrap, [turn.encode()])
    assert [one.value for one in consume(fresh_topics.bootstrap, 1)] == [turn.encode()]


def test_the_topics_are_those_of_the_product(kafka: Cluster) -> None:
    kafka.renew_topics(cells=3)
    with admin.client(*kafka.bootstrap) as asked:
        found = {
            one["name"]: len(one["partitions"]) for one in asked.describe_topics(sorted(TOPICS))
        }
    assert found == {name: topic.partitions or 3 for name, topic in TOPICS.items()}


def test_an_acknowledged_record_outlives_a_kill_of_the_broker(fresh_topics: Cluster) -> None:
    produce(fresh_topics.bootstrap, [b"kept"])
    [broker] = fresh_topics.brokers
    before = broker.pid
    broker.kill()
    assert not broker.running()
    broker.restart()
    assert broker.pid != before
    assert [one.value for one in consume(fresh_topics.bootstrap, 1)] == [b"kept"]


def test_a_suspended_broker_does_not_answer_and_goes_on_when_it_is_resumed(
    fresh_topics: Cluster,
) -> None:
    [broker] = fresh_topics.brokers
    broker.suspend()
    with pytest.raises(KafkaError):
        KafkaProducer(bootstrap_servers=fresh_topics.bootstrap, bootstrap_timeout_ms=500)
    broker.resume()
    produce(fresh_topics.bootstrap, [b"after"])
    assert [one.value for one in consume(fresh_topics.bootstrap, 1)] == [b"after"]


def test_another_broker_takes_over_when_the_leader_is_killed(fresh_topics3: Cluster) -> None:
    produce(fresh_topics3.bootstrap, [b"before"], acks="all")
    first = fresh_topics3.leader(TELEMETRY)
    first.kill()
    others = [one.address for one in fresh_topics3.brokers if one is not first]
    produce(others, [b"after"], acks="all")
    assert fresh_topics3.leader(TELEMETRY) is not first
    assert [one.value for one in consume(others, 2)] == [b"before", b"after"]


def test_a_client_with_the_password_and_the_authority_is_let_in(fresh_topics_sasl: Cluster) -> None:
    sasl = fresh_topics_sasl.sasl
    how = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": sasl.username,
        "sasl_plain_password": sasl.password_file.read_text(),
        "ssl_cafile": str(sasl.ca_file),
    }
    produce(sasl.bootstrap, [b"secret"], **how)
    assert [one.value for one in consume(sasl.bootstrap, 1, **how)] == [b"secret"]
    with pytest.raises(KafkaError):
        produce(sasl.bootstrap, [b"never"], **(how | {"sasl_plain_password": "guessed"}),
                bootstrap_timeout_ms=3000)  # fmt: skip


def test_the_sizing_table_counts_what_the_broker_keeps(fresh_topics: Cluster) -> None:
    node = sizing.nodes()[1]
    sent = list(sizing.batches(node, seconds=20))
    producer = KafkaProducer(bootstrap_servers=fresh_topics.bootstrap, compression_type="zstd")
    try:
        for batch in sent:  # each alone, as an agent sends them
            record = encode(batch)
            told = headers(batch, record, "main", "collect@gpu-0421")
            producer.send(
                TELEMETRY, value=record, key=batch.node.encode(), headers=told, partition=0
            ).get(timeout=WAIT_S)
    finally:
        producer.close()
    with admin.client(*fresh_topics.bootstrap) as asked:
        kept = {
            topic["name"]: part["partition_size"]
            for broker in asked.describe_log_dirs()
            for folder in broker["log_dirs"]
            for topic in folder["topics"]
            for part in topic["partitions"]
        }
    assert kept[TELEMETRY] == sum(sizing.kept(one, one.node, "zstd") for one in sent)


def listening(pid: int) -> list[str]:
    """Return the addresses at which a process listens, as the kernel writes them (hexadecimal)."""
    links = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since the folder was read
            links.add(str(path.readlink()))
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in FAMILIES]
    rows = [line.split() for table in tables for line in table]
    return [row[1] for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in links]


def test_everything_listens_on_loopback_only(kafka: Cluster) -> None:
    addresses = listening(kafka.brokers[0].pid)
    assert len(addresses) == 2
    assert [one for one in addresses if not one.startswith("0100007F:")] == []


class Launched(NamedTuple):
    """The launcher as a command, and what it printed for farside.toml."""

    process: Running
    bootstrap: str

    def answers(self) -> bool:
        host, port = self.bootstrap.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def launch(folder: Path) -> Launched:
    argv = [sys.executable, "-m", "deploy.kafka.cluster", "--dir", str(folder)]
    process = start(argv, stdin=False, output="pipe", cwd=ROOT, own_group=True)
    printed: list[str] = []
    for line in process.lines():
        printed.append(line)
        if line.startswith("bootstrap"):
            break
    [bus] = [tomllib.loads("\n".join(printed))["bus"]]
    assert bus["kind"] == "kafka"
    return Launched(process, bus["kafka"]["bootstrap"][0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_its_broker_in_order_when_asked(tmp_path: Path, number: int) -> None:
    launched = launch(tmp_path)
    assert launched.answers()
    launched.process.signal(number)
    assert launched.process.wait(WAIT_S) == 0
    launched.process.stop()
    assert not launched.answers()


def test_a_killed_command_leaves_no_broker_behind_and_starts_again_on_its_data(
    tmp_path: Path,
) -> None:
    first = launch(tmp_path)
    admin.renew([first.bootstrap])
    produce([first.bootstrap], [b"kept"])
    first.process.kill()
    first.process.stop()
    wait_until(lambda: not first.answers(), WAIT_S, what="the broker is gone")
    second = launch(tmp_path)
    try:
        assert second.bootstrap == first.bootstrap
        assert [one.value for one in consume([second.bootstrap], 1)] == [b"kept"]
    finally:
        second.process.stop(grace_s=WAIT_S)


def test_a_broker_that_can_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Cluster.start(tmp_path) as cluster:
        [broker] = cluster.brokers
        broker.stop()
        settings = tmp_path / "broker-1" / "server.properties"
        settings.write_text(settings.read_text() + "num.io.threads=none\n")
        with pytest.raises(Unavailable, match=r"Invalid value none for configuration num\.io"):
            broker.restart()


def test_a_start_that_was_cut_off_before_the_folder_was_prepared_is_made_good(
    tmp_path: Path,
) -> None:
    with Cluster.start(tmp_path) as first:
        address = first.brokers[0].address
    (tmp_path / "broker-1" / "data" / "meta.properties").unlink()
    with Cluster.start(tmp_path) as second:
        assert second.brokers[0].address == address


def test_a_folder_with_another_kind_of_cluster_is_refused(tmp_path: Path) -> None:
    Cluster.start(tmp_path).close()
    with pytest.raises(Misconfigured, match="a cluster of 1 brokers without SASL"):
        Cluster.start(tmp_path, 3)


def test_a_cluster_that_runs_already_is_not_started_twice(tmp_path: Path) -> None:
    with (
        Cluster.start(tmp_path),
        pytest.raises(Misconfigured, match="is this cluster running already"),
    ):
        Cluster.start(tmp_path)
