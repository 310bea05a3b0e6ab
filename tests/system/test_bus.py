"""What the bus over Kafka promises to those who read and write: bus/transport.py, kept for real."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from kafka import KafkaProducer, TopicPartition

from bus import messages
from bus.codec import decode, encode
from bus.kafka import Admin, KafkaBus, Settings
from bus.messages import Delivery, Message, Reject, SampleBatch, Tick
from bus.topics import DELIVERIES, REJECTS, TELEMETRY
from bus.transport import Envelope, Place, Receipt, Sink, Source
from deploy.kafka import admin
from deploy.kafka.cluster import Cluster
from runtime.clock import Instant, SystemClock
from runtime.errors import Rejected, Unavailable
from runtime.wait import wait_until
from tests.system.processes import Fleet
from tests.system.telemetry import WAIT_S, batch, by_node, insist, names_of, plain, told

CLOCK = SystemClock()
PLACE: Place = (TELEMETRY, 0)
NOW = Instant.parse("2026-03-01T10:00:00.123456789Z")


class Desk:
    """A bus with all its readers and writers, closed together."""

    def __init__(self, cluster: Cluster, **how: Any) -> None:  # noqa: ANN401  # settings of the bus
        usual: dict[str, Any] = {"bootstrap": tuple(cluster.bootstrap), "reconnect_max_s": 1.0,
                                 "look_s": 0.2, "request_timeout_s": 5.0}  # fmt: skip
        self.bus = KafkaBus(Settings(**(usual | how)), CLOCK, cluster="test", role="desk@here")
        self.sink: Sink = self.bus.sink()
        self._sources: list[Source] = []

    def source(self, *places: str | Place, start: Any = "earliest") -> Source:  # noqa: ANN401  # Start
        found = self.bus.source(places or [PLACE], start)
        self._sources.append(found)
        return found

    def send(self, message: Message, topic: str = TELEMETRY, partition: int = 0) -> Receipt:
        """Hand a message over, waiting until the writer is connected."""
        key = message.node if isinstance(message, SampleBatch) else "key"
        return insist(lambda: self.sink.send(topic, key, message, partition))

    def batches(self, numbers: range, node: str = "n1", partition: int = 0) -> None:
        """Have so many batches acknowledged."""
        for number in numbers:
            self.send(batch(node, number, NOW.plus(number)), partition=partition)
        self.sink.flush(WAIT_S)

    def close(self) -> None:
        self.sink.close(5.0)
        for source in self._sources:
            source.close()
        self.bus.close()


@pytest.fixture
def desk(fresh_topics: Cluster) -> Iterator[Desk]:
    opened = Desk(fresh_topics)
    yield opened
    opened.close()


@pytest.fixture
def asked(fresh_topics: Cluster) -> Iterator[Admin]:
    opened = Admin(Settings(bootstrap=tuple(fresh_topics.bootstrap)))
    yield opened
    opened.close()


def read(source: Source, count: int) -> list[Envelope]:
    """Read until there are so many."""
    found: list[Envelope] = []

    def enough() -> bool:
        found.extend(insist(lambda: source.poll(1000, 0.2)))
        return len(found) >= count

    wait_until(enough, WAIT_S, what=f"{count} records")
    return found


def numbers(envelopes: list[Envelope]) -> list[int]:
    return [one.message.sequence for one in envelopes if isinstance(one.message, SampleBatch)]


def raw(cluster: Cluster, *values: bytes, topic: str = TELEMETRY) -> None:
    """Write bytes of no message, as a stranger could."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    try:
        for value in values:
            producer.send(topic, value=value, partition=0).get(timeout=WAIT_S)
    finally:
        producer.close()


# --- what is written is read ---------------------------------------------------------------------


def test_a_message_comes_back_equal_with_its_key_and_its_place(desk: Desk) -> None:
    sent = batch("n1", 7, NOW)
    desk.send(sent)
    [found] = read(desk.source(), 1)
    assert found[:3] == (TELEMETRY, 0, 0)
    assert (found.key, found.message) == ("n1", sent)


def test_appended_is_the_time_at_which_the_log_took_the_record_not_the_message_own(
    desk: Desk, fresh_topics: Cluster
) -> None:
    before = CLOCK.now()
    desk.batches(range(1))
    after = CLOCK.now()
    [found] = read(desk.source(), 1)
    [record] = plain(fresh_topics.bootstrap, TELEMETRY)
    assert record.timestamp_type == 1  # LogAppendTime
    assert before.plus(-0.001) <= found.appended <= after


def test_a_record_carries_the_headers_of_cloudevents(desk: Desk, fresh_topics: Cluster) -> None:
    sent = batch("n1", 7, NOW)
    desk.send(sent)
    desk.sink.flush(WAIT_S)
    [record] = plain(fresh_topics.bootstrap, TELEMETRY)
    assert dict(record.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": hashlib.sha256(encode(sent)).hexdigest()[:16].encode(),
        "ce_source": b"/farside/test/desk@here",
        "ce_type": b"farside.SampleBatch.v1",
        "ce_time": b"2026-03-01T10:00:00.123456789Z",
        "ce_cluster": b"test",
        "content-type": b"application/msgpack",
    }


def test_a_receipt_says_when_the_bus_has_acknowledged_the_record(desk: Desk) -> None:
    receipt = desk.send(batch("n1", 1, NOW))
    wait_until(receipt.taken, WAIT_S, what="the receipt says so")
    assert numbers(read(desk.source(), 1)) == [1]


@pytest.mark.parametrize("kind", ["none", "gzip", "lz4", "zstd"])
def test_every_compression_comes_back_equal(
    fresh_topics: Cluster, kind: Literal["none", "gzip", "lz4", "zstd"]
) -> None:
    desk = Desk(fresh_topics, compression=kind)
    sent = [batch("n1", number, NOW.plus(number)) for number in range(50)]
    try:
        for one in sent:
            desk.send(one)
        assert [one.message for one in read(desk.source(), 50)] == sent
    finally:
        desk.close()


def test_what_many_nodes_say_in_one_partition_keeps_the_order_of_each(
    desk: Desk, fresh_topics: Cluster
) -> None:
    sent = [batch(f"n{node}", number, NOW) for number in range(50) for node in range(40)]
    for one in sent:
        desk.send(one)
    desk.sink.flush(WAIT_S)
    assert by_node(told(fresh_topics.bootstrap)) == by_node(names_of(sent))


def test_cells_are_read_apart(fresh_topics: Cluster) -> None:
    fresh_topics.renew_topics(cells=2)
    desk = Desk(fresh_topics)
    try:
        desk.batches(range(3), "first", 0)
        desk.batches(range(3, 5), "second", 1)
        assert numbers(read(desk.source((TELEMETRY, 1)), 2)) == [3, 4]
        assert sorted(numbers(read(desk.source(TELEMETRY), 5))) == [0, 1, 2, 3, 4]
    finally:
        desk.close()


# --- what is not taken ---------------------------------------------------------------------------


def huge() -> Delivery:
    return Delivery(incident="i", notifier="n", outcome="done", time=NOW, detail="x" * 1_100_000)


def test_a_record_that_is_too_large_is_refused_and_those_after_it_pass(desk: Desk) -> None:
    with pytest.raises(Rejected, match="at most 1000000 are sent"):
        desk.send(huge(), DELIVERIES)
    desk.batches(range(3))
    assert numbers(read(desk.source(), 3)) == [0, 1, 2]


def refused(receipt: Receipt) -> bool:
    """Tell whether a record was refused for good; False where it may be sent again."""
    try:
        wait_until(receipt.taken, WAIT_S, what="the record is taken or refused")
    except Rejected:
        return True
    except Unavailable:
        pass
    return False


def test_a_record_that_the_broker_finds_too_large_is_refused_alone_and_those_after_it_pass(
    desk: Desk, asked: Admin, fresh_topics: Cluster
) -> None:
    asked.alter_config(DELIVERIES, {"max.message.bytes": "2000"})
    noise = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(200))

    def delivery(number: int) -> Delivery:
        detail = noise if number == 2 else ""
        return Delivery(incident=f"{number}", notifier="n", outcome="done", time=NOW, detail=detail)

    desk.send(Delivery(incident="first", notifier="n", outcome="done", time=NOW), DELIVERIES)
    desk.sink.flush(WAIT_S)
    together = {number: desk.sink.send(DELIVERIES, "key", delivery(number)) for number in range(5)}
    assert [number for number, receipt in together.items() if refused(receipt)] == [2]
    with pytest.raises(Rejected):
        desk.sink.flush(WAIT_S)
    for number in (5, 6):
        desk.send(delivery(number), DELIVERIES)
    desk.sink.flush(WAIT_S)
    kept = [decode(one.value) for one in plain(fresh_topics.bootstrap, DELIVERIES)]
    found = {one.incident for one in kept if isinstance(one, Delivery)}
    assert found >= {"first", "5", "6"}
    assert "2" not in found


def test_bytes_that_are_no_message_arrive_in_their_place_with_the_reason(
    desk: Desk, fresh_topics: Cluster
) -> None:
    desk.batches(range(1))
    raw(fresh_topics, b"\xffnothing of ours", b"{}")
    desk.batches(range(1, 2))
    found = read(desk.source(), 4)
    assert numbers(found) == [0, 1]
    assert [one.offset for one in found] == [0, 1, 2, 3]
    rejects = [one.message for one in found if isinstance(one.message, Reject)]
    assert [one.first_bytes for one in rejects] == [b"\xffnothing of ours", b"{}"]
    assert [one.source.offset for one in rejects] == [1, 2]


# --- topics that are not there -------------------------------------------------------------------


def test_a_topic_that_is_missing_is_told_with_the_remedy_and_works_once_it_is_made(
    desk: Desk, fresh_topics: Cluster, tmp_path: Path
) -> None:
    with admin.client(*fresh_topics.bootstrap) as asked:
        asked.delete_topics([REJECTS])
        wait_until(lambda: REJECTS not in asked.list_topics(), WAIT_S, what="it is gone")
    insist(lambda: desk.sink.send(TELEMETRY, "n1", batch("n1", 1, NOW)))  # the writer is connected
    source = desk.source(REJECTS)
    with pytest.raises(Unavailable, match="farside topics --create"):
        source.poll(10, 0.1)
    where = messages.Source(partition=0, offset=0)
    lost = Reject(reason="r", source=where, first_bytes=b"", size=0, time=NOW)
    with pytest.raises(Unavailable, match="farside topics --create"):
        desk.sink.send(REJECTS, "k", lost)
    with Fleet(tmp_path, fresh_topics.bootstrap) as fleet:
        assert fleet.role("topics", arguments=("--create",)).ended() == 0
    desk.send(lost, REJECTS)
    assert len(read(source, 1)) == 1


def test_a_cell_without_a_partition_is_told_with_the_remedy(desk: Desk) -> None:
    with pytest.raises(Unavailable, match=r"no partition 3.*farside topics --create"):
        desk.source((TELEMETRY, 3)).poll(10, 0.1)
    desk.batches(range(1))  # the writer is connected
    with pytest.raises(Unavailable, match=r"no partition 3.*farside topics --create"):
        desk.sink.send(TELEMETRY, "n1", batch("n1", 1, NOW), 3)


# --- where reading begins ------------------------------------------------------------------------


def test_the_newest_reader_sees_what_comes_after_it_only(desk: Desk) -> None:
    desk.batches(range(3))
    source = desk.source(start="latest")
    assert source.poll(10, 0.0) == []
    desk.batches(range(3, 5))
    assert numbers(read(source, 2)) == [3, 4]


def test_a_reader_of_a_moment_begins_with_the_first_record_appended_then(desk: Desk) -> None:
    desk.batches(range(3))
    before = CLOCK.now()
    wait_until(lambda: CLOCK.now().since(before) > 0.005, 5.0)  # the log's times are milliseconds
    moment = CLOCK.now()
    desk.batches(range(3, 5))
    assert numbers(read(desk.source(start=moment), 2)) == [3, 4]


def test_a_reader_goes_on_where_its_checkpoint_says(desk: Desk) -> None:
    desk.batches(range(5))
    source = desk.source()
    source.seek({PLACE: 3})  # before the first connection, as after a restart
    assert numbers(read(source, 2)) == [3, 4]
    source.seek({PLACE: 1})
    assert numbers(read(source, 4)) == [1, 2, 3, 4]
    assert source.positions() == {PLACE: 5}


def test_a_range_is_read_again_and_reading_goes_on_behind_it(desk: Desk) -> None:
    desk.batches(range(6))
    source = desk.source()
    assert len(read(source, 6)) == 6
    assert numbers(source.reread(PLACE, 1, 4)) == [1, 2, 3]
    assert numbers(read(source, 2)) == [4, 5]


def test_ranges_of_several_topics_are_read_again_in_turn_and_all_go_on(desk: Desk) -> None:
    notices = [
        Delivery(incident=f"{number}", notifier="n", outcome="done", time=NOW)
        for number in range(6)
    ]
    for one in notices:
        desk.send(one, DELIVERIES)
    desk.batches(range(6))
    source = desk.source(PLACE, DELIVERIES)
    assert len(read(source, 12)) == 12
    for _ in range(3):  # as a decider that crashes again and again
        source.seek({PLACE: 0, (DELIVERIES, 0): 0})
        for first in (0, 2):
            assert numbers(source.reread(PLACE, first, first + 2)) == [first, first + 1]
            found = source.reread((DELIVERIES, 0), first, first + 2)
            assert [one.message for one in found] == notices[first : first + 2]
        assert len(read(source, 4)) == 4


def test_what_waits_to_be_read_is_counted(desk: Desk) -> None:
    desk.batches(range(6))
    source = desk.source()
    assert len(insist(lambda: source.poll(2, 1.0) or source.poll(2, 1.0))) == 2
    assert source.lag() == {PLACE: 4}


# --- what happens to a log -----------------------------------------------------------------------


def delete_below(cluster: Cluster, offset: int) -> None:
    with admin.client(*cluster.bootstrap) as asked:
        asked.delete_records({TopicPartition(*PLACE): offset})


def test_a_position_below_the_start_of_the_log_goes_on_at_its_start_and_says_what_was_skipped(
    desk: Desk, fresh_topics: Cluster
) -> None:
    desk.batches(range(6))
    delete_below(fresh_topics, 4)
    source = desk.source()
    source.seek({PLACE: 1})
    assert numbers(read(source, 2)) == [4, 5]
    assert source.skipped() == 3


def test_a_range_that_is_gone_in_part_is_read_again_as_far_as_it_is_there(
    desk: Desk, fresh_topics: Cluster
) -> None:
    desk.batches(range(6))
    delete_below(fresh_topics, 3)
    source = desk.source()
    assert numbers(source.reread(PLACE, 1, 5)) == [3, 4]
    assert source.skipped() == 2


def test_a_topic_made_anew_is_another_log_and_is_read_from_its_start(
    desk: Desk, fresh_topics: Cluster
) -> None:
    desk.batches(range(5))
    source = desk.source()
    assert len(read(source, 5)) == 5
    before = source.log()
    fresh_topics.renew_topics()
    other = Desk(fresh_topics)
    try:
        other.batches(range(10, 13))
        assert numbers(read(source, 3)) == [10, 11, 12]
        assert source.log() != before
        assert source.log() == other.source().log()
    finally:
        other.close()


def test_a_writer_goes_on_into_a_topic_made_anew(desk: Desk, fresh_topics: Cluster) -> None:
    desk.batches(range(5))
    fresh_topics.renew_topics()
    desk.batches(range(10, 13))
    assert numbers(read(desk.source(), 3)) == [10, 11, 12]


# --- a broker that is away -----------------------------------------------------------------------


def test_while_the_broker_is_away_a_writer_takes_so_much_and_loses_nothing_of_it(
    fresh_topics: Cluster,
) -> None:
    [broker] = fresh_topics.brokers
    desk = Desk(fresh_topics, buffer_bytes=1 << 20)
    try:
        desk.batches(range(1))
        broker.suspend()
        sent: list[Receipt] = []

        def fill() -> None:
            for number in range(1, 100_000):
                sent.append(desk.sink.send(TELEMETRY, "n1", batch("n1", number, NOW)))  # noqa: PERF401  # what was taken before the error counts

        with pytest.raises(Unavailable, match=r"bus\.kafka\.buffer_bytes"):
            fill()
        with pytest.raises(Unavailable, match="not acknowledged"):
            desk.sink.flush(0.1)
        assert not any(one.taken() for one in sent)
        broker.resume()
        desk.sink.flush(WAIT_S)
        assert all(one.taken() for one in sent)
        assert by_node(told(fresh_topics.bootstrap)) == {("n1", "s1"): list(range(len(sent) + 1))}
    finally:
        broker.resume()
        desk.close()


def test_a_reader_goes_on_by_itself_after_the_broker_was_started_anew(
    desk: Desk, fresh_topics: Cluster
) -> None:
    desk.batches(range(3))
    source = desk.source()
    assert numbers(read(source, 3)) == [0, 1, 2]
    fresh_topics.brokers[0].kill()
    fresh_topics.brokers[0].restart()
    desk.send(Tick(cell="default", time=NOW))
    desk.batches(range(3, 5))
    assert numbers(read(source, 3)) == [3, 4]
