"""Real children in real control groups of this machine: frozen, thawed, ended, limited."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from bus.messages import Scope
from executors.process import ProcessExecutor, Settings
from runtime.process import start
from tests.unit.executors.machine import (
    CLOCK,
    NODE,
    PROCESSES,
    SOON_S,
    Box,
    Child,
    boxes,
    children,
    executor,
    wish,
)

WAYS = {"cgroup.freeze": ("unified",), "freezer.state": ("freezer",), "SIGSTOP": ()}


def ours(folder: Path, *owned: Box) -> ProcessExecutor:
    settings = Settings(own_cgroups=tuple(box.path for box in owned), confirm_s=10.0)
    return executor(folder, settings)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(way: str) -> Iterator[tuple[Box, list[Child], Box, Child]]:
    """A box with two children and a neighbour with one."""
    with children(3) as (one, two, other), boxes(*WAYS[way], count=2) as (box, beside):
        for child in (one, two):
            box.take(child.pid)
        beside.take(other.pid)
        yield box, [one, two], beside, other


Pair = tuple[Box, list[Child], Box, Child]


def still(box: Box, way: str, inside: list[Child]) -> bool:
    if way == "cgroup.freeze":
        return "frozen 1" in box.read("unified", "cgroup.events")
    if way == "freezer.state":
        return box.read("freezer", "freezer.state") == "FROZEN"
    return all(child.state() == "T" for child in inside)


def test_a_frozen_container_stands_still_and_goes_on_when_lifted(
    pair: Pair, way: str, tmp_path: Path
) -> None:
    box, inside, _, other = pair
    acting = ours(tmp_path, box)
    verdict = acting.act(wish("freeze", box), CLOCK.now())
    assert (verdict.outcome, still(box, way, inside)) == ("done", True)
    assert way in verdict.detail
    assert other.answers()
    assert acting.lift("c1", CLOCK.now()).outcome == "done"
    assert not still(box, way, inside)
    assert all(child.answers() for child in inside)
    assert acting.held() == []


def test_reclaim_ends_exactly_one_container_and_no_neighbour(pair: Pair, tmp_path: Path) -> None:
    box, inside, _, other = pair
    acting = ours(tmp_path, box)
    verdict = acting.act(wish("reclaim", box), CLOCK.now())
    assert verdict.outcome == "done"
    assert [child.running.wait(SOON_S) for child in inside] == [-9, -9]
    assert other.answers()


def test_what_we_froze_can_be_ended_and_leaves_no_frozen_group(
    pair: Pair, way: str, tmp_path: Path
) -> None:
    box, inside, _, _ = pair
    acting = ours(tmp_path, box)
    acting.act(wish("freeze", box), CLOCK.now())
    verdict = acting.act(wish("reclaim", box, "c2"), CLOCK.now())
    assert verdict.outcome == "done"
    assert all(child.running.wait(SOON_S) == -9 for child in inside)
    assert acting.held() == []
    assert way == "SIGSTOP" or not still(box, way, inside)


def test_groups_below_the_container_stand_still_with_it(
    pair: Pair, way: str, tmp_path: Path
) -> None:
    box, (child, below), _, _ = pair
    for folder in box.folders.values():
        (folder / "step").mkdir()
        (folder / "step" / "cgroup.procs").write_text(str(below.pid))
    acting = ours(tmp_path, box)
    verdict = acting.act(wish("freeze", box), CLOCK.now())
    assert (verdict.outcome, way in verdict.detail) == ("done", True)
    assert "2 processes read back as still" in verdict.detail
    acting.close(CLOCK.now())
    assert all(one.answers() for one in (child, below))


def test_a_clean_stop_lets_go(pair: Pair, tmp_path: Path) -> None:
    box, inside, _, _ = pair
    acting = ours(tmp_path, box)
    acting.act(wish("freeze", box), CLOCK.now())
    (sentence,) = acting.close(CLOCK.now())
    assert "was lifted" in sentence
    assert all(child.answers() for child in inside)


def test_a_container_outside_of_what_is_declared_is_refused(pair: Pair, tmp_path: Path) -> None:
    box, inside, beside, _ = pair
    verdict = ours(tmp_path, beside).act(wish("reclaim", box), CLOCK.now())
    assert verdict.outcome == "refused"
    assert "own_cgroups" in verdict.detail
    assert all(child.answers() for child in inside)


def test_a_path_that_only_begins_alike_is_not_inside(tmp_path: Path) -> None:
    with children(1) as (child,), boxes() as (box,):
        box.take(child.pid)
        alike = Settings(own_cgroups=(box.path[:-1],))
        verdict = executor(tmp_path, alike).act(wish("freeze", box), CLOCK.now())
        assert verdict.outcome == "refused"


@pytest.mark.parametrize("way", ["cgroup.freeze", "freezer.state"], indirect=True)
def test_a_group_that_somebody_else_froze_is_refused_and_left_frozen(
    pair: Pair, way: str, tmp_path: Path
) -> None:
    box, inside, _, _ = pair
    name, word = ("unified", "1") if way == "cgroup.freeze" else ("freezer", "FROZEN")
    (box.folders[name] / way).write_text(word)
    acting = ours(tmp_path, box)
    answers = [
        acting.act(wish(action, box, f"c-{action}"), CLOCK.now())
        for action in ("freeze", "release")
    ]
    assert [answer.outcome for answer in answers] == ["refused", "refused"]
    assert all("not ours" in answer.detail for answer in answers)
    acting.close(CLOCK.now())
    assert still(box, way, inside)


def test_a_twin_that_holds_a_stranger_is_not_frozen(tmp_path: Path) -> None:
    with children(2) as (inside, stranger), boxes("unified") as (box,):
        box.take(inside.pid)
        (box.folders["unified"] / "cgroup.procs").write_text(str(stranger.pid))
        acting = ours(tmp_path, box)
        verdict = acting.act(wish("freeze", box), CLOCK.now())
        assert (verdict.outcome, inside.state()) == ("done", "T")
        assert "SIGSTOP" in verdict.detail
        assert stranger.answers()
        acting.close(CLOCK.now())


def test_a_twin_outside_of_what_is_declared_is_not_touched(tmp_path: Path) -> None:
    with children(1) as (child,), boxes() as (box,), boxes("unified", count=2) as (_, elsewhere):
        box.take(child.pid)
        (elsewhere.folders["unified"] / "cgroup.procs").write_text(str(child.pid))
        acting = ours(tmp_path, box)
        assert acting.act(wish("freeze", box), CLOCK.now()).outcome == "done"
        assert elsewhere.read("unified", "cgroup.freeze") == "0"
        acting.close(CLOCK.now())


def test_another_group_of_the_same_path_is_refused(tmp_path: Path) -> None:
    with children(1) as (child,), boxes() as (box,):
        box.take(child.pid)
        inode = f"9{box.folder.stat().st_ino}"
        scope = Scope("container", "a", NODE, f"{box.path}@{inode}")
        command = structs.replace(wish("reclaim", box, inode=inode), scope=scope)
        verdict = ours(tmp_path, box).act(command, CLOCK.now())
        assert verdict.outcome == "refused"
        assert "another one now" in verdict.detail
        assert child.answers()


def test_a_group_that_holds_ourselves_is_refused(tmp_path: Path) -> None:
    with children(1) as (child,), boxes() as (box,):
        box.take(child.pid)
        settings = Settings(own_cgroups=(box.path,))
        acting = executor(tmp_path, settings, own_pid=child.pid)
        verdict = acting.act(wish("freeze", box), CLOCK.now())
        assert verdict.outcome == "refused"
        assert "farside itself" in verdict.detail


def test_processes_that_start_while_others_are_stopped_are_stopped_too(tmp_path: Path) -> None:
    with boxes() as (box,):
        script = "while :; do (while :; do :; done) & sleep 0.002; kill $!; done"
        with start(["sh", "-c", script], own_group=True) as forker:
            box.take(forker.pid)
            acting = ours(tmp_path, box)
            verdict = acting.act(wish("freeze", box), CLOCK.now())
            stats = [PROCESSES.stat(pid) for pid in box.groups.pids(str(box.folder))]
            still = [PROCESSES.stopped(stat.identity) for stat in stats if stat is not None]
            assert (verdict.outcome, set(still)) == ("done", {True})
            acting.close(CLOCK.now())
            forker.kill()
