"""Containers: which groups are watched, under which name, against which limit."""

import shutil
from pathlib import Path

import pytest

from collectors.cgroup import Settings, build
from tests.unit.collectors.machine import (
    CGROUPS,
    GIB,
    MIB,
    NOW,
    Machine,
    by_path,
    values,
)

HELD = "container_memory_unreclaimable_bytes"
LIMIT = "container_memory_limit_bytes"
FROZEN = "container_frozen"


def test_the_tightest_limit_on_the_way_to_the_root_bounds_a_group(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("/pod", limit=1 * GIB)
    machine.v2_group("/pod/wide", limit=4 * GIB)
    machine.v2_group("/pod/narrow", limit=256 * MIB)
    machine.v2_group("/pod/none")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, LIMIT) == {
        "/pod": 1 * GIB,
        "/pod/wide": 1 * GIB,
        "/pod/narrow": 256 * MIB,
        "/pod/none": 1 * GIB,
    }


@pytest.mark.parametrize("limit", [None, 16 * GIB, 1 << 62])
def test_without_a_limit_below_the_nodes_memory_the_node_bounds_a_group(
    tmp_path: Path, limit: int | None
) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("/free", 300 * MIB, limit=limit)
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, LIMIT) == {"/free": 300 * MIB + 8 * GIB}


def test_v1_without_a_limit_shows_a_huge_number_that_is_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v1()
    machine.v1_group("/free", 300 * MIB)
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, LIMIT) == {"/free": 300 * MIB + 8 * GIB}


@pytest.mark.parametrize(
    ("swap_max", "room"), [("max", 2 * GIB), (str(512 * MIB), 512 * MIB), ("0", 0)]
)
def test_swap_that_a_group_may_use_counts_as_held_and_as_room(
    tmp_path: Path, swap_max: str, room: int
) -> None:
    machine = Machine(tmp_path).v2().meminfo(swap=2 * GIB, swap_used=100 * MIB)
    folder = machine.v2_group("/pod", 200 * MIB, limit=1 * GIB)
    machine.write(f"{folder}/memory.swap.max", f"{swap_max}\n")
    machine.write(f"{folder}/memory.swap.current", f"{30 * MIB}\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert (by_path(reading, HELD), by_path(reading, LIMIT)) == (
        {"/pod": 230 * MIB},
        {"/pod": 1 * GIB + room},
    )


def test_kernel_memory_of_v2_counts_without_its_reclaimable_slab(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    stat = "anon 1000\nfile 700\nkernel 500\nsock 20\nshmem 300\nslab_reclaimable 400\n"
    machine.v2_group("/pod", stat=stat)
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, HELD) == {"/pod": 1000 + 300 + (500 - 400) + 20}


def test_kernels_before_5_18_name_only_parts_of_their_kernel_memory(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    kernel = "kernel_stack 16\npercpu 4\nslab_unreclaimable 50\npagetables 8\n"
    stat = f"anon 1000\nfile 0\nshmem 0\n{kernel}slab_reclaimable 400\n"
    machine.v2_group("/pod", stat=stat)
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, HELD) == {"/pod": 1000 + 16 + 4 + 50 + 8}


def test_the_root_is_no_container_unless_it_has_a_limit_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("", 500 * MIB)
    without = build(Settings(), machine.tree).collect(NOW)
    machine.v2_group("", 500 * MIB, limit=2 * GIB)
    inside = build(Settings(), machine.tree).collect(NOW)
    assert (by_path(without, LIMIT), by_path(inside, LIMIT)) == ({}, {"/": 2 * GIB})


def test_groups_without_processes_and_without_memory_are_passed_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    folder = machine.v2_group("/empty", 0)
    machine.write(f"{folder}/cgroup.events", "populated 0\nfrozen 0\n")
    machine.v2_group("/starting", 0)
    left = machine.v2_group("/left", 4096)
    machine.write(f"{left}/cgroup.events", "populated 0\nfrozen 0\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, HELD) == {"/starting": 0, "/left": 4096}


def test_a_new_group_is_seen_at_the_next_walk(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("/old")
    collector = build(Settings(rescan_s=2.0), machine.tree)
    collector.collect(NOW)
    machine.v2_group("/new")
    seen = [set(by_path(collector.collect(NOW.plus(s)), HELD)) for s in (1.0, 2.0)]
    assert seen == [{"/old"}, {"/old", "/new"}]


def test_a_clock_that_was_set_back_does_not_stop_the_walks(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    collector = build(Settings(rescan_s=2.0), machine.tree)
    collector.collect(NOW)
    machine.v2_group("/new")
    assert set(by_path(collector.collect(NOW.plus(-3600.0)), HELD)) == {"/new"}


def test_a_group_that_vanishes_between_walks_is_no_error(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("/stays")
    gone = machine.v2_group("/goes")
    collector = build(Settings(), machine.tree)
    collector.collect(NOW)
    machine.remove(gone)
    assert set(by_path(collector.collect(NOW.plus(1.0)), HELD)) == {"/stays"}


def test_another_group_of_the_same_name_is_another_device(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    old = machine.v2_group("/job", 10 * MIB)
    new = machine.v2_group("/made-elsewhere", 20 * MIB)
    collector = build(Settings(), machine.tree)
    (before,) = [one for one in values(collector.collect(NOW), HELD) if one.startswith("/job@")]
    machine.remove(old)
    shutil.move(tmp_path / new.lstrip("/"), tmp_path / old.lstrip("/"))
    between = values(collector.collect(NOW.plus(1.0)), HELD)
    after = values(collector.collect(NOW.plus(2.0)), HELD)
    inode = (tmp_path / old.lstrip("/")).stat().st_ino
    assert (between, after) == ({}, {f"/job@{inode}": 20 * MIB})
    assert before != f"/job@{inode}"


def test_more_groups_than_allowed_are_left_out_and_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2().write("/proc/pressure/memory", "full avg10=0.00\n")
    for name in "abcd":
        machine.v2_group(f"/{name}")
    machine.v2_group("/a/deeper")
    collector = build(Settings(groups_max=3), machine.tree)
    assert set(by_path(collector.collect(NOW), HELD)) == {"/a", "/b", "/c"}
    (sentence,) = collector.cannot_see()
    assert "only 3 are watched" in sentence


def test_groups_deeper_than_allowed_are_left_out_and_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2().write("/proc/pressure/memory", "full avg10=0.00\n")
    machine.v2_group("/a")
    machine.v2_group("/a/b")
    machine.v2_group("/a/b/c")
    collector = build(Settings(depth_max=2), machine.tree)
    assert set(by_path(collector.collect(NOW), HELD)) == {"/a", "/a/b"}
    (sentence,) = collector.cannot_see()
    assert "to a depth of 2" in sentence


def test_in_the_hybrid_layout_a_twin_is_found_by_the_same_path(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v1(unified=True)
    machine.v1_group("/pod")
    machine.write(f"{CGROUPS}/unified/pod/cgroup.events", "populated 1\nfrozen 1\n")
    machine.write(f"{CGROUPS}/unified/pod/memory.pressure", "full avg10=4.25 avg60=0\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert (
        by_path(reading, FROZEN),
        by_path(reading, "container_memory_pressure_full_percent"),
    ) == ({"/pod": 1}, {"/pod": 4.25})


@pytest.mark.parametrize(
    ("there", "seen"), [("71\n72\n", {"/deep/pod": 1}), ("71\n72\n99\n", {}), ("71\n", {})]
)
def test_a_twin_of_another_path_must_hold_exactly_the_same_processes(
    tmp_path: Path, there: str, seen: dict[str, int]
) -> None:
    machine = Machine(tmp_path).v1(unified=True)
    machine.v1_group("/deep/pod", pids="71\n72\n")
    machine.write("/proc/71/cgroup", "4:memory:/deep/pod\n0::/pod\n")
    machine.write(f"{CGROUPS}/unified/pod/cgroup.procs", there)
    machine.write(f"{CGROUPS}/unified/pod/cgroup.events", "populated 1\nfrozen 1\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, FROZEN) == seen


def test_the_v1_freezer_tells_where_there_is_no_v2_tree(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v1()
    machine.v1_group("/frozen")
    machine.v1_group("/thawed")
    machine.write(f"{CGROUPS}/freezer/frozen/freezer.state", "FROZEN\n")
    machine.write(f"{CGROUPS}/freezer/thawed/freezer.state", "THAWED\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, FROZEN) == {"/frozen": 1, "/thawed": 0}


def test_where_only_a_part_is_mounted_the_paths_are_still_those_of_proc(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2(root="/docker/abc")
    machine.v2_group("/inner", limit=1 * GIB)
    reading = build(Settings(), machine.tree).collect(NOW)
    assert by_path(reading, LIMIT) == {"/docker/abc/inner": 1 * GIB}


def test_a_mount_point_with_a_blank_is_understood(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2(point="/sys/fs/c\\040group")
    folder = "/sys/fs/c group/pod"
    machine.write(f"{folder}/memory.current", "9\n").write(f"{folder}/memory.stat", "anon 9\n")
    assert by_path(build(Settings(), machine.tree).collect(NOW), HELD) == {"/pod": 9}


def test_a_name_with_control_characters_is_safe_to_print(tmp_path: Path) -> None:
    machine = Machine(tmp_path).v2()
    machine.v2_group("/evil\x1b[2J\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert list(by_path(reading, HELD)) == ["/evil\\x1b[2J\\x0a"]


def test_without_any_hierarchy_nothing_is_seen_and_said_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    collector = build(Settings(), machine.tree)
    assert collector.collect(NOW).samples == []
    (sentence,) = collector.cannot_see()
    assert "no cgroup hierarchy is mounted" in sentence
