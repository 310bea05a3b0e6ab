"""The in-process bus gives what Kafka will give: offsets, appended times, bounds, rejects."""

import pytest

from bus.memory import MemoryBus
from bus.messages import Reject, Tick
from bus.topics import SUSPICIONS, TELEMETRY
from runtime.clock import Instant, ManualClock


def tick(second: int) -> Tick:
    return Tick(cell="c", time=Instant(second * 10**9))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_records_come_in_order_with_offset_and_the_time_of_appending(clock: ManualClock) -> None:
    bus = MemoryBus(clock)
    source = bus.source([TELEMETRY])
    began = clock.now()
    for second in range(3):
        bus.sink().send(TELEMETRY, "n", tick(second))
        clock.advance(1.0)
    envelopes = source.poll(10, 0.0)
    assert [(one.offset, one.appended.since(began), one.message) for one in envelopes] == [
        (second, float(second), tick(second)) for second in range(3)
    ]


def test_each_reader_has_its_own_position(clock: ManualClock) -> None:
    bus = MemoryBus(clock)
    first, second = bus.source([TELEMETRY]), bus.source([TELEMETRY])
    bus.sink().send(TELEMETRY, "n", tick(0))
    assert len(first.poll(10, 0.0)) == len(second.poll(10, 0.0)) == 1
    assert first.poll(10, 0.0) == []


def test_a_late_reader_may_begin_at_the_end(clock: ManualClock) -> None:
    bus = MemoryBus(clock)
    bus.sink().send(TELEMETRY, "n", tick(0))
    source = bus.source([TELEMETRY], start="latest")
    bus.sink().send(TELEMETRY, "n", tick(1))
    assert [one.message for one in source.poll(10, 0.0)] == [tick(1)]


def test_a_position_can_be_taken_up_again(clock: ManualClock) -> None:
    bus = MemoryBus(clock)
    for second in range(5):
        bus.sink().send(TELEMETRY, "n", tick(second))
    before = bus.source([TELEMETRY])
    before.poll(2, 0.0)
    after = bus.source([TELEMETRY])
    after.seek(before.positions())
    assert [one.offset for one in after.poll(10, 0.0)] == [2, 3, 4]


def test_a_full_log_drops_its_oldest_and_a_slow_reader_counts_what_it_missed(
    clock: ManualClock,
) -> None:
    bus = MemoryBus(clock, records_max=3)
    source = bus.source([TELEMETRY])
    for second in range(5):
        bus.sink().send(TELEMETRY, "n", tick(second))
    assert [one.offset for one in source.poll(10, 0.0)] == [2, 3, 4]
    assert source.skipped() == 2


def test_a_record_that_is_no_message_arrives_as_a_reject_in_its_place(clock: ManualClock) -> None:
    bus = MemoryBus(clock)
    source = bus.source([TELEMETRY])
    bus.append(TELEMETRY, "n", b"\xc1 nonsense")
    bus.sink().send(TELEMETRY, "n", tick(1))
    broken, whole = source.poll(10, 0.0)
    assert isinstance(broken.message, Reject)
    assert (broken.message.reason, broken.message.source.offset) == ("no message", 0)
    assert broken.message.first_bytes == b"\xc1 nonsense"
    assert whole.message == tick(1)


def test_lag_tells_what_waits_in_each_topic(clock: ManualClock) -> None:
    bus = MemoryBus(clock)
    source = bus.source([TELEMETRY, SUSPICIONS])
    bus.sink().send(TELEMETRY, "n", tick(0))
    bus.sink().send(TELEMETRY, "n", tick(1))
    source.poll(1, 0.0)
    assert source.lag() == {(TELEMETRY, 0): 1, (SUSPICIONS, 0): 0}


def test_a_bus_begun_anew_is_another_log(clock: ManualClock) -> None:
    before = MemoryBus(clock).log
    clock.advance(1.0)
    assert MemoryBus(clock).log != before
