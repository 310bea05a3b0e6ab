"""The consumer of commands: what is answered, in which order, how often, and how late."""

import itertools
import threading
from collections.abc import Callable

import pytest

from bus.memory import MemoryBus
from bus.messages import ExecutionReport, IsolationCommand, Message, Proposal, Refusal
from bus.topics import AUDIT, COMMANDS, REPORTS
from bus.transport import Envelope, Receipt
from executors.ledger import Verdict
from executors.worker import ExecutorWorker, Settings
from runtime.clock import ManualClock
from runtime.errors import NotPermitted, Unavailable
from runtime.metrics import Metrics
from tests.unit.executors.commands import START, Script, command


class Desk:
    """A worker with its bus, a clock that is moved by hand, and the reports so far."""

    def __init__(self, script: Script | None = None, settings: Settings | None = None) -> None:
        self.clock = ManualClock(START)
        self.script = script or Script()
        self.bus = MemoryBus(self.clock)
        self.commands = self.bus.source([COMMANDS, AUDIT])
        self.metrics = Metrics()
        self.sink = Sink(self.bus)
        self.worker = ExecutorWorker(
            {"script": self.script},
            source=self.commands,
            sink=self.sink,
            clock=self.clock,
            settings=settings,
            metrics=self.metrics,
            past=self.bus.source([REPORTS]),
        )
        self._reports = self.bus.source([REPORTS])

    def turn(self, *messages: Message, topic: str = COMMANDS) -> list[tuple[str, str]]:
        """Give messages, take a turn, and return the new reports as (command, outcome)."""
        for message in messages:
            self.bus.sink().send(topic, "i1", message)
        self.worker.turn(self.commands.poll(1_000, 0.0), self.clock.now())
        return [(report.command, report.outcome) for report in self.reports()]

    def reports(self) -> list[ExecutionReport]:
        """Return the reports since the last question."""
        return [e.message for e in self._reports.poll(1_000, 0.0) if is_report(e)]  # type: ignore[misc]

    def wait(self, duration_s: float) -> None:
        self.clock.advance(duration_s)


def is_report(envelope: Envelope) -> bool:
    return isinstance(envelope.message, ExecutionReport)


class Sink:
    """A sink that can be taken away."""

    def __init__(self, bus: MemoryBus) -> None:
        self._sink = bus.sink()
        self.away = False

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Receipt:
        if self.away:
            raise Unavailable("the bus is away")
        return self._sink.send(topic, key, message, partition)

    def flush(self, timeout_s: float) -> None:
        if self.away:
            raise Unavailable("the bus is away")
        self._sink.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        self._sink.close(timeout_s)


class Away:
    """Answers "not now" so many times, then carries out; keeps when it was asked."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.tries: list[str] = []

    def __call__(self, given: IsolationCommand) -> Verdict:
        self.tries.append(given.id)
        if self.left > 0:
            self.left -= 1
            raise Unavailable("the scheduler is away", retry_after_s=1.0)
        return Verdict("done", "done")


def test_a_command_is_carried_out_and_reported_under_its_id() -> None:
    desk = Desk()
    desk.turn(command("c1"))
    (envelope,) = desk.bus.source([REPORTS]).poll(10, 0.0)
    assert envelope.key == "c1"
    assert envelope.message == ExecutionReport(
        command="c1", executor="script", outcome="done", detail="done", finished=START
    )


def test_what_is_not_for_it_is_passed_over() -> None:
    desk = Desk()
    given = command("c1")
    messages = (
        command("other-executor", executor="slurm"),
        command("other-node", node="n2"),
        Proposal(command=given, until=START.plus(60)),
        Refusal(id="r", scope=given.scope, incident="i", action="freeze", reason="no", time=START),
    )
    assert desk.turn(*messages) == []
    assert desk.turn(given, topic=AUDIT) == []
    assert desk.script.acted == []


@pytest.mark.parametrize(
    ("late_s", "outcome"),
    [(29.0, "done"), (31.0, "expired"), (130.0, "expired"), (-70.0, "refused")],
)
def test_a_command_is_judged_by_this_machines_own_clock(late_s: float, outcome: str) -> None:
    desk = Desk()
    given = command("c1", now=START.plus(-late_s))
    assert desk.turn(given) == [("c1", outcome)]


def test_what_was_issued_too_long_ago_is_refused_though_it_has_not_expired() -> None:
    desk = Desk(settings=Settings(age_limit_s=60.0))
    assert desk.turn(command("c1", now=START.plus(-61), expires_s=600)) == [("c1", "refused")]


def test_an_action_that_the_executor_does_not_know_is_refused_with_a_reason() -> None:
    desk = Desk()
    desk.turn(command("c1", "drain"))
    (envelope,) = desk.bus.source([REPORTS]).poll(10, 0.0)
    report = envelope.message
    assert isinstance(report, ExecutionReport)
    assert (report.outcome, report.detail) == (
        "refused", "the script executor does not know drain; it knows freeze, reclaim, release",
    )  # fmt: skip


def test_what_can_not_be_done_now_is_tried_again_with_growing_pauses() -> None:
    scheduler = Away(4)
    desk = Desk(Script(scheduler), Settings(pause_s=0.5, pause_s_max=3.0))
    desk.turn(command("c1"))
    tried_s = [0.0]
    while desk.clock.monotonic() < 29:
        desk.wait(0.5)
        desk.worker.turn([], desk.clock.now())
        tried_s += [desk.clock.monotonic()] * (len(scheduler.tries) - len(tried_s))
    pauses_s = [later - earlier for earlier, later in itertools.pairwise(tried_s)]
    # The scheduler asks for 1 s, the draw adds up to 0.5, 1, 2 and at most 3 s, a step up to 0.5.
    assert all(1 <= p <= 1.5 + most for p, most in zip(pauses_s, (0.5, 1, 2, 3), strict=True))
    assert [report.outcome for report in desk.reports()] == ["done"]


def test_what_can_not_be_done_before_it_expires_has_failed() -> None:
    desk = Desk(Script(Away(10_000)))
    desk.turn(command("c1"))
    desk.wait(31)
    desk.worker.turn([], desk.clock.now())
    (report,) = desk.reports()
    assert report.outcome == "failed"
    assert "the scheduler is away" in report.detail


def test_an_incidents_commands_keep_their_order_and_others_do_not_wait() -> None:
    desk = Desk(Script(Away(1)))
    given = [
        command("c1"),
        command("c2", "release"),
        command("c3", incident="i2"),
    ]
    assert desk.turn(*given) == [("c3", "done")]
    desk.wait(2)
    assert desk.turn() == [("c1", "done"), ("c2", "done")]


def test_every_failure_becomes_an_outcome_with_a_sentence() -> None:
    def answer(_: IsolationCommand) -> Verdict:
        raise NotPermitted("this user may not do that")

    desk = Desk(Script(answer))
    desk.turn(command("c1"))
    (envelope,) = desk.bus.source([REPORTS]).poll(10, 0.0)
    report = envelope.message
    assert isinstance(report, ExecutionReport)
    assert (report.outcome, report.detail) == ("failed", "this user may not do that")


def test_a_command_that_comes_twice_is_carried_out_once() -> None:
    desk = Desk()
    assert desk.turn(command("c1"), command("c1")) == [("c1", "done")]
    assert desk.turn(command("c1")) == [("c1", "already")]
    assert desk.script.acted == ["c1"]


def test_what_the_reports_topic_tells_was_answered_is_not_carried_out_again() -> None:
    desk = Desk()
    report = ExecutionReport(
        command="c1", executor="script", outcome="done", detail="frozen", finished=START
    )
    desk.bus.sink().send(REPORTS, "c1", report)
    desk.worker.start()
    assert desk.turn(command("c1")) == [("c1", "done"), ("c1", "already")]
    assert desk.script.acted == []


def test_an_old_command_that_was_answered_is_not_answered_once_more() -> None:
    desk = Desk()
    desk.turn(command("c1"))
    desk.wait(1_000)
    assert desk.turn(command("c1")) == []


def test_a_dry_run_is_told_and_not_carried_out() -> None:
    desk = Desk()
    assert desk.turn(command("c1", dry_run=True)) == [("c1", "done")]
    desk.script.objecting = "not ours"
    assert desk.turn(command("c2", dry_run=True)) == [("c2", "refused")]
    assert desk.script.acted == []


def held_for(duration_s: float) -> Callable[[IsolationCommand], Verdict]:
    return lambda _: Verdict("done", "frozen", START.plus(duration_s))


def test_what_is_held_is_lifted_when_its_time_is_over_and_that_is_reported() -> None:
    desk = Desk(Script(held_for(10)))
    assert desk.turn(command("c1")) == [("c1", "done")]
    desk.wait(9)
    assert desk.turn() == []
    desk.wait(1)
    assert desk.turn() == [("c1", "expired")]
    assert desk.script.holds == {}


def test_what_can_not_be_lifted_is_tried_again_and_holds_nobody_up() -> None:
    desk = Desk(Script(held_for(1)), Settings(pause_s_max=5.0))
    asked = []

    def lifting(name: str) -> None:
        asked.append(name)
        if len(asked) < 2:
            raise Unavailable("the group does not thaw")

    desk.script.lifting = lifting
    desk.turn(command("c1"))
    desk.wait(2)
    assert desk.turn(command("c2", incident="i2", now=desk.clock.now())) == [
        ("c2", "done"), ("c2", "expired"),
    ]  # fmt: skip
    desk.wait(5)
    assert desk.turn() == [("c1", "expired")]


def test_reports_wait_while_the_bus_is_away() -> None:
    desk = Desk()
    desk.sink.away = True
    assert desk.turn(command("c1")) == []
    assert desk.metrics.value("farside_reports_waiting") == 1
    desk.sink.away = False
    desk.wait(2)
    assert desk.turn() == [("c1", "done")]


def test_more_commands_than_may_wait_fail_with_a_reason() -> None:
    desk = Desk(Script(Away(1_000)), Settings(waiting_max=2))
    answers = desk.turn(*(command(f"c{number}", incident=f"i{number}") for number in range(4)))
    assert answers == [("c2", "failed"), ("c3", "failed")]


def test_a_clean_stop_lifts_everything_and_reports_it() -> None:
    desk = Desk(Script(held_for(1_000)))
    desk.bus.sink().send(COMMANDS, "i1", command("c1"))
    stop = threading.Event()

    def answer(given: IsolationCommand) -> Verdict:
        stop.set()
        return held_for(1_000)(given)

    desk.script.answer = answer
    desk.worker.run(stop)
    assert desk.script.holds == {}
    assert [(r.command, r.outcome) for r in desk.reports()] == [("c1", "done"), ("c1", "expired")]


def test_outcomes_are_counted_by_executor_action_and_outcome() -> None:
    desk = Desk()
    desk.turn(command("c1"), command("c2", "drain"))
    assert [
        desk.metrics.value(
            "farside_commands_total", executor="script", action=action, outcome=outcome
        )
        for action, outcome in (("freeze", "done"), ("drain", "refused"))
    ] == [1, 1]
