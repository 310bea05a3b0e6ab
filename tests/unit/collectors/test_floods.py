"""Flood control: bounded lines, and no occurrence lost from the sum."""

from hypothesis import given
from hypothesis import strategies as st

from collectors.base import FoundLine
from collectors.floods import Floods
from runtime.clock import Instant

START = Instant.parse("2026-03-01T12:00:00Z")


def line(at_s: float, device: str = "gpu", code: str = "13", count: int = 1) -> FoundLine:
    fields = {"kind": "xid", "code": code, "device": device, "count": str(count)}
    return FoundLine(START.plus(at_s), "kernel", "text", fields)


def counts(lines: list[FoundLine]) -> list[int]:
    return [int(one.fields["count"]) for one in lines]


def test_beyond_the_limit_of_a_second_lines_are_counted_into_the_next_that_passes() -> None:
    floods = Floods(lines_per_s=3)
    passed = [one for number in range(100) for one in floods.take(line(number / 1000))]
    passed += floods.take(line(1.0))
    assert (counts(passed), floods.held) == ([1, 1, 1, 98], 97)


def test_counts_inside_the_lines_are_added_up() -> None:
    floods = Floods(lines_per_s=1)
    passed = [one for at in (0.0, 0.1, 0.2, 1.0) for one in floods.take(line(at, count=262))]
    assert counts(passed) == [262, 3 * 262]


def test_a_flood_that_simply_ends_is_told_when_its_second_is_over() -> None:
    floods = Floods(lines_per_s=1)
    passed = [one for at in (0.0, 0.1, 0.2) for one in floods.take(line(at))]
    early = list(floods.ended(START.plus(0.9)))
    late = list(floods.ended(START.plus(2.5)))
    again = list(floods.ended(START.plus(9.0)))
    assert (counts(passed), early, counts(late), again) == ([1], [], [2], [])


def test_a_flood_of_one_fault_hides_no_other() -> None:
    floods = Floods(lines_per_s=1)
    passed = [one for _ in range(50) for one in floods.take(line(0.0))]
    passed += floods.take(line(0.1, code="79"))
    passed += floods.take(line(0.1, device="other"))
    assert [(one.fields["code"], one.fields["device"]) for one in passed] == [
        ("13", "gpu"),
        ("79", "gpu"),
        ("13", "other"),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.sampled_from("abc"), st.integers(1, 9))),
    st.integers(1, 5),
)
def test_nothing_is_lost_to_the_sum(lines: list[tuple[int, str, int]], limit: int) -> None:
    floods = Floods(lines_per_s=limit)
    passed: list[FoundLine] = []
    for at_ms, device, count in sorted(lines):
        passed += floods.take(line(at_ms / 1000, device, count=count))
    passed += floods.ended(START.plus(60.0))
    assert sum(counts(passed)) == sum(count for _, _, count in lines)


def test_names_without_end_take_no_memory_without_end() -> None:
    floods = Floods(lines_per_s=1)
    passed = 0
    for number in range(5000):
        for device in (f"d{number}", f"d{number}"):
            passed += sum(counts(list(floods.take(line(0.0, device)))))
    passed += sum(counts(list(floods.ended(START.plus(9.0)))))
    assert passed == 10_000
