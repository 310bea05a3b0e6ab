"""The agent's own vital signs: how its collectors do, what was sent, what waits for the bus."""

from collections.abc import Mapping

from collectors.runner import Answer
from collectors.sending import Sending
from collectors.spool import Spool
from runtime.clock import Instant
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
        self._waiting = metrics.gauge(
            "farside_spool_records",
            "Records that the bus has not acknowledged, by place: memory, disk, flight.",
            ("place",),
        )
        self._bytes = metrics.gauge("farside_spool_bytes", "Memory of what waits for the bus.")
        self._disk_bytes = metrics.gauge(
            "farside_spool_disk_bytes", "Room on disk of what waits for the bus."
        )
        self._oldest = metrics.gauge(
            "farside_spool_oldest_seconds", "Age of the oldest record that waits for the bus."
        )
        self._dropped = metrics.counter(
            "farside_spool_dropped_total", "Records dropped while the bus was away.", ("kind",)
        )
        self._disk_failures = metrics.counter(
            "farside_spool_disk_failures_total", "Tries to keep records on disk that failed."
        )
        self._damaged = metrics.counter(
            "farside_spool_damaged_total",
            "Places on disk that held no record: torn by a crash, or damaged.",
        )
        self._lost = metrics.counter(
            "farside_spool_lost_total",
            "Records of an earlier start that a kill took from memory, about.",
        )
        self._bus_away = metrics.gauge("farside_bus_away", "1 while the bus takes no records.")
        self._given_up = metrics.counter(
            "farside_sends_given_up_total", "Records that were given up on their way and kept."
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

    def sending(self, sending: Sending, kept: Spool, now: Instant) -> None:
        """Note what was sent, and what waits."""
        counts = sending.counts
        self._batches.inc(self._fresh("sent", "batch", counts["batch"]))
        self._lines.inc(self._fresh("sent", "line", counts["line"]))
        self.left_out("refused by the bus", self._fresh("sent", "refused", counts["refused"]))
        self._given_up.inc(self._fresh("sent", "given up", counts["given up"]))
        self._bus_away.set(sending.away)
        for place, records in kept.count()._asdict().items():
            self._waiting.labels(place).set(records)
        self._bytes.set(kept.bytes)
        self._disk_bytes.set(kept.disk_bytes)
        oldest = kept.oldest()
        self._oldest.set(0.0 if oldest is None else max(now.since(oldest), 0.0))
        for kind, total in kept.dropped.items():
            self._dropped.labels(kind).inc(self._fresh("dropped", kind, total))
        self._disk_failures.inc(self._fresh("spool", "failures", kept.disk_failures))
        self._damaged.inc(self._fresh("spool", "damaged", kept.damaged))
        self._lost.inc(self._fresh("spool", "lost", kept.lost))

    def _fresh(self, what: str, name: str, total: int) -> int:
        """Return how much a total has grown since it was last asked for."""
        before = self._last_totals.get((what, name), 0)
        self._last_totals[what, name] = total
        return max(total - before, 0)
