"""The thread around a pure step: poll → step → publish → save state with next offsets.

After a crash between publish and save some outputs are published again; readers recognise them by
their source or their identifier. A failing disk or bus stops nothing that was accepted: the turn is
tried again, and says so.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import structlog
from numpy.typing import NDArray

from bus.messages import Tick, Watermark
from bus.topics import TELEMETRY
from bus.transport import Envelope, Sink, Source
from detector.checkpoint import CheckpointFile
from detector.outputs import Output
from runtime.clock import NANOSECONDS, Clock, Instant
from runtime.errors import FarsideError, Unavailable
from runtime.health import Heartbeat
from runtime.metrics import Metrics

log = structlog.get_logger()


class Core(Protocol):
    """What the scorer and the decider have in common."""

    counts: dict[str, int]

    def step(self, envelopes: Sequence[Envelope]) -> list[Output]:
        """Take records; return what there is to publish."""

    def save(self) -> tuple[bytes, dict[str, NDArray[Any]]]:
        """Return all state."""

    def load(self, plain: bytes, arrays: dict[str, NDArray[Any]]) -> None:
        """Become saved state; ValueError where it does not fit."""

    def forget_places(self) -> None:
        """Know that the log was begun anew, so that its offsets start again."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """poll_max: records a turn; save_s: between two saves; retry_s: pause after a failure."""

    poll_max: int = 2000
    save_s: float = 10.0
    retry_s: float = 1.0
    backoff_max_s: float = 30.0


class Ticker:
    """Writes a tick into a cell's telemetry once a second, so that time moves in silence too."""

    def __init__(self, cell: str, partition: int, sink: Sink, clock: Clock) -> None:
        """Tick for one cell."""
        self._cell = cell
        self._partition = partition
        self._sink = sink
        self._clock = clock
        self._second = 0

    def tick(self) -> float:
        """Write a tick when a second has begun; return the seconds until the next one."""
        now = self._clock.now()
        second = int(now) // NANOSECONDS
        if second > self._second:
            self._sink.send(TELEMETRY, self._cell, Tick(cell=self._cell, time=now), self._partition)
            self._second = second
        return ((second + 1) * NANOSECONDS - int(now)) / NANOSECONDS

    def stamp(self, output: Output) -> Output:
        """Stamp a watermark with the time of the log's head, which only the edge knows."""
        if isinstance(output.message, Watermark):
            head = Instant(max(self._clock.now(), output.message.head_time))
            message = msgspec.structs.replace(output.message, head_time=head)
            return output._replace(message=message)
        return output


REFUSALS = "refusals: "


class Edges(NamedTuple):
    """What connects a core with the world."""

    source: Source
    sink: Sink
    clock: Clock
    metrics: Metrics
    heartbeat: Heartbeat
    checkpoint: CheckpointFile | None = None


def unharmed(point: str) -> None:
    """Let the worker live (tests pass something that does not)."""


class CoreWorker:
    """Runs one core over one source until it is told to stop."""

    def __init__(
        self,
        name: str,
        core: Core,
        edges: Edges,
        settings: WorkerSettings,
        ticker: Ticker | None = None,
        crash: Callable[[str], None] = unharmed,
    ) -> None:
        """Join the parts; `crash(point)` is called at named points, for tests that kill there."""
        self.name = name
        self._core = core
        self._source = edges.source
        self._sink = edges.sink
        self._clock = edges.clock
        self._checkpoint = edges.checkpoint
        self._heartbeat = edges.heartbeat
        self._settings = settings
        self._ticker = ticker
        self._crash = crash
        self._saved_s = edges.clock.monotonic()
        self._saved_ok = True
        self._vitals = Vitals(edges.metrics, name)

    def run(self, stop: threading.Event) -> None:
        """Restore, then turn until `stop`; save once more at the end."""
        self.restore()
        while not stop.is_set():
            self.turn(stop, wait_s=1.0)
            if self._clock.monotonic() - self._saved_s >= self._settings.save_s:
                self.save()
        self.save()

    def turn(self, stop: threading.Event | None = None, wait_s: float = 0.0) -> None:
        """Tick, take what is there (waiting for it at most `wait_s`), and publish what follows."""
        until_tick_s = self._tick()
        envelopes = self._source.poll(self._settings.poll_max, min(wait_s, until_tick_s))
        self._heartbeat.beat()
        if envelopes:
            self._crash("after poll")
            self._turn(envelopes, stop or threading.Event())
        self._vitals.lag(self._source)

    def _tick(self) -> float:
        if self._ticker is None:
            return 1.0
        try:
            return self._ticker.tick()
        except Unavailable as error:
            log.warning("no tick", worker=self.name, why=str(error))
            return error.retry_after_s

    def _turn(self, envelopes: Sequence[Envelope], stop: threading.Event) -> None:
        began_s = self._clock.monotonic()
        outputs = self._core.step(envelopes)
        stepped_s = self._clock.monotonic()
        self._vitals.stepped(envelopes, stepped_s - began_s, self._core.counts, self._clock.now())
        for output in outputs:
            self._publish(output, stop)
        self._sink.flush(10.0)
        self._vitals.published(outputs)
        self._crash("after publish")

    def _publish(self, output: Output, stop: threading.Event) -> None:
        if self._ticker is not None:
            output = self._ticker.stamp(output)
        pause_s = self._settings.retry_s
        while True:
            try:
                self._sink.send(output.topic, output.key, output.message)
            except Unavailable as error:
                log.warning("publishing waits", worker=self.name, why=str(error))
                if self._clock.wait(stop, pause_s):
                    # Not saved, so the turn is repeated from the log at the next start.
                    raise
                pause_s = min(2 * pause_s, self._settings.backoff_max_s)
            else:
                return

    def restore(self) -> None:
        """Take up the newest usable checkpoint, or begin afresh and say why."""
        if self._checkpoint is None:
            return
        found, problems = self._checkpoint.load()
        for problem in problems:
            log.warning("checkpoint", worker=self.name, why=problem)
        if found is None:
            return
        try:
            self._core.load(found.plain, found.arrays)
        except (ValueError, KeyError) as error:
            log.warning("checkpoint", worker=self.name, why=f"it does not fit: {error}")
            return
        same_log = found.header.log == self._source.log()
        if same_log:
            self._source.seek(found.header.places())
        else:
            self._core.forget_places()
        log.info("restored", worker=self.name, same_log=same_log)

    def save(self) -> None:
        """Save state and next offsets; a failure is told once and tried again later."""
        self._saved_s = self._clock.monotonic()
        if self._checkpoint is None:
            return
        plain, arrays = self._core.save()
        self._crash("before save")
        try:
            self._checkpoint.save(self._source.log(), self._source.positions(), plain, arrays)
        except FarsideError as error:
            if self._saved_ok:
                log.warning("checkpoint not saved", worker=self.name, why=str(error))
            self._saved_ok = False
            self._vitals.save_failed()
            return
        self._saved_ok = True
        self._vitals.saved(self._clock.now())


class Vitals:
    """What a core's worker tells Prometheus."""

    def __init__(self, metrics: Metrics, worker: str) -> None:
        """Name the worker in each series."""
        self._worker = worker
        self._told: dict[str, int] = {}
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
        """Note what went out."""
        for output in outputs:
            self._out.labels(self._worker, type(output.message).__name__).inc()

    def lag(self, source: Source) -> None:
        """Note what waits."""
        for (topic, _), waiting in source.lag().items():
            self._lag.labels(self._worker, topic).set(waiting)
        self._skipped.labels(self._worker).set(source.skipped())

    def saved(self, now: Instant) -> None:
        """Note a checkpoint."""
        self._checkpoint_time.labels(self._worker).set(now / NANOSECONDS)

    def save_failed(self) -> None:
        """Note a checkpoint that failed."""
        self._failures.labels(self._worker).inc()
