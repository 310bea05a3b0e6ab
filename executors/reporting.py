"""What was answered, and the reports of it until the bus has acknowledged them."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from bus.messages import ExecutionReport
from bus.topics import REPORTS
from bus.transport import Receipt, Sink
from executors.base import Executor
from executors.ledger import Verdict
from runtime import logs
from runtime.clock import Clock
from runtime.errors import FarsideError
from runtime.metrics import Metrics
from runtime.retries import Outbox, Patience


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

    def holding(self) -> list[str]:
        """Return the commands that hold something by their last answer."""
        return [name for name, one in self._verdicts.items() if one.held_until is not None]


class Reports:
    """Reports on their way: sent in order, and again until they are acknowledged.

    What the bus has is noted in the executor's ledger; where that is not noted, the next start
    reports it once more.
    """

    def __init__(
        self,
        executors: Mapping[str, Executor],
        *,
        sink: Sink,
        clock: Clock,
        limit: int,
        patience: Patience,
        metrics: Metrics,
    ) -> None:
        """Send to `sink`; keep at most `limit`, the oldest dropped and counted."""
        self._executors = executors
        self._sink = sink
        self._clock = clock
        self._outbox: Outbox[ExecutionReport] = Outbox(self._hand_over, limit, patience)
        self._log = logs.get(worker="executor")
        self._unsent = metrics.gauge("farside_reports_waiting", "Reports that the bus didn't take")
        self._dropped = metrics.counter(
            "farside_reports_dropped_total",
            "Reports given up: too many were waiting, or the bus refused them",
        )

    def add(self, command: str, executor: str, verdict: Verdict) -> None:
        """Take one more."""
        self._outbox.add(
            ExecutionReport(
                command=command,
                executor=executor,
                outcome=verdict.outcome,
                detail=verdict.detail,
                finished=self._clock.now(),
                held_until=verdict.held_until,
            )
        )

    def send(self) -> None:
        """Send what can be sent; what the bus hasn't acknowledged is sent again later."""
        lost = self._outbox.dropped
        self._told(self._outbox.step(self._clock.monotonic()))
        self._note(lost)

    def send_last(self, timeout_s: float) -> None:
        """Send what is left, and wait for its acknowledgement for at most `timeout_s`."""
        lost = self._outbox.dropped
        self._told(self._outbox.last(self._sink.flush, self._clock.monotonic, timeout_s))
        self._note(lost)
        if len(self._outbox):
            count, why = len(self._outbox), self._outbox.why
            self._log.warning("reports are left to the next start", count=count, reason=why)

    def _note(self, dropped_before: int) -> None:
        if self._outbox.dropped > dropped_before:
            self._dropped.inc(self._outbox.dropped - dropped_before)
            self._log.error("reports given up", reason=self._outbox.why)
        self._unsent.set(len(self._outbox))

    def _hand_over(self, report: ExecutionReport) -> Receipt:
        return self._sink.send(REPORTS, report.command, report)

    def _told(self, reports: Iterable[ExecutionReport]) -> None:
        for report in reports:
            executor = self._executors.get(report.executor)
            try:
                if executor is not None:
                    executor.ledger.tell(report.command)
            except FarsideError as error:
                self._log.warning("what was told could not be noted", reason=str(error))
