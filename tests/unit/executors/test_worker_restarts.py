"""The executor's worker over a bus that goes away, and over its own restarts at each point.

Whatever happens: nothing is carried out twice, nothing before it is known what was answered, and
the last word on each command reaches the reports topic.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from bus.messages import Action, ExecutionReport, IsolationCommand, Scope
from bus.topics import COMMANDS, REPORTS
from executors.base import Held
from executors.ledger import Change, Ledger, Verdict
from executors.worker import ExecutorWorker, Settings
from runtime.clock import Instant, ManualClock
from runtime.errors import Unavailable
from runtime.metrics import Metrics
from tests.unit.executors.commands import NODE, START, command
from tests.unit.notifiers.unsteady import UnsteadyBus, Writing


class Killed(BaseException):
    """A kill: nobody catches it."""


class Site:
    """The world outside the executor: what was done to it, and the executor's disk."""

    def __init__(self, folder: Path) -> None:
        self.disk = folder / "executor-script.jsonl"
        self.acts: list[str] = []
        self.frozen: set[str] = set()
        self.away = False
        self.kill_at = ""


class Acting:
    """An executor with a ledger on disk, whose acts can be counted, and who can be killed."""

    name = "script"
    knows: frozenset[Action] = frozenset({"freeze", "release"})

    def __init__(self, site: Site) -> None:
        self.site = site
        self.ledger = Ledger(site.disk)

    def reaches(self, scope: Scope) -> bool:
        return scope.node == NODE

    def objection(self, command: IsolationCommand) -> str:  # noqa: ARG002  # the protocol's
        return ""

    def act(self, command: IsolationCommand, now: Instant) -> Verdict:
        earlier = self.ledger.earlier(command.id)
        if earlier is not None:
            return earlier
        if self.site.away:
            raise Unavailable("the scheduler is away")
        self._point("before")
        self.ledger.begin(command, "boot", command.hold_until, now)
        self.ledger.change(command.id, Change(place="/g"))
        self.site.acts.append(command.id)
        self.site.frozen.add(command.id)
        verdict = Verdict("done", "frozen", command.hold_until)
        self.ledger.answer(command, verdict, now)
        self._point("answered")
        return verdict

    def lift(self, command_id: str, now: Instant) -> Verdict:
        self.site.frozen.discard(command_id)
        self.ledger.lift(command_id, "goes on", now)
        return Verdict("done", "goes on")

    def held(self) -> list[Held]:
        return [
            Held(case.command, case.action, case.scope, case.begun, case.until or START.plus(1e6))
            for case in self.ledger.holding()
        ]

    def settle(self, now: Instant) -> list[str]:  # noqa: ARG002  # the protocol's
        return []

    def close(self, now: Instant) -> list[str]:
        return [self.lift(held.command, now).detail for held in self.held()]

    def cannot(self) -> list[str]:
        return []

    def _point(self, name: str) -> None:
        if self.site.kill_at == name:
            self.site.kill_at = ""
            raise Killed


class Desk:
    """A bus and a site; `start` makes the worker anew, as after a kill."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(START)
        self.bus = UnsteadyBus(self.clock)
        self.site = Site(folder)
        self.metrics = Metrics()
        self.beats: Callable[[int], None] = lambda _: None
        self._count = 0
        self.acting = Acting(self.site)
        self.start()

    def start(self) -> None:
        """Make the worker anew, as after a kill."""
        self.acting.ledger.close()
        self.acting = Acting(self.site)
        self.commands = self.bus.source([COMMANDS])
        self.worker = ExecutorWorker(
            {"script": self.acting},
            source=self.commands,
            sink=self.bus.sink(),
            clock=self.clock,
            settings=Settings(pause_s=0.5, pause_s_max=2.0),
            metrics=self.metrics,
            past=self.bus.source([REPORTS]),
            beat=self._beat,
        )

    def _beat(self) -> None:
        self._count += 1
        self.beats(self._count)

    def give(self, *commands: IsolationCommand) -> None:
        for one in commands:
            self.bus.bus.sink().send(COMMANDS, one.incident, one)

    def turn(self) -> None:
        self.worker.turn(self.commands.poll(1_000, 0.0), self.clock.now())

    def turns(self, count: int = 10) -> None:
        """Take turns while a second passes before each."""
        for _ in range(count):
            self.clock.advance(1.0)
            self.turn()

    def reports(self) -> list[tuple[str, str]]:
        found = self.bus.messages(REPORTS)
        return [(one.command, one.outcome) for one in found if isinstance(one, ExecutionReport)]

    def last_words(self) -> dict[str, str]:
        """Return what a compacted topic keeps."""
        return dict(self.reports())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def freeze(name: str = "c1", hold_s: float = 1_000.0) -> IsolationCommand:
    wish = command(name, incident=f"i-{name}", expires_s=600.0)
    return structs.replace(wish, hold_until=START.plus(hold_s))


def answered(name: str) -> ExecutionReport:
    return ExecutionReport(
        command=name, executor="script", outcome="done", detail="by another", finished=START
    )


def test_nothing_is_carried_out_before_the_reports_can_be_read(desk: Desk) -> None:
    desk.bus.bus.sink().send(REPORTS, "c1", answered("c1"))
    desk.give(freeze("c1"), freeze("c2"))
    desk.bus.reads = False

    def beats(count: int) -> None:
        desk.bus.reads = count > 30
        assert desk.site.acts == []

    desk.beats = beats
    assert desk.worker.start()
    desk.beats = lambda _: None
    desk.turn()
    assert desk.site.acts == ["c2"]


def test_reports_that_come_only_after_empty_polls_are_known_before_anything_is_carried_out(
    desk: Desk,
) -> None:
    desk.bus.bus.sink().send(REPORTS, "c1", answered("c1"))
    desk.give(freeze("c1"))
    desk.bus.empty_polls = 5
    desk.worker.start()
    desk.turn()
    assert desk.site.acts == []


def test_who_is_stopped_while_waiting_for_the_reports_carries_out_nothing_and_lifts_what_is_held(
    desk: Desk,
) -> None:
    desk.give(freeze("c1"))
    desk.worker.start()
    desk.turn()
    desk.give(freeze("c2"))
    desk.start()
    desk.bus.reads = False
    stop = threading.Event()

    def beats(count: int) -> None:
        if count > 30:
            stop.set()

    desk.beats = beats
    desk.worker.run(stop)
    assert (desk.site.acts, desk.site.frozen) == (["c1"], set())


def test_what_is_held_is_lifted_in_time_while_the_reports_can_not_be_read(desk: Desk) -> None:
    desk.give(freeze("c1", hold_s=60.0))
    desk.worker.start()
    desk.turn()
    desk.start()
    desk.bus.reads = False

    def beats(_: int) -> None:
        desk.bus.reads = desk.clock.now() > START.plus(120)

    desk.beats = beats
    desk.worker.start()
    assert desk.site.frozen == set()
    assert desk.reports() == [("c1", "done"), ("c1", "expired")]


@pytest.mark.parametrize("point", ["before", "answered"])
def test_a_kill_around_the_act_carries_out_once_and_reports(desk: Desk, point: str) -> None:
    desk.worker.start()
    desk.give(freeze("c1"))
    desk.site.kill_at = point
    with pytest.raises(Killed):
        desk.turn()
    desk.start()
    desk.worker.start()
    desk.turns(3)
    assert desk.site.acts == ["c1"]
    assert desk.last_words()["c1"] in {"done", "already"}
    desk.worker.stop()


@pytest.mark.parametrize("writes", ["away", "silent", "loses", "deaf"])
def test_a_kill_before_the_report_is_acknowledged_carries_out_once_and_reports(
    desk: Desk, writes: Writing
) -> None:
    desk.worker.start()
    desk.give(freeze("c1"))
    desk.bus.writes = writes
    desk.turn()
    desk.start()  # what was on its way is lost with the process
    desk.bus.writes = "takes"
    desk.worker.start()
    desk.turns(3)
    assert desk.site.acts == ["c1"]
    assert ("c1", "done") in desk.reports()


def test_a_command_that_waits_at_a_kill_is_carried_out_by_the_next_start(desk: Desk) -> None:
    desk.worker.start()
    desk.give(freeze("c1"))
    desk.site.away = True
    desk.turns(3)
    desk.start()
    desk.worker.start()
    desk.turns(2)
    desk.site.away = False
    desk.turns(5)
    assert (desk.site.acts, desk.reports()) == (["c1"], [("c1", "done")])


@pytest.mark.parametrize("writes", ["away", "silent", "loses", "deaf"])
def test_reports_arrive_when_the_bus_is_back_and_nothing_is_carried_out_again(
    desk: Desk, writes: Writing
) -> None:
    desk.worker.start()
    desk.bus.writes = writes
    desk.give(freeze("c1"), freeze("c2", hold_s=3.0))
    desk.turns(8)
    desk.bus.writes = "takes"
    desk.bus.answer()
    desk.turns(8)
    assert desk.site.acts == ["c1", "c2"]
    assert desk.last_words() == {"c1": "done", "c2": "expired"}
    assert desk.metrics.value("farside_reports_waiting") == 0


def test_a_report_counts_as_told_only_when_it_is_acknowledged(desk: Desk) -> None:
    desk.worker.start()
    desk.bus.writes = "silent"
    desk.give(freeze("c1"))
    desk.turns(2)
    assert [case.command for case in desk.acting.ledger.untold()] == ["c1"]
    desk.bus.answer()
    desk.turns(1)
    assert desk.acting.ledger.untold() == []


def test_a_report_that_the_bus_refuses_for_good_is_counted_and_others_go_on(desk: Desk) -> None:
    desk.worker.start()
    desk.bus.writes = "refuses"
    desk.give(freeze("c1"))
    desk.turns(1)
    desk.bus.writes = "takes"
    desk.give(freeze("c2"))
    desk.turns(1)
    assert desk.reports() == [("c2", "done")]
    assert desk.metrics.value("farside_reports_dropped_total") == 1


def test_a_lift_that_was_not_heard_of_is_told_by_the_next_start(desk: Desk) -> None:
    desk.worker.start()
    desk.give(freeze("c1"))
    desk.turn()
    desk.bus.writes = "away"
    desk.worker.stop()
    assert desk.last_words() == {"c1": "done"}
    desk.start()
    desk.bus.writes = "takes"
    desk.worker.start()
    assert (desk.site.frozen, desk.last_words()) == (set(), {"c1": "expired"})


def test_while_commands_can_not_be_read_what_waits_is_tried_and_what_is_due_is_lifted(
    desk: Desk,
) -> None:
    desk.give(freeze("c1", hold_s=5.0), freeze("c2"))
    stop = threading.Event()

    def beats(_: int) -> None:
        now_s = desk.clock.monotonic()
        desk.site.away = 1 < now_s < 10
        desk.bus.reads = now_s < 3 or now_s > 30
        if 2 < now_s < 3 and len(desk.site.acts) == 2:
            desk.give(freeze("c3"))
        if now_s > 40:
            stop.set()
        desk.clock.advance(0.25)

    desk.beats = beats
    desk.worker.run(stop)
    assert desk.site.acts == ["c1", "c2", "c3"]
    assert desk.last_words() == {"c1": "expired", "c2": "expired", "c3": "expired"}


def test_a_command_is_judged_by_the_clock_at_the_moment_of_trying(desk: Desk) -> None:
    desk.worker.start()
    desk.give(freeze("c1"), command("c2", incident="i-c2", expires_s=30.0))

    def beats(_: int) -> None:
        if desk.site.acts:
            desk.clock.advance(31.0)  # the first act took so long

    desk.beats = beats
    desk.turns(3)
    assert desk.site.acts == ["c1"]
    assert desk.last_words()["c2"] == "expired"


def test_a_turn_is_bounded_so_that_what_is_due_is_lifted(desk: Desk) -> None:
    desk.worker.start()
    desk.give(*(freeze(f"c{number}") for number in range(10)))
    desk.beats = lambda _: desk.clock.advance(1.0)  # each act takes a second
    desk.turn()
    assert len(desk.site.acts) < 5
    desk.turns(9)
    assert len(desk.site.acts) == 10


def test_a_record_that_is_no_message_is_passed_over(desk: Desk) -> None:
    desk.worker.start()
    desk.bus.bus.append(COMMANDS, "x", b"\xc1\xff")
    desk.bus.bus.append(REPORTS, "x", b"\xc1\xff")
    desk.give(freeze("c1"))
    desk.start()
    desk.worker.start()
    desk.turn()
    assert desk.site.acts == ["c1"]


def test_its_readers_are_given_back_at_the_end(desk: Desk) -> None:
    desk.worker.start()
    desk.worker.stop()
    assert desk.commands.closed
