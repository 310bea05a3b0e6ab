"""What waits for the bus: in order, bounded, telemetry given up before faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.spool import Settings, Spool
from tests.unit.collectors.spooling import batch, drained, line


def test_records_leave_in_the_order_of_their_numbers() -> None:
    spool = Spool()
    for record in (batch(1), line(2), line(3), batch(4), line(5)):
        spool.append(record)
    assert drained(spool) == [1, 2, 3, 4, 5]


def test_a_record_stays_until_the_bus_has_it() -> None:
    spool = Spool()
    spool.append(batch(1))
    kept = spool.take()
    assert kept is not None
    on_its_way = len(spool)
    spool.done(kept)
    assert (on_its_way, len(spool), spool.bytes) == (1, 0, 0)


def test_what_was_given_up_is_taken_again_in_its_order_before_anything_newer() -> None:
    spool = Spool()
    for number in (1, 2, 3, 4, 5):
        spool.append(batch(number))
    first, second, third = (spool.take() for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    spool.done(second)
    spool.give_back(third)
    spool.give_back(first)
    assert (spool.count(), drained(spool)) == ((4, 0, 0), [1, 3, 4, 5])


def test_the_oldest_telemetry_is_given_up_first_and_counted() -> None:
    spool = Spool(Settings(records_max=3))
    for record in (line(1), batch(2), batch(3), line(4), batch(5)):
        spool.append(record)
    assert (spool.dropped, drained(spool)) == ({"batch": 2, "line": 0}, [1, 4, 5])


def test_lines_are_given_up_only_where_nothing_else_is_left() -> None:
    spool = Spool(Settings(records_max=2))
    for record in (line(1), line(2), batch(3), line(4)):
        spool.append(record)
    assert (spool.dropped, drained(spool)) == ({"batch": 1, "line": 1}, [2, 4])


def test_memory_is_bounded_by_what_long_lines_hold() -> None:
    spool = Spool(Settings(bytes_max=1 << 16))
    for number in range(100):
        spool.append(line(number, "x" * 8192))
    assert (spool.bytes <= 1 << 16, len(spool), spool.dropped["line"]) == (True, 3, 97)


@pytest.mark.parametrize("size", [1 << 16, 1 << 20])
def test_what_is_larger_than_all_room_is_given_up_itself(size: int) -> None:
    spool = Spool(Settings(bytes_max=1 << 16))
    spool.append(line(1, "x" * size))
    assert (len(spool), spool.bytes, spool.dropped["line"]) == (0, 0, 1)


@given(st.lists(st.sampled_from("blt")), st.integers(1, 6))
def test_whatever_happens_it_is_ordered_bounded_and_every_record_is_accounted_for(
    steps: list[str], limit: int
) -> None:
    spool = Spool(Settings(records_max=limit))
    added, left = 0, []
    for step in steps:
        if step == "t":
            kept = spool.take()
            if kept is not None:
                left.append(kept.record.sequence)
                spool.done(kept)
        else:
            added += 1
            spool.append(batch(added) if step == "b" else line(added))
        assert len(spool) <= limit
    left += drained(spool)
    assert (left, len(left) + sum(spool.dropped.values()), spool.bytes) == (sorted(left), added, 0)
