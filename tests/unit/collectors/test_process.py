"""Processes: which are watched, under which name, judged against what."""

from pathlib import Path

import pytest

from collectors.process import Processes, Settings
from tests.unit.collectors.machine import GIB, MIB, NOW, Machine, values

PRIVATE = "process_private_bytes"
ROOM = "process_private_limit_bytes"
DATA = "process_data_bytes"
DATA_LIMIT = "process_data_limit_bytes"
EACH_LOOK = Settings(rescan_s=1.0, limits_s=1.0)


def watched(collector: Processes, second: float) -> set[str]:
    """Return the devices seen at a second."""
    reading = collector.collect(NOW.plus(second))
    return set(values(reading, PRIVATE)) | set(values(reading, DATA))


def test_a_process_is_watched_from_16_mib_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, 16 * MIB - 4096, comm="small")
    device = machine.process(8, 16 * MIB, comm="large")
    collector = Processes(Settings(), machine.tree)
    seen = watched(collector, 0)
    collector.close()
    assert seen == {device}


def test_a_watched_process_stays_while_it_holds_half_of_what_it_came_with(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, 16 * MIB)
    collector = Processes(EACH_LOOK, machine.tree)
    seen = [bool(watched(collector, 0))]
    for second, size in ((2, 9), (4, 8), (6, 7), (8, 9)):
        machine.process(7, size * MIB)
        seen.append(bool(watched(collector, second)))
    collector.close()
    assert seen == [True, True, True, False, False]


def test_of_too_many_the_largest_are_watched_and_the_rest_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for pid, size in ((1, 20), (2, 60), (3, 40), (4, 30)):
        machine.process(pid, size * MIB, comm=f"p{size}")
    collector = Processes(Settings(processes_max=2), machine.tree)
    assert watched(collector, 0) == {"p60:2:500", "p40:3:500"}
    (sentence,) = collector.cannot_see()
    collector.close()
    assert sentence.startswith("2 more processes: only the 2 largest")


@pytest.mark.parametrize(("newcomer", "stays"), [(44, True), (60, False)])
def test_the_set_does_not_flap_for_a_newcomer_that_is_hardly_larger(
    tmp_path: Path, newcomer: int, *, stays: bool
) -> None:
    machine = Machine(tmp_path)
    old = machine.process(1, 40 * MIB, comm="old")
    collector = Processes(Settings(processes_max=1, rescan_s=1.0), machine.tree)
    watched(collector, 0)
    new = machine.process(2, newcomer * MIB, comm="new")
    seen = watched(collector, 2)
    collector.close()
    assert seen == ({old} if stays else {new})


def test_a_process_with_a_limit_on_its_data_is_judged_by_what_counts_against_it(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    device = machine.process(7, 3 * MIB, data_limit=64 * MIB)
    collector = Processes(Settings(), machine.tree)
    reading = collector.collect(NOW)
    collector.close()
    assert (values(reading, DATA), values(reading, DATA_LIMIT), values(reading, PRIVATE)) == (
        {device: 4 * MIB},
        {device: 64 * MIB},
        {},
    )


def test_without_a_limit_a_process_may_grow_by_what_the_node_has_available(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    device = machine.process(7, 100 * MIB)
    collector = Processes(Settings(), machine.tree)
    reading = collector.collect(NOW)
    collector.close()
    assert values(reading, ROOM) == {device: 100 * MIB + 8 * GIB}


def test_a_limit_that_is_set_after_the_first_look_is_seen_at_the_next(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, 3 * MIB)
    collector = Processes(Settings(rescan_s=1.0, limits_s=3600.0), machine.tree)
    before = watched(collector, 0)
    machine.process(7, 3 * MIB, data_limit=64 * MIB)
    after = watched(collector, 1)
    collector.close()
    assert (before, after) == (set(), {"work:7:500"})


def test_below_a_containers_limit_a_process_is_judged_with_the_container(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("/pod", limit=1 * GIB)
    machine.v2_group("/pod/inner")
    machine.v2_group("/free")
    machine.process(1, 90 * MIB, comm="inside", group="/pod/inner")
    machine.process(2, 90 * MIB, comm="outside", group="/free")
    machine.process(3, 90 * MIB, comm="unknown", group="/not/there")
    collector = Processes(Settings(), machine.tree)
    seen = watched(collector, 0)
    collector.close()
    assert seen == {"outside:2:500", "unknown:3:500"}


def test_a_process_that_is_moved_into_a_limited_group_is_left_to_the_container(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("/pod", limit=1 * GIB)
    machine.process(1, 90 * MIB)
    collector = Processes(EACH_LOOK, machine.tree)
    before = watched(collector, 0)
    machine.process(1, 90 * MIB, group="/pod")
    after = watched(collector, 2)
    collector.close()
    assert (before, after) == ({"work:1:500"}, set())


def test_a_process_that_ends_is_no_error(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(1, 90 * MIB, comm="stays")
    machine.process(2, 90 * MIB, comm="ends")
    collector = Processes(EACH_LOOK, machine.tree)
    watched(collector, 0)
    machine.remove("/proc/2")
    after = watched(collector, 2)
    collector.close()
    assert after == {"stays:1:500"}


def test_what_has_ended_but_was_not_collected_yet_holds_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(2, 90 * MIB)
    machine.write("/proc/2/status", "Name:\twork\nState:\tZ (zombie)\n")
    collector = Processes(Settings(), machine.tree)
    seen = watched(collector, 0)
    collector.close()
    assert seen == set()


def test_a_number_that_went_to_another_process_is_another_device(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, 90 * MIB, comm="first", start=500)
    collector = Processes(EACH_LOOK, machine.tree)
    before = watched(collector, 0)
    machine.process(7, 80 * MIB, comm="second", start=9000)
    after = watched(collector, 2)
    collector.close()
    assert (before, after) == ({"first:7:500"}, {"second:7:9000"})


def test_a_process_keeps_the_name_under_which_it_was_first_watched(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, 90 * MIB, comm="python3")
    collector = Processes(EACH_LOOK, machine.tree)
    watched(collector, 0)
    machine.process(7, 95 * MIB, comm="trainer")
    after = watched(collector, 2)
    collector.close()
    assert after == {"python3:7:500"}


@pytest.mark.parametrize(
    ("comm", "shown"),
    [
        ("nvc:[driver]", "nvc:[driver]"),
        ("a) S 1 (b", "a) S 1 (b"),
        ("tab\there", "tab\\x09here"),
        ("\x1b[31mred", "\\x1b[31mred"),
    ],
)
def test_a_name_may_hold_anything_and_is_safe_to_print(
    tmp_path: Path, comm: str, shown: str
) -> None:
    machine = Machine(tmp_path)
    machine.process(7, 90 * MIB, comm=comm)
    collector = Processes(Settings(), machine.tree)
    seen = watched(collector, 0)
    collector.close()
    assert seen == {f"{shown}:7:500"}


def test_memory_that_was_swapped_out_is_still_held(tmp_path: Path) -> None:
    machine = Machine(tmp_path).meminfo(swap=4 * GIB, swap_used=1 * GIB)
    device = machine.process(7, 2 * MIB, swapped=100 * MIB)
    collector = Processes(Settings(), machine.tree)
    reading = collector.collect(NOW)
    collector.close()
    assert values(reading, PRIVATE) == {device: 102 * MIB}


def test_between_two_looks_only_watched_processes_are_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(1, 90 * MIB, comm="old")
    collector = Processes(Settings(rescan_s=5.0), machine.tree)
    watched(collector, 0)
    machine.process(2, 90 * MIB, comm="new")
    seen = [watched(collector, second) for second in (1, 4, 5)]
    collector.close()
    assert seen == [{"old:1:500"}, {"old:1:500"}, {"old:1:500", "new:2:500"}]
