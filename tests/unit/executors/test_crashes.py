"""An executor that is killed at any point of an act, and what the next one finds and says."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bus.codec import encode
from bus.memory import MemoryBus
from bus.messages import Action, ExecutionReport, IsolationCommand
from bus.topics import COMMANDS, REPORTS
from executors.process import ProcessExecutor, Settings
from executors.worker import ExecutorWorker
from runtime.clock import SystemClock
from runtime.errors import Misconfigured
from runtime.process import run
from tests.unit.executors.machine import (
    CLOCK,
    SOON_S,
    Box,
    boxes,
    children,
    executor,
    wish,
)

ROOT = Path(__file__).parents[3]
MINE = Settings(own_descendants_of=(str(os.getpid()),), confirm_s=10.0)


def crash(folder: Path, point: str, command: IsolationCommand, settings: Settings = MINE) -> int:
    """Let another program act until it dies at `point`; return its exit code."""
    script = "tests.unit.executors.crashing"
    given = [str(folder), point, msgspec.json.encode(settings).decode(), encode(command).decode()]
    return run([sys.executable, "-m", script, *given], 60.0, cwd=ROOT).code


class After:
    """The next start: a worker with a bus on which the command is (or isn't) given once more."""

    def __init__(self, folder: Path, settings: Settings, *again: IsolationCommand) -> None:
        self.acting: ProcessExecutor = executor(folder, settings)
        bus = MemoryBus(SystemClock())
        for command in again:
            bus.sink().send(COMMANDS, command.incident, command)
        self.worker = ExecutorWorker(
            {"process": self.acting}, source=bus.source([COMMANDS]), sink=bus.sink(), clock=CLOCK
        )
        self.worker.start()
        self.worker.turn(bus.source([COMMANDS]).poll(10, 0.0), CLOCK.now())
        self.reports = [
            envelope.message
            for envelope in bus.source([REPORTS]).poll(10, 0.0)
            if isinstance(envelope.message, ExecutionReport)
        ]

    def outcomes(self) -> list[str]:
        return [report.outcome for report in self.reports]


@pytest.mark.parametrize(
    ("point", "outcome"), [("intent", "failed"), ("acted", "done"), ("finished", "done")]
)
def test_after_a_crash_the_report_says_what_is_true(
    point: str, outcome: str, tmp_path: Path
) -> None:
    with children(1) as (child,):
        assert crash(tmp_path, point, wish("freeze", child)) == 9
        after = After(tmp_path, MINE)
        assert after.outcomes() == [outcome]
        assert (child.state() == "T") == (outcome == "done")
        after.worker.stop()
        assert child.answers()


def test_a_crash_between_noting_and_touching_leaves_nothing_held(tmp_path: Path) -> None:
    with children(1) as (child,):
        assert crash(tmp_path, "touched", wish("freeze", child)) == 9
        after = After(tmp_path, MINE)
        assert (after.outcomes(), after.acting.held()) == (["failed"], [])
        assert child.answers()


@pytest.mark.parametrize("point", ["acted", "finished"])
@pytest.mark.parametrize("action", ["freeze", "reclaim"])
def test_a_command_that_is_given_again_after_a_crash_is_carried_out_once(
    action: Action, point: str, tmp_path: Path
) -> None:
    with children(1) as (child,):
        command = wish(action, child)
        assert crash(tmp_path, point, command) == 9
        after = After(tmp_path, MINE, command)
        assert after.outcomes() == ["done", "already"]
        if action == "reclaim":
            assert child.running.wait(SOON_S) == -signal.SIGKILL
        after.worker.stop()


def test_an_end_that_was_not_carried_out_is_reported_as_failed(tmp_path: Path) -> None:
    with children(1) as (child,):
        assert crash(tmp_path, "intent", wish("reclaim", child)) == 9
        assert After(tmp_path, MINE).outcomes() == ["failed"]
        assert child.answers()


@pytest.fixture(params=["unified", "freezer"])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    with children(1) as (child,), boxes(request.param) as (made,):
        made.take(child.pid)
        yield made


def frozen(box: Box) -> bool:
    if "unified" in box.folders:
        return "frozen 1" in box.read("unified", "cgroup.events")
    return box.read("freezer", "freezer.state") == "FROZEN"


def test_a_frozen_group_is_found_again_after_a_kill_and_thawed(box: Box, tmp_path: Path) -> None:
    settings = Settings(own_cgroups=(box.path,), confirm_s=10.0)
    assert crash(tmp_path, "", wish("freeze", box), settings) == 0
    assert frozen(box)
    after = After(tmp_path, settings)
    assert [held.scope for held in after.acting.held()] == [box.scope()]
    after.worker.stop()
    assert not frozen(box)


def test_what_expired_while_nobody_was_there_is_lifted_at_the_next_start(
    box: Box, tmp_path: Path
) -> None:
    settings = Settings(own_cgroups=(box.path,), confirm_s=10.0, hold_s_max=0.001)
    assert crash(tmp_path, "", wish("freeze", box), settings) == 0
    after = After(tmp_path, settings)
    assert (after.acting.held(), frozen(box)) == ([], False)
    assert after.outcomes() == ["done", "expired"]


def test_two_programs_do_not_share_a_ledger(tmp_path: Path) -> None:
    with children(1) as (child,):
        acting = executor(tmp_path, MINE)
        acting.act(wish("freeze", child), CLOCK.now())
        with pytest.raises(Misconfigured, match="state_dir"):
            executor(tmp_path, MINE).held()
        acting.close(CLOCK.now())
