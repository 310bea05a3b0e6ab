"""What a core's worker tells Prometheus."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from bus.transport import Envelope, Source
from detector.outputs import Output
from runtime.clock import NANOSECONDS, Instant
from runtime.errors import Unavailable
from runtime.metrics import LabelLimit, Metrics

REFUSALS = "refusals: "
CELLS_MAX = 1000


@runtime_checkable
class Sighted(Protocol):
    """A core that knows how far each cell is judged."""

    def judged(self) -> Mapping[str, Instant]:
        """Return up to when each cell is judged."""

    def blind(self) -> Sequence[str]:
        """Return the cells that are judged too far behind."""


class Vitals:
    """The metrics of one worker."""

    def __init__(self, metrics: Metrics, worker: str) -> None:
        """Name the worker in each series."""
        self._worker = worker
        self._told: dict[str, int] = {}
        self.journal = JournalVitals(metrics, worker)
        self.bus = BusVitals(metrics, worker)
        self.cells = CellVitals(metrics)
        labels = ("worker",)
        self._records = metrics.counter(
            "farside_records_total",
            "Records by what became of them.",
            ("worker", "outcome"),
        )
        self._incidents = metrics.counter("farside_incidents_total", "Incidents that were opened.")
        self._refusals = metrics.counter(
            "farside_refusals_total", "Acts that the decider refused, by reason.", ("reason",)
        )
        self._step = metrics.histogram("farside_step_seconds", "Time of one step.", labels)
        self._age = metrics.gauge(
            "farside_record_age_seconds",
            "Age of the newest record when it was stepped.",
            labels,
        )
        self._lag = metrics.gauge(
            "farside_lag_records",
            "Records that wait to be read.",
            ("worker", "topic"),
        )
        self._skipped = metrics.gauge(
            "farside_skipped_records",
            "Records gone before they were read.",
            labels,
        )
        self._out = metrics.counter(
            "farside_published_total",
            "Messages published by type.",
            ("worker", "type"),
        )
        self._checkpoint_time = metrics.gauge(
            "farside_checkpoint_time_seconds",
            "When state was last saved (Unix time).",
            labels,
        )
        self._failures = metrics.counter(
            "farside_checkpoint_failures_total",
            "Checkpoints that could not be saved.",
            labels,
        )

    def stepped(
        self,
        envelopes: Sequence[Envelope],
        took_s: float,
        counts: dict[str, int],
        now: Instant,
    ) -> None:
        """Note one step."""
        self._step.labels(self._worker).observe(took_s)
        self._age.labels(self._worker).set(max(now.since(envelopes[-1].appended), 0.0))
        for outcome, number in counts.items():
            fresh = number - self._told.get(outcome, 0)
            if fresh > 0:
                self._count(outcome, fresh)
                self._told[outcome] = number

    def _count(self, outcome: str, fresh: int) -> None:
        if outcome == "incidents":
            self._incidents.inc(fresh)
        elif outcome.startswith(REFUSALS):
            self._refusals.labels(outcome.removeprefix(REFUSALS)).inc(fresh)
        else:
            self._records.labels(self._worker, outcome).inc(fresh)

    def published(self, outputs: Sequence[Output]) -> None:
        """Note what was acknowledged."""
        for output in outputs:
            self._out.labels(self._worker, type(output.message).__name__).inc()

    def lag(self, source: Source) -> None:
        """Note what waits."""
        try:
            waiting = source.lag()
        except Unavailable:
            return
        by_topic: dict[str, int] = {}
        for (topic, _), number in waiting.items():
            by_topic[topic] = by_topic.get(topic, 0) + number
        for topic, number in by_topic.items():
            self._lag.labels(self._worker, topic).set(number)
        self._skipped.labels(self._worker).set(source.skipped())

    def saved(self, now: Instant) -> None:
        """Note a checkpoint."""
        self._checkpoint_time.labels(self._worker).set(now / NANOSECONDS)

    def save_failed(self) -> None:
        """Note a checkpoint that failed."""
        self._failures.labels(self._worker).inc()


class BusVitals:
    """What the bus did not let a worker do."""

    def __init__(self, metrics: Metrics, worker: str) -> None:
        """Name the worker in each series."""
        self._worker = worker
        self._refused = metrics.counter(
            "farside_publish_refused_total",
            "Messages that the bus refused for good, by type.",
            ("worker", "type"),
        )
        self._rejects_dropped = metrics.counter(
            "farside_rejects_dropped_total",
            "Rejects that were too many for one second and were not kept.",
            ("worker",),
        )
        self._waits = metrics.counter(
            "farside_publish_retries_total",
            "Tries to publish that left something to do: the bus was away or slow.",
            ("worker",),
        )
        self._unreadable = metrics.counter(
            "farside_bus_unreadable_total",
            "Tries to read that failed: the bus was away.",
            ("worker",),
        )
        self._logs = metrics.counter(
            "farside_logs_begun_anew_total",
            "How often a topic was found deleted and made anew.",
            ("worker",),
        )

    def refused(self, output: Output) -> None:
        """Note what the bus will never take."""
        self._refused.labels(self._worker, type(output.message).__name__).inc()

    def rejects_dropped(self, number: int) -> None:
        """Note rejects that were too many."""
        self._rejects_dropped.labels(self._worker).inc(number)

    def publishing_waits(self) -> None:
        """Note a try to publish that achieved not all."""
        self._waits.labels(self._worker).inc()

    def unreadable(self) -> None:
        """Note a try to read that failed."""
        self._unreadable.labels(self._worker).inc()

    def log_begun_anew(self) -> None:
        """Note that the log is another one."""
        self._logs.labels(self._worker).inc()


class CellVitals:
    """How far each cell is judged."""

    def __init__(self, metrics: Metrics) -> None:
        """Keep the number of cells bounded."""
        self._cell = LabelLimit(CELLS_MAX)
        self._behind = metrics.gauge(
            "farside_judged_behind_seconds",
            "Age of the moment up to which a cell is judged.",
            ("cell",),
        )
        self._blind = metrics.gauge(
            "farside_blind",
            "1 while a cell is judged so far behind that nothing in it acts, else 0.",
            ("cell",),
        )

    def show(self, core: object, now: Instant) -> None:
        """Show each cell, where the core knows."""
        if not isinstance(core, Sighted):
            return
        blind = set(core.blind())
        for cell, judged in core.judged().items():
            label = self._cell(cell)
            self._behind.labels(label).set(max(now.since(judged), 0.0))
            self._blind.labels(label).set(cell in blind)


class JournalVitals:
    """How the journal fares."""

    def __init__(self, metrics: Metrics, worker: str) -> None:
        """Name the worker in each series."""
        self._worker = worker
        self._failures = metrics.counter(
            "farside_journal_failures_total",
            "Tries to write the journal that failed.",
            ("worker",),
        )
        self._bytes = metrics.gauge(
            "farside_journal_bytes", "What the journal keeps on disk.", ("worker",)
        )
        self._repeated = metrics.counter(
            "farside_journal_repeated_total",
            "Turns that were repeated from the journal after a start.",
            ("worker",),
        )
        self._gone = metrics.counter(
            "farside_journal_gone_total",
            "Records that the journal names and the log no longer holds.",
            ("worker",),
        )

    def failed(self) -> None:
        """Note a try that failed."""
        self._failures.labels(self._worker).inc()

    def kept(self, kept_bytes: int) -> None:
        """Note the size on disk."""
        self._bytes.labels(self._worker).set(kept_bytes)

    def repeated(self, turns: int) -> None:
        """Note turns that were repeated."""
        self._repeated.labels(self._worker).inc(turns)

    def gone(self, records: int) -> None:
        """Note records that are named and not there."""
        self._gone.labels(self._worker).inc(records)
