"""The thread around a pure step: poll → step → journal → publish → save state with next offsets.

After a crash between publish and save some outputs are published again; readers recognise them by
their source or their identifier. A failing disk or bus stops nothing that was accepted: the turn is
tried again, and says so once. Nothing is saved while something of a turn is not acknowledged, so a
worker that is asked to stop in between repeats that turn at its next start.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

import msgspec
import structlog
from numpy.typing import NDArray

from bus.messages import Reject
from bus.topics import REJECTS
from bus.transport import Envelope, Place, Sink, Source
from detector.checkpoint import Checkpoint, CheckpointFile, unharmed
from detector.journal import Journal, Turn, log_mark, ranges_of
from detector.outbox import Outbox, RejectGate
from detector.outputs import Output
from detector.repeating import Hands, Repeat
from detector.ticker import Ticker as Ticker  # noqa: PLC0414  # part of how a worker is made
from detector.vitals import Vitals
from runtime.clock import NANOSECONDS, Clock
from runtime.errors import FarsideError, Unavailable
from runtime.health import Heartbeat
from runtime.metrics import Metrics

log = structlog.get_logger()
T = TypeVar("T")

FLUSH_S = 1.0  # how long one look for acknowledgements takes; a stop is noticed in between
BEAT_S = 5.0  # the longest wait without a sign of life
UNSYNCED_MAX = 256  # turns without output that may wait for the journal's next sync


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


Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """poll_max: records a turn; save_s: between two saves.

    retry_s is the pause after a failure, doubled up to backoff_max_s; rejects_per_s bounds what is
    kept of records that are no messages.
    """

    poll_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2000
    save_s: Seconds = 10.0
    retry_s: Seconds = 1.0
    backoff_max_s: Seconds = 30.0
    rejects_per_s: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 50


class Edges(NamedTuple):
    """What connects a core with the world."""

    source: Source
    sink: Sink
    clock: Clock
    metrics: Metrics
    heartbeat: Heartbeat
    checkpoint: CheckpointFile | None = None
    journal: Journal | None = None


class Begin(NamedTuple):
    """What a core and its reader were before anything was read."""

    plain: bytes
    arrays: dict[str, NDArray[Any]]
    positions: dict[Place, int]


class Told:
    """Says a trouble once, and once that it is over."""

    def __init__(self, worker: str) -> None:
        """Name the worker in each line."""
        self._worker = worker
        self._troubles: set[str] = set()

    def trouble(self, what: str, why: object) -> None:
        """Say what is wrong, unless that was said."""
        if what not in self._troubles:
            self._troubles.add(what)
            log.warning(what, worker=self._worker, why=str(why))

    def over(self, what: str) -> None:
        """Say that it is over, if it was said."""
        if what in self._troubles:
            self._troubles.discard(what)
            log.info("over", worker=self._worker, what=what)


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
        """Join the parts; `crash(point)` is called at named points, for tests that kill there.

        The points: "after poll", "after journal", "after publish", "before save", "during save".
        """
        self.name = name
        self._core = core
        self._source = edges.source
        self._clock = edges.clock
        self._checkpoint = edges.checkpoint
        self._journal = edges.journal
        self._heartbeat = edges.heartbeat
        self._settings = settings
        self._ticker = ticker
        self._crash = crash
        self._outbox = Outbox(edges.sink)
        self._gate = RejectGate(settings.rejects_per_s)
        self._vitals = Vitals(edges.metrics, name)
        self._told = Told(name)
        self._begin: Begin | None = None
        self._log: str | None = None
        self._turn_number = 0
        self._saved_turn = 0
        self._saved_s = edges.clock.monotonic()
        self._looked_s = float("-inf")

    def run(self, stop: threading.Event) -> None:
        """Restore, then turn until `stop`; save once more at the end."""
        if not self.restore(stop):
            return
        while not stop.is_set():
            self.turn(stop, wait_s=1.0)
            if self._clock.monotonic() - self._saved_s >= self._settings.save_s:
                self.save()
        self.save()

    # --- one turn ------------------------------------------------------------------------------

    def turn(self, stop: threading.Event | None = None, wait_s: float = 0.0) -> None:
        """Tick, take what is there (waiting for it at most `wait_s`), and publish what follows."""
        stop = stop or threading.Event()
        self._heartbeat.beat()
        until_tick_s = self._tick()
        if self._owes():
            self._finish(stop)
            return
        try:
            envelopes = self._source.poll(self._settings.poll_max, min(wait_s, until_tick_s))
            self._notice_log()
        except Unavailable as error:
            self._told.trouble("the bus can't be read", error)
            self._vitals.bus.unreadable()
            self._pause(stop, error.retry_after_s)
            return
        finally:
            self._look()
        self._told.over("the bus can't be read")
        if envelopes:
            self._crash("after poll")
            self._turn(envelopes, stop)

    def _tick(self) -> float:
        if self._ticker is None:
            return 1.0
        try:
            until_s = self._ticker.tick()
        except FarsideError as error:
            self._told.trouble("no tick", error)
            return 1.0
        self._told.over("no tick")
        return until_s

    def _notice_log(self) -> None:
        """Notice that a topic was deleted and made anew: offsets from before mean nothing now."""
        try:
            found = self._source.log()
        except Unavailable:
            return  # what was read is judged all the same
        before, self._log = self._log, found
        if before is not None and before != found:
            log.warning("the log was begun anew", worker=self.name, before=before, now=found)
            self._core.forget_places()
            self._vitals.bus.log_begun_anew()
            self._saved_s = float("-inf")  # what is saved names a log that is gone

    def _look(self) -> None:
        """Show how far we are, once a second."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s >= 1.0:
            self._looked_s = now_s
            self._vitals.lag(self._source)
            self._vitals.cells.show(self._core, self._clock.now())

    def _turn(self, envelopes: Sequence[Envelope], stop: threading.Event) -> None:
        self._turn_number += 1
        outputs = self._step(envelopes)
        if self._journal is not None:
            mark = log_mark(self._log or "")
            self._journal.append(Turn(self._turn_number, mark, ranges_of(envelopes)))
        self._outbox.put(outputs)
        self._finish(stop)

    def _step(self, envelopes: Sequence[Envelope]) -> list[Output]:
        """Step, and return what there is to publish, what could not be decoded included."""
        began_s = self._clock.monotonic()
        outputs = self._core.step(envelopes)
        took_s = self._clock.monotonic() - began_s
        now = self._clock.now()
        self._vitals.stepped(envelopes, took_s, self._core.counts, now)
        outputs += _rejects(envelopes, outputs)
        kept = self._gate.let(outputs, int(now) // NANOSECONDS)
        if len(kept) < len(outputs):
            self._vitals.bus.rejects_dropped(len(outputs) - len(kept))
        return kept if self._ticker is None else [self._ticker.stamp(one) for one in kept]

    # --- journal and publishing ----------------------------------------------------------------

    def _owes(self) -> bool:
        """Tell whether something of a turn is not acknowledged, so that nothing may be saved."""
        return len(self._outbox) > 0

    def _finish(self, stop: threading.Event) -> None:
        """Sync the journal, then publish; what can't be done by `stop` stays owed."""
        if not self._write_journal(stop):
            return
        self._deliver(stop)
        if not self._owes():
            self._crash("after publish")

    def _write_journal(self, stop: threading.Event) -> bool:
        """Have the journal on disk where something depends on it; False where that can't be."""
        journal = self._journal
        if journal is None:
            return True
        pause_s = self._settings.retry_s
        while self._owes() or journal.unsynced >= UNSYNCED_MAX:
            if self._sync(journal):
                break
            if self._pause(stop, pause_s):
                return False
            pause_s = min(2 * pause_s, self._settings.backoff_max_s)
        self._crash("after journal")
        return True

    def _sync(self, journal: Journal) -> bool:
        try:
            journal.sync()
        except FarsideError as error:
            self._told.trouble("the journal can't be written, so nothing is published", error)
            self._vitals.journal.failed()
            return False
        self._told.over("the journal can't be written, so nothing is published")
        return True

    def _deliver(self, stop: threading.Event) -> None:
        """Publish until everything is acknowledged, or until `stop`."""
        pause_s = self._settings.retry_s
        while self._owes():
            delivered = self._outbox.deliver(FLUSH_S)
            self._heartbeat.beat()
            self._vitals.published(delivered.taken)
            for refused in delivered.refused:
                log.error("the bus refuses a message", worker=self.name, topic=refused.output.topic,
                          key=refused.output.key, why=refused.why)  # fmt: skip
                self._vitals.bus.refused(refused.output)
            if not self._owes():
                break
            self._told.trouble("publishing waits", delivered.problem)
            self._vitals.bus.publishing_waits()
            if self._pause(stop, pause_s):
                return
            if delivered.to_send:
                pause_s = min(2 * pause_s, self._settings.backoff_max_s)
        self._told.over("publishing waits")

    def _pause(self, stop: threading.Event, pause_s: float) -> bool:
        """Wait with signs of life; tell whether a stop was asked for."""
        while pause_s > 0:
            if self._clock.wait(stop, min(pause_s, BEAT_S)):
                return True
            self._heartbeat.beat()
            pause_s -= BEAT_S
        return stop.is_set()

    # --- state ---------------------------------------------------------------------------------

    def restore(self, stop: threading.Event | None = None) -> bool:
        """Take up the newest usable checkpoint and what the journal says came after it.

        False where a stop was asked for before that was done: nothing may be saved then.
        Errors: `NotPermitted` where the journal may not be read.
        """
        stop = stop or threading.Event()
        self._outbox.clear()
        self._log = self._ask(self._source.log, stop)
        if self._log is None:
            return False
        again, self._begin = self._begin, self._begin or self._as_begun()
        found = self._take_up()
        after: Mapping[Place, int] = {}
        if found is None and again is not None:
            # This worker crashed before it saved anything: what it took since is taken again.
            self._core.load(again.plain, again.arrays)
            self._source.seek(again.positions)
        elif found is not None and found.header.log == self._log:
            after = found.header.places()
            self._source.seek(after)
        elif found is not None:
            self._core.forget_places()
            if again is not None:
                self._source.seek(dict.fromkeys(self._source.positions(), 0))
        return self._journal is None or self._repeat(self._journal, after, stop)

    def _as_begun(self) -> Begin:
        return Begin(*self._core.save(), self._source.positions())

    def _take_up(self) -> Checkpoint | None:
        """Become what was saved, where something usable was."""
        if self._checkpoint is None:
            return None
        found, problems = self._checkpoint.load()
        for problem in problems:
            log.warning("checkpoint", worker=self.name, why=problem)
        if found is None:
            return None
        try:
            self._core.load(found.plain, found.arrays)
        except (ValueError, KeyError) as error:
            log.warning("checkpoint", worker=self.name, why=f"it does not fit: {error}")
            if self._begin is not None:
                self._core.load(self._begin.plain, self._begin.arrays)
            return None
        log.info("restored", worker=self.name, same_log=found.header.log == self._log)
        return found

    def _repeat(self, journal: Journal, after: Mapping[Place, int], stop: threading.Event) -> bool:
        """Repeat the journal's turns after a checkpoint; False where a stop came first."""
        journal.forget_unsynced()

        def reread(place: Place, first: int, end: int) -> list[Envelope] | None:
            return self._ask(lambda: self._source.reread(place, first, end), stop)

        def step(envelopes: Sequence[Envelope]) -> bool:
            self._heartbeat.beat()
            self._outbox.put(self._step(envelopes))
            self._finish(stop)
            return not self._owes()

        hands = Hands(reread, step, self._source.positions)
        mark = log_mark(self._log or "")
        done = Repeat(journal, mark, after, hands, self._settings.poll_max).run()
        self._turn_number, self._saved_turn = done.newest, done.before
        self._vitals.journal.repeated(done.turns)
        self._vitals.journal.gone(done.gone)
        for problem in done.problems:
            log.warning("journal", worker=self.name, why=problem)
        if done.other_log:
            log.warning("the journal is of another log and not repeated", worker=self.name,
                        turns=done.other_log)  # fmt: skip
        if done.turns:
            log.info("repeated", worker=self.name, turns=done.turns, records_gone=done.gone)
        return done.whole

    def _ask(self, question: Callable[[], T], stop: threading.Event) -> T | None:
        """Ask until the bus is there; None where a stop was asked for before that."""
        while True:
            try:
                answer = question()
            except Unavailable as error:
                self._told.trouble("waiting for the bus", error)
                if self._pause(stop, error.retry_after_s):
                    return None
            else:
                self._told.over("waiting for the bus")
                return answer

    def save(self) -> None:
        """Save state and next offsets; a failure is told once and tried again later.

        Nothing is saved while something of the last turn is not acknowledged.
        """
        self._saved_s = self._clock.monotonic()
        if self._owes():
            log.info("not saved: a turn is not published yet and will be repeated",
                     worker=self.name)  # fmt: skip
            return
        if self._checkpoint is None:
            return
        plain, arrays = self._core.save()
        self._crash("before save")
        try:
            if self._journal is not None:
                self._journal.sync()
            identity = self._source.log() if self._log is None else self._log
            positions = self._source.positions()
            self._checkpoint.save(identity, positions, plain, arrays, self._crash)
        except FarsideError as error:
            self._told.trouble("checkpoint not saved", error)
            self._vitals.save_failed()
            return
        self._told.over("checkpoint not saved")
        self._vitals.saved(self._clock.now())
        if self._journal is not None:
            # The generation before may still be needed, where the newest is damaged.
            self._journal.drop(self._saved_turn)
            self._vitals.journal.kept(self._journal.kept_bytes)
        self._saved_turn = self._turn_number


def _rejects(envelopes: Sequence[Envelope], outputs: Sequence[Output]) -> list[Output]:
    """Return what could not be decoded, where the core does not pass it on itself."""
    undecoded = [one for one in envelopes if isinstance(one.message, Reject)]
    if not undecoded:
        return []
    passed_on = [output.message for output in outputs if output.topic == REJECTS]
    return [
        Output(REJECTS, one.topic, one.message) for one in undecoded if one.message not in passed_on
    ]
