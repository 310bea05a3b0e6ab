"""The clusters that the other tests here stand on: they answer, keep records, break and heal."""

from collections.abc import Iterable
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from bus.topics import TELEMETRY, TOPICS
from deploy.kafka import admin
from deploy.kafka.cluster import Cluster
from runtime.process import run
from runtime.wait import wait_until

WAIT_S = 60.0


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


def test_everything_listens_on_loopback_only(kafka: Cluster) -> None:
    listening = run(["ss", "-Hltnp"], 30.0)
    mine = [line for line in listening.out.splitlines() if f"pid={kafka.brokers[0].pid}," in line]
    assert mine != []
    assert [line for line in mine if "127.0.0.1:" not in line.split()[3]] == []
