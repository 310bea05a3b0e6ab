"""Plain children without groups of their own: signals, verified by pidfd and start time."""

import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec import structs

from bus.messages import Scope
from executors.process import ProcessExecutor, Settings, build
from runtime.errors import Misconfigured
from runtime.files import SysTree
from runtime.wait import wait_until
from tests.unit.executors.machine import (
    CLOCK,
    NODE,
    SOON_S,
    Child,
    children,
    context,
    executor,
    own_children,
    wish,
)


def ours(folder: Path) -> ProcessExecutor:
    return executor(folder, own_children())


def test_a_frozen_child_is_stopped_and_goes_on_when_lifted(tmp_path: Path) -> None:
    with children(2) as (child, other):
        acting = ours(tmp_path)
        verdict = acting.act(wish("freeze", child), CLOCK.now())
        assert (verdict.outcome, child.state()) == ("done", "T")
        assert other.answers()
        acting.lift("c1", CLOCK.now())
        assert child.answers()


def test_reclaim_ends_the_child_alone_and_a_second_one_finds_nothing_to_end(
    tmp_path: Path,
) -> None:
    with children(2) as (child, other):
        acting = ours(tmp_path)
        assert acting.act(wish("reclaim", child), CLOCK.now()).outcome == "done"
        assert child.running.wait(SOON_S) == -signal.SIGKILL
        assert acting.act(wish("reclaim", child, "c2"), CLOCK.now()).outcome == "already"
        assert other.answers()


def test_a_child_that_waits_in_vfork_counts_as_frozen_and_goes_on_when_lifted(
    tmp_path: Path,
) -> None:
    # posix_spawn is a vfork: the parent sleeps uninterruptibly until the child has opened the pipe
    # and becomes another program.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    spawn = f"os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=[(0, 0, '{pipe}', 0, 0)])"
    child = Child([sys.executable, "-c", f"import os; {spawn}; print('went on', flush=True)"])
    try:
        wait_until(lambda: child.state() == "D", SOON_S)
        acting = ours(tmp_path)
        assert acting.act(wish("freeze", child), CLOCK.now()).outcome == "done"
        pipe.write_text("")
        wait_until(lambda: child.state() == "T", SOON_S)
        acting.lift("c1", CLOCK.now())
        assert next(child.running.lines()) == "went on"
    finally:
        child.running.kill()
        child.running.stop()


def test_release_lets_go_what_is_held_on_the_scope(tmp_path: Path) -> None:
    with children(1) as (child,):
        acting = ours(tmp_path)
        acting.act(wish("freeze", child), CLOCK.now())
        verdict = acting.act(wish("release", child, "c2"), CLOCK.now())
        assert (verdict.outcome, child.answers()) == ("done", True)
        assert acting.act(wish("release", child, "c3"), CLOCK.now()).outcome == "already"


def test_what_two_commands_hold_goes_on_only_after_the_last(tmp_path: Path) -> None:
    with children(1) as (child,):
        acting = ours(tmp_path)
        acting.act(wish("freeze", child, "c1"), CLOCK.now())
        second = acting.act(wish("freeze", child, "c2"), CLOCK.now())
        assert (second.outcome, second.held_until is not None) == ("already", True)
        acting.lift("c1", CLOCK.now())
        assert child.state() == "T"
        acting.lift("c2", CLOCK.now())
        assert child.answers()


def test_a_hold_ends_no_later_than_the_setting_says(tmp_path: Path) -> None:
    with children(1) as (child,):
        acting = executor(tmp_path, own_children(hold_s=20.0, hold_s_max=50.0))
        now = CLOCK.now()
        verdicts = [
            acting.act(wish("freeze", child, str(hold_s), hold_s=hold_s, now=now), now)
            for hold_s in (30.0, 1e6, None)
        ]
        assert [v.held_until for v in verdicts] == [now.plus(s) for s in (30.0, 50.0, 20.0)]
        acting.close(CLOCK.now())


def test_a_child_that_somebody_else_stopped_is_refused_and_stays_stopped(tmp_path: Path) -> None:
    with children(1) as (child,):
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: child.state() == "T", SOON_S)
        acting = ours(tmp_path)
        answers = [
            acting.act(wish(action, child, action), CLOCK.now()) for action in ("freeze", "release")
        ]
        assert [answer.outcome for answer in answers] == ["refused", "refused"]
        assert all("not ours" in answer.detail for answer in answers)
        acting.close(CLOCK.now())
        assert child.state() == "T"


def refusal(folder: Path, child: Child, settings: Settings, **precondition: str) -> str:
    """Return the sentence of a refused reclaim, after checking that the child lives on."""
    acting = executor(folder, settings)
    command = wish("reclaim", child)
    command = structs.replace(command, precondition={**command.precondition, **precondition})
    verdict = acting.act(command, CLOCK.now())
    assert verdict.outcome == "refused"
    assert child.answers()
    return verdict.detail


def test_with_nothing_declared_everything_is_refused_and_the_keys_are_named(
    tmp_path: Path,
) -> None:
    with children(1) as (child,):
        detail = refusal(tmp_path, child, Settings())
        assert "own_cgroups" in detail
        assert "own_descendants_of" in detail


def test_a_process_that_does_not_descend_from_what_is_declared_is_refused(tmp_path: Path) -> None:
    with children(2) as (child, other):
        settings = Settings(own_descendants_of=(str(other.pid),))
        assert "not ours" in refusal(tmp_path, child, settings)


def test_what_is_declared_can_be_named_by_a_file_that_holds_its_pid(tmp_path: Path) -> None:
    pid_file = tmp_path / "job.pid"
    pid_file.write_text(f"{os.getpid()}\n")
    with children(1) as (child,):
        acting = executor(tmp_path, Settings(own_descendants_of=(str(pid_file),)))
        assert acting.act(wish("freeze", child), CLOCK.now()).outcome == "done"
        acting.close(CLOCK.now())


def test_another_boot_is_refused(tmp_path: Path) -> None:
    with children(1) as (child,):
        assert "boot" in refusal(tmp_path, child, own_children(), boot="another-boot")


@pytest.mark.parametrize("missing", ["boot", "pid", "start"])
def test_a_precondition_that_lacks_a_part_is_refused(missing: str, tmp_path: Path) -> None:
    with children(1) as (child,):
        assert repr(missing) in refusal(tmp_path, child, own_children(), **{missing: ""})


def test_scope_and_precondition_must_mean_the_same_process(tmp_path: Path) -> None:
    with children(2) as (child, other):
        other_pid = {"pid": str(other.pid), "start": str(other.identity.start)}
        assert "disagree" in refusal(tmp_path, child, own_children(), **other_pid)


def test_a_recycled_pid_is_refused(tmp_path: Path) -> None:
    with children(1) as (child,):
        start = str(child.identity.start - 1)
        command = structs.replace(
            wish("reclaim", child, start=start),
            scope=Scope("process", "a", NODE, f"cat:{child.pid}:{start}"),
        )
        verdict = ours(tmp_path).act(command, CLOCK.now())
        assert verdict.outcome == "refused"
        assert "another process now" in verdict.detail
        assert child.answers()


def test_farside_itself_and_what_started_it_are_refused(tmp_path: Path) -> None:
    with children(1) as (child,):
        itself = executor(tmp_path / "a", own_children(), own_pid=child.pid)
        verdict = itself.act(wish("freeze", child), CLOCK.now())
        assert (verdict.outcome, "farside itself" in verdict.detail) == ("refused", True)


def test_another_kind_of_scope_is_refused(tmp_path: Path) -> None:
    with children(1) as (child,):
        command = structs.replace(wish("freeze", child), scope=Scope("node", "a", NODE))
        verdict = ours(tmp_path).act(command, CLOCK.now())
        assert verdict.outcome == "refused"
        assert "not on a node" in verdict.detail


def test_a_tree_that_is_not_this_machines_can_not_be_acted_on(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        build(Settings(), context(tmp_path, tree=SysTree(tmp_path)))


def test_what_is_declared_and_not_there_is_said(tmp_path: Path) -> None:
    nothing = executor(tmp_path, Settings()).cannot()
    missing = executor(tmp_path, Settings(own_descendants_of=("/run/none.pid",))).cannot()
    assert "own_cgroups" in nothing[0]
    assert "/run/none.pid" in missing[0]
