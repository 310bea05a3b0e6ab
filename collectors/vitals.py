"""The agent's own vital signs: how its collectors do, what was sent, what waits for the bus."""

from collections.abc import Mapping

from bus.messages import LogLine, SampleBatch
from collectors.runner import Answer
from collectors.spool import Spool
from runtime.metrics import Metrics


class Vitals:
    """The agent's own metrics."""

    def __init__(self, metrics: Metrics) -> None:
        """Register them."""
        of_collector = ("collector",)
        self._duration = metrics.histogram(
            "farside_collector_duration_seconds", "How long a collector took.", of_collector
        )
        self._last = metrics.gauge(
            "farside_collector_last_duration_seconds",
            "How long a collector took the last time.",
            of_collector,
        )
        self._success = metrics.gauge(
            "farside_collector_success", "1 when it answered in time, else 0.", of_collector
        )
        self._failures = metrics.counter(
            "farside_collector_failures_total", "Turns in which a collector failed.", of_collector
        )
        self.hangs = metrics.counter(
            "farside_collector_hangs_total", "How often a collector began to hang.", of_collector
        )
        self._records = metrics.counter(
            "farside_collector_records_total",
            "Records that passed through a collector, by outcome.",
            ("collector", "outcome"),
        )
        self._batches = metrics.counter("farside_batches_sent_total", "Batches the bus has taken.")
        self._lines = metrics.counter("farside_lines_sent_total", "Log lines the bus has taken.")
        self._left_out = metrics.counter(
            "farside_samples_left_out_total", "Samples that were not sent, by reason.", ("reason",)
        )
        self._waiting = metrics.gauge("farside_spool_records", "Records that wait for the bus.")
        self._bytes = metrics.gauge("farside_spool_bytes", "Memory of what waits for the bus.")
        self._dropped = metrics.counter(
            "farside_spool_dropped_total", "Records dropped while the bus was away.", ("kind",)
        )
        self._last_totals: dict[tuple[str, str], int] = {}

    def collected(self, name: str, answer: Answer) -> None:
        """Note how a collector did in a turn."""
        self._last.labels(name).set(answer.duration_s)
        self._success.labels(name).set(answer.state == "answered")
        if answer.state != "hanging":
            self._duration.labels(name).observe(answer.duration_s)
        if answer.state == "failed":
            self._failures.labels(name).inc()

    def counted(self, name: str, totals: Mapping[str, int]) -> None:
        """Note what a collector counted itself."""
        for outcome, total in totals.items():
            self._records.labels(name, outcome).inc(
                self._fresh(f"collector {name}", outcome, total)
            )

    def left_out(self, reason: str, count: int) -> None:
        """Note samples that don't travel."""
        if count > 0:
            self._left_out.labels(reason).inc(count)

    def sent(self, record: SampleBatch | LogLine) -> None:
        """Note a record that the bus took."""
        (self._batches if isinstance(record, SampleBatch) else self._lines).inc()

    def spooled(self, kept: Spool) -> None:
        """Note what waits."""
        self._waiting.set(len(kept))
        self._bytes.set(kept.bytes)
        for kind, total in kept.dropped.items():
            self._dropped.labels(kind).inc(self._fresh("dropped", kind, total))

    def _fresh(self, what: str, name: str, total: int) -> int:
        """Return how much a total has grown since it was last asked for."""
        before = self._last_totals.get((what, name), 0)
        self._last_totals[what, name] = total
        return max(total - before, 0)
