"""Takes commands from the bus, has them carried out, and reports what became of each.

One turn: note new commands by incident → try each incident's oldest, in order → lift what is due →
hand over the reports. Everything is judged by this machine's own clock, at the moment of trying.
What an executor can't do now is tried again with growing pauses until the command expires; later
commands of the same incident wait behind it, those of others don't.

Nothing is carried out before it is known what was answered: from the executor's own disk and from
the reports topic. A report is kept until the bus has acknowledged it, and sent again otherwise; who
reads it knows a repeat by the command's id.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec

from bus.messages import ExecutionReport, IsolationCommand
from bus.topics import COMMANDS
from bus.transport import Envelope, Sink, Source
from executors import base
from executors.base import Executor
from executors.dry_run import DryRun
from executors.ledger import Ledger, Verdict, repeated
from executors.reporting import Answers, Reports
from runtime import logs
from runtime.clock import Clock, Instant
from runtime.errors import FarsideError, Unavailable
from runtime.metrics import Metrics
from runtime.retries import Lanes, Patience, Retry, Waiting, read_through
from runtime.words import duration_text, plain_text

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Pause = Annotated[float, msgspec.Meta(gt=0, le=3_600)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How old a command may be, how often one is tried, and how much is kept waiting.

    `age_limit_s` counts from a command's issue by this machine's clock, `ahead_s_max` is how far in
    the future an issue may lie (clocks differ). `look_back_s`: a start reads commands from so far
    back; older ones that nobody answered stay unanswered.

    Pauses between tries are drawn from 0 to `pause_s`, doubled each time up to `pause_s_max`.
    `turn_s`: after so long no further command is begun in a turn, so that what is due is lifted.
    `stop_s`: how long a stop waits for the last reports to be acknowledged.
    """

    age_limit_s: Seconds = 120.0
    ahead_s_max: Seconds = 60.0
    look_back_s: Annotated[float, msgspec.Meta(ge=60, le=604_800)] = 3600.0
    pause_s: Pause = 0.5
    pause_s_max: Pause = 10.0
    turn_s: Pause = 2.0
    stop_s: Pause = 3.0
    poll_s: Annotated[float, msgspec.Meta(gt=0, le=10)] = 0.25
    poll_records_max: Count = 256
    waiting_max: Count = 1_000
    answers_max: Count = 10_000
    reports_max: Count = 10_000


class Order(NamedTuple):
    """A command, and the executor that it is for."""

    command: IsolationCommand
    executor: Executor


class ExecutorWorker:
    """The consumer of the commands topic in front of one or more executors.

    `source` reads COMMANDS, `past` (optional) reads REPORTS from its earliest record to its end, at
    the start, to learn what was answered before.
    """

    name = "executor"

    def __init__(
        self,
        executors: Mapping[str, Executor],
        *,
        source: Source,
        sink: Sink,
        clock: Clock,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
        past: Source | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Carry out what is addressed to `executors` by name; `beat` shows life."""
        self._executors = dict(executors)
        self._rehearsal = DryRun(Ledger(None))
        self._source = source
        self._sink = sink
        self._clock = clock
        self._settings = settings or Settings()
        self._past = past
        self._beat = beat
        self._log = logs.get(worker=self.name)
        self._lanes: Lanes[Order] = Lanes(
            self._settings.pause_s, self._settings.pause_s_max, self._settings.waiting_max
        )
        self._answered = Answers(self._settings.answers_max)
        metrics = metrics or Metrics()
        self._reports = Reports(
            self._executors,
            sink=sink,
            clock=clock,
            limit=self._settings.reports_max,
            patience=self._patience("reports can't be sent"),
            metrics=metrics,
        )
        self._lift_again: dict[str, Retry] = {}
        self._lifted: deque[tuple[str, str, str]] = deque()  # command, executor, sentence
        self._reading = self._patience("commands can't be read")
        self._stop = threading.Event()
        self._count(metrics)

    def _patience(self, what: str) -> Patience:
        return Patience(what, self._retry(what), self._log)

    def _retry(self, name: str) -> Retry:
        return Retry(name, self._settings.pause_s, self._settings.pause_s_max)

    def _count(self, metrics: Metrics) -> None:
        self._outcomes = metrics.counter(
            "farside_commands_total",
            "Commands answered, by executor, action and outcome",
            ("executor", "action", "outcome"),
        )
        self._retries = metrics.counter(
            "farside_command_retries_total", "Tries put off because something was away"
        )
        self._holds = metrics.gauge("farside_held", "Things held now: frozen, throttled, limited")

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then lift everything that is held and report it."""
        self._stop = stop
        if self.start(stop):
            while not stop.is_set():
                self._beat()
                self.turn(self._poll(stop), self._clock.now())
        self.stop()

    def start(self, stop: threading.Event | None = None) -> bool:
        """Settle what an earlier run left and learn what was answered; carries out nothing.

        Waits while the bus can't be read, and lifts what is due meanwhile. Returns whether it is
        known what was answered; it isn't when `stop` was set before.
        """
        now = self._clock.now()
        for name, executor in self._executors.items():
            for sentence in executor.settle(now):
                self._log.warning(sentence, executor=name)
            for held in executor.held():
                self._log.warning(f"left by an earlier run: {held.sentence}", executor=name)
        self._lift_due(now)
        if self._past is not None:
            if not read_through(
                self._past,
                self.learn,
                patience=self._patience("nothing is carried out: earlier reports can't be read"),
                clock=self._clock,
                stop=stop or threading.Event(),
                meanwhile=self._meanwhile,
            ):
                return False
            self._past.close()
            self._past = None
        self._report_untold()
        self._report_lifted()
        self._report_unheard()
        self._reports.send()
        return True

    def _meanwhile(self) -> None:
        self._beat()
        self._lift_due(self._clock.now())

    def _report_untold(self) -> None:
        """Report the answers of an earlier run that the topic lacks."""
        for name, executor in self._executors.items():
            for case in executor.ledger.untold():
                if self._answered.get(case.command) is not None:
                    executor.ledger.tell(case.command)
                elif case.verdict is not None:
                    self._answered.add(case.command, case.verdict)
                    self._reports.add(case.command, name, case.verdict)
                    self._outcomes.labels(name, case.action, case.verdict.outcome).inc()

    def _report_unheard(self) -> None:
        """Report what is held by the topic's last word, and was lifted by an earlier run."""
        for command in self._answered.holding():
            for name, executor in self._executors.items():
                case = executor.ledger.case(command)
                if case is not None and case.lifted:
                    detail = f"{case.action} of {case.scope.label} was lifted by an earlier run"
                    self._no_longer(command, name, detail)

    def _poll(self, stop: threading.Event) -> list[Envelope]:
        """Return new commands; while the bus is away, none after as long as a poll takes."""
        if not self._reading.due(self._clock.monotonic()):
            self._clock.wait(stop, self._settings.poll_s)
            return []
        try:
            envelopes = self._source.poll(self._settings.poll_records_max, self._settings.poll_s)
        except Unavailable as error:
            self._reading.failed(error, self._clock.monotonic())
            return []
        self._reading.well(self._clock.monotonic())
        return envelopes

    def learn(self, envelopes: Iterable[Envelope]) -> None:
        """Take answers from the reports topic: what was answered is not carried out again."""
        for envelope in envelopes:
            report = envelope.message
            if isinstance(report, ExecutionReport):
                verdict = Verdict(report.outcome, report.detail, report.held_until)
                self._answered.add(report.command, verdict)

    def turn(self, envelopes: Iterable[Envelope], now: Instant) -> None:
        """Answer what can be answered now, lift what is due, hand over the reports."""
        for envelope in envelopes:
            command = envelope.message
            if envelope.topic == COMMANDS and isinstance(command, IsolationCommand):
                self._admit(command, now)
        end_s = self._clock.monotonic() + self._settings.turn_s
        self._lanes.work(
            self._settle,
            self._clock.monotonic,
            lambda: not self._stop.is_set() and self._clock.monotonic() <= end_s,
        )
        self._lift_due(self._clock.now())
        self._report_lifted()
        self._reports.send()

    def stop(self) -> None:
        """End in order: lift everything that is held, report it, hand over what is left."""
        now = self._clock.now()
        self._report_lifted()
        for name, executor in self._executors.items():
            holding = executor.held()
            for sentence in executor.close(now):
                self._log.info(sentence, executor=name)
            still = {held.command for held in executor.held()}
            for held in holding:
                if held.command not in still:
                    detail = f"{held.action} of {held.scope.label} was lifted at a clean stop"
                    self._no_longer(held.command, name, detail)
        self._reports.send_last(self._settings.stop_s)
        for executor in self._executors.values():
            executor.ledger.close()
        self._source.close()
        self._sink.close(self._settings.stop_s)

    def _admit(self, command: IsolationCommand, now: Instant) -> None:
        executor = self._executors.get(command.executor)
        if executor is None or not executor.reaches(command.scope):
            return  # another executor's, or the same executor's on another node
        earlier = self._earlier(command, executor)
        if earlier is not None:
            # The answer stands on the topic; it is repeated only while somebody may wait for it.
            if now.since(command.issued) <= self._settings.age_limit_s:
                self._conclude(command, executor, repeated(earlier))
            return
        lane = self._lanes.lane(command.incident)
        if any(waiting.item.command.id == command.id for waiting in lane):
            return
        if self._lanes.full:
            limit = self._settings.waiting_max
            full = Verdict("failed", f"{limit} commands are waiting already")
            self._conclude(command, executor, full)
            return
        order = Order(command, executor)
        self._lanes.add(command.incident, command.id, order, self._clock.monotonic())

    def _earlier(self, command: IsolationCommand, executor: Executor) -> Verdict | None:
        known = self._answered.get(command.id)
        if known is not None:
            return known
        try:
            return executor.ledger.earlier(command.id)
        except FarsideError:
            return None  # the executor itself says so when it is asked to act

    def _settle(self, waiting: Waiting[Order], due: bool) -> bool:  # noqa: FBT001  # the lanes'
        """Answer a command, where there is an answer now; return whether there was."""
        self._beat()
        now = self._clock.now()
        command, executor = waiting.item
        verdict = self._too_late(waiting, now)
        if verdict is None and due:
            try:
                verdict = self._carry_out(command, executor, now)
            except Unavailable:
                self._retries.inc()
                raise
            except FarsideError as error:
                verdict = Verdict("failed", str(error))
        if verdict is None:
            return False
        self._conclude(command, executor, verdict)
        return True

    def _carry_out(self, command: IsolationCommand, executor: Executor, now: Instant) -> Verdict:
        if command.action not in executor.knows:
            return Verdict("refused", base.unknown(executor, command.action))
        if not command.dry_run:
            return executor.act(command, now)
        objection = executor.objection(command)
        if objection:
            return Verdict("refused", f"dry run: would refuse: {objection}")
        return self._rehearsal.act(command, now)

    def _too_late(self, waiting: Waiting[Order], now: Instant) -> Verdict | None:
        command, tries = waiting.item.command, waiting.retry.tries
        age_s = now.since(command.issued)
        if now > command.expires:
            if tries:
                times = "once" if tries == 1 else f"{tries} times"
                return Verdict("failed", f"tried {times} until it expired: {waiting.why}")
            expired = base.moment_text(command.expires)
            return Verdict("expired", f"expired at {expired}, before it was tried")
        if tries == 0 and age_s > self._settings.age_limit_s:
            limit_s = self._settings.age_limit_s
            return Verdict(
                "refused",
                f"too old: issued {duration_text(age_s)} ago, at most {duration_text(limit_s)}",
            )
        if -age_s > self._settings.ahead_s_max:
            return Verdict(
                "refused", f"issued {duration_text(-age_s)} in the future by this node's clock"
            )
        return None

    def _conclude(self, command: IsolationCommand, executor: Executor, verdict: Verdict) -> None:
        verdict = verdict.plain()
        self._log.info(
            "command answered",
            command=command.id,
            action=command.action,
            scope=plain_text(command.scope.label, 200),
            outcome=verdict.outcome,
            detail=verdict.detail,
        )
        self._outcomes.labels(executor.name, command.action, verdict.outcome).inc()
        if self._answered.get(command.id) is None:
            self._answered.add(command.id, verdict)
        self._reports.add(command.id, command.executor, verdict)

    def _lift_due(self, now: Instant) -> None:
        """Lift what was held until now, and say so; what can't be lifted is tried again."""
        again: dict[str, Retry] = {}
        count = 0
        for name, executor in self._executors.items():
            for held in executor.held():
                retry = self._lift_again.get(held.command) or self._retry(f"lift {held.command}")
                if held.until > now or not retry.due(self._clock.monotonic()):
                    again[held.command] = retry
                    count += 1
                    continue
                try:
                    verdict = executor.lift(held.command, now)
                except FarsideError as error:
                    again[held.command] = retry.failed(self._clock.monotonic())
                    count += 1
                    self._log.error(f"{held.sentence}, but can't be lifted: {error}", executor=name)
                    continue
                self._log.info(verdict.detail, command=held.command, executor=name)
                self._lifted.append((held.command, name, verdict.detail))
        self._lift_again = again
        self._holds.set(count)

    def _report_lifted(self) -> None:
        while self._lifted:
            self._no_longer(*self._lifted.popleft())

    def _no_longer(self, command: str, executor: str, detail: str) -> None:
        """Report that what a command held is held no more: a later word on the same command."""
        verdict = Verdict("expired", detail)
        self._answered.add(command, verdict)
        self._reports.add(command, executor, verdict)
