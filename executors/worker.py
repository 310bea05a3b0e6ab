"""Takes commands from the bus, has them carried out, and reports what became of each.

One turn: note new commands by incident → try each incident's oldest, in order → lift what is due →
hand over the reports. Everything is judged by this machine's own clock. What an executor can't do
now is tried again with growing pauses until the command expires; later commands of the same
incident wait behind it, those of others don't.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from bus.messages import ExecutionReport, IsolationCommand
from bus.topics import COMMANDS, REPORTS
from bus.transport import Envelope, Sink, Source
from executors import base
from executors.base import Executor
from executors.dry_run import DryRun
from executors.ledger import Ledger, Verdict, repeated
from runtime import logs
from runtime.clock import Clock, Instant
from runtime.errors import FarsideError, Unavailable
from runtime.metrics import Metrics
from runtime.words import duration_text, plain_text

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How old a command may be, how often one is tried, and how much is kept waiting.

    `age_limit_s` counts from a command's issue by this machine's clock, `ahead_s_max` is how far in
    the future an issue may lie (clocks differ).
    """

    age_limit_s: Positive = 120.0
    ahead_s_max: Positive = 60.0
    pause_s: Positive = 0.5
    pause_s_max: Positive = 10.0
    poll_s: Positive = 0.25
    poll_records_max: Count = 256
    waiting_max: Count = 1_000
    answers_max: Count = 10_000
    reports_max: Count = 10_000


@dataclass
class Waiting:
    """A command on its way to be answered."""

    command: IsolationCommand
    executor: Executor
    due_s: float = 0.0
    tries: int = 0
    last: str = ""


class Answers:
    """Answers by command id, the oldest dropped when there are too many."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit`."""
        self._limit = limit
        self._verdicts: OrderedDict[str, Verdict] = OrderedDict()

    def get(self, command: str) -> Verdict | None:
        """Return the answer to a command, None where none is known."""
        return self._verdicts.get(command)

    def add(self, command: str, verdict: Verdict) -> None:
        """Remember an answer in place of any before."""
        self._verdicts[command] = verdict
        if len(self._verdicts) > self._limit:
            self._verdicts.popitem(last=False)


class ExecutorWorker:
    """The consumer of the commands topic in front of one or more executors.

    `source` reads COMMANDS, `past` (optional) reads REPORTS from its earliest record once, at the
    start, to learn what was answered before.
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
        self._waiting: dict[str, deque[Waiting]] = {}
        self._answered = Answers(self._settings.answers_max)
        self._outbox: deque[ExecutionReport] = deque()
        self._lift_after_s: dict[str, float] = {}
        self._log = logs.get(worker=self.name)
        self._count(metrics or Metrics())

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
        self._unsent = metrics.gauge("farside_reports_waiting", "Reports that the bus didn't take")
        self._dropped = metrics.counter(
            "farside_reports_dropped_total", "Reports given up because too many were waiting"
        )

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then lift everything that is held and report it."""
        self.start()
        while not stop.is_set():
            self._beat()
            try:
                envelopes = self._source.poll(
                    self._settings.poll_records_max, self._settings.poll_s
                )
            except Unavailable as error:
                self._log.warning("commands can't be read now", reason=str(error))
                self._clock.wait(stop, error.retry_after_s)
                envelopes = []
            self.turn(envelopes, self._clock.now())
        self.stop()

    def start(self) -> None:
        """Learn what was answered, settle and list what an earlier run left."""
        if self._past is not None:
            while envelopes := self._past.poll(self._settings.poll_records_max, 0.0):
                self.learn(envelopes)
        now = self._clock.now()
        for name, executor in self._executors.items():
            for sentence in executor.settle(now):
                self._log.warning(sentence, executor=name)
            for held in executor.held():
                self._log.warning(f"left by an earlier run: {held.sentence}", executor=name)
            for case in executor.ledger.untold():
                if self._answered.get(case.command) is not None:
                    executor.ledger.tell(case.command)
                elif case.verdict is not None:
                    self._report(case.command, name, case.verdict)
                    self._outcomes.labels(name, case.action, case.verdict.outcome).inc()
        self._lift_due(now)
        self._send()

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
        for incident in list(self._waiting):
            self._work_off(incident, now)
        self._lift_due(now)
        self._send()

    def stop(self) -> None:
        """End in order: lift everything that is held, report it, hand over what is left."""
        now = self._clock.now()
        for name, executor in self._executors.items():
            holding = executor.held()
            for sentence in executor.close(now):
                self._log.info(sentence, executor=name)
            still = {held.command for held in executor.held()}
            executor.ledger.close()
            for held in holding:
                if held.command not in still:
                    detail = f"{held.action} of {held.scope.label} was lifted at a clean stop"
                    self._no_longer(held.command, name, detail)
        self._send()

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
        queue = self._waiting.setdefault(command.incident, deque())
        if any(waiting.command.id == command.id for waiting in queue):
            return
        if sum(map(len, self._waiting.values())) >= self._settings.waiting_max:
            limit = self._settings.waiting_max
            self._conclude(
                command, executor, Verdict("failed", f"{limit} commands are waiting already")
            )
            return
        queue.append(Waiting(command, executor))

    def _earlier(self, command: IsolationCommand, executor: Executor) -> Verdict | None:
        known = self._answered.get(command.id)
        if known is not None:
            return known
        try:
            return executor.ledger.earlier(command.id)
        except FarsideError:
            return None  # the executor itself says so when it is asked to act

    def _work_off(self, incident: str, now: Instant) -> None:
        """Answer an incident's commands in order, until one must be tried again later."""
        queue = self._waiting[incident]
        while queue:
            self._beat()
            waiting = queue[0]
            verdict = self._judge(waiting, now)
            if verdict is None:
                return
            queue.popleft()
            self._conclude(waiting.command, waiting.executor, verdict)
        del self._waiting[incident]

    def _judge(self, waiting: Waiting, now: Instant) -> Verdict | None:
        """Return the answer to a command, None when it is to be tried again later."""
        command, executor = waiting.command, waiting.executor
        late = self._too_late(waiting, now)
        if late is not None:
            return late
        if self._clock.monotonic() < waiting.due_s:
            return None
        try:
            return self._carry_out(command, executor, now)
        except Unavailable as error:
            self._put_off(waiting, error)
            return None
        except FarsideError as error:
            return Verdict("failed", str(error))

    def _carry_out(self, command: IsolationCommand, executor: Executor, now: Instant) -> Verdict:
        if command.action not in executor.knows:
            return Verdict("refused", base.unknown(executor, command.action))
        if not command.dry_run:
            return executor.act(command, now)
        objection = executor.objection(command)
        if objection:
            return Verdict("refused", f"dry run: would refuse: {objection}")
        return self._rehearsal.act(command, now)

    def _too_late(self, waiting: Waiting, now: Instant) -> Verdict | None:
        command, age_s = waiting.command, now.since(waiting.command.issued)
        if now > command.expires:
            if waiting.tries:
                tries = f"tried {waiting.tries} times until it expired"
                return Verdict("failed", f"{tries}: {waiting.last}")
            return Verdict("expired", f"expired at {command.expires.text()}, before it was tried")
        if waiting.tries == 0 and age_s > self._settings.age_limit_s:
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

    def _put_off(self, waiting: Waiting, error: Unavailable) -> None:
        pause_s = self._settings.pause_s * 2.0 ** min(waiting.tries, 20)
        pause_s = min(max(pause_s, error.retry_after_s), self._settings.pause_s_max)
        waiting.tries += 1
        waiting.last = str(error)
        waiting.due_s = self._clock.monotonic() + pause_s
        self._retries.inc()

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
        self._report(command.id, command.executor, verdict)

    def _report(self, command: str, executor: str, verdict: Verdict) -> None:
        while len(self._outbox) >= self._settings.reports_max:
            self._outbox.popleft()
            self._dropped.inc()
        self._outbox.append(
            ExecutionReport(
                command=command,
                executor=executor,
                outcome=verdict.outcome,
                detail=verdict.detail,
                finished=self._clock.now(),
                held_until=verdict.held_until,
            )
        )

    def _lift_due(self, now: Instant) -> None:
        """Lift what was held until now, and say so; what can't be lifted is tried again."""
        count = 0
        for name, executor in self._executors.items():
            for held in executor.held():
                if held.until > now or self._clock.monotonic() < self._lift_after_s.get(
                    held.command, 0.0
                ):
                    count += 1
                    continue
                try:
                    verdict = executor.lift(held.command, now)
                except FarsideError as error:
                    count += 1
                    pause_s = self._settings.pause_s_max
                    self._lift_after_s[held.command] = self._clock.monotonic() + pause_s
                    self._log.error(f"{held.sentence}, but can't be lifted: {error}", executor=name)
                    continue
                self._lift_after_s.pop(held.command, None)
                self._log.info(verdict.detail, command=held.command, executor=name)
                self._no_longer(held.command, name, verdict.detail)
        self._holds.set(count)

    def _no_longer(self, command: str, executor: str, detail: str) -> None:
        """Report that what a command held is held no more: a later word on the same command."""
        verdict = Verdict("expired", detail)
        self._answered.add(command, verdict)
        self._report(command, executor, verdict)

    def _send(self) -> None:
        """Hand the reports over; what the bus doesn't take now waits for the next turn."""
        sent: list[ExecutionReport] = []
        try:
            while self._outbox:
                report = self._outbox[0]
                self._sink.send(REPORTS, report.command, report)
                sent.append(self._outbox.popleft())
            if sent:
                self._sink.flush(5.0)
        except Unavailable as error:
            self._outbox.extendleft(reversed(sent))
            self._log.warning("reports wait", count=len(self._outbox), reason=str(error))
        else:
            self._told(sent)
        self._unsent.set(len(self._outbox))

    def _told(self, reports: Iterable[ExecutionReport]) -> None:
        for report in reports:
            executor = self._executors.get(report.executor)
            try:
                if executor is not None:
                    executor.ledger.tell(report.command)
            except FarsideError as error:
                self._log.warning("what was told could not be noted", reason=str(error))
