"""`top` where the bus is Kafka: the story of a fleet, read from its topics, and read on.

Telemetry is not among them unless asked for: of a large fleet it is more than a screen can follow.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from bus.messages import ExecutionReport, Incident, IsolationCommand, Proposal, Refusal, Watermark
from bus.topics import (
    COMMANDS,
    DELIVERIES,
    DIRECTIVES,
    HEALTH,
    INCIDENTS,
    REPORTS,
    SUSPICIONS,
    TELEMETRY,
)
from bus.transport import Bus, Envelope, Place
from farside.backlog import begins, ends_of, in_order, no_earlier_than
from farside.view.snapshot import About, Snapshot
from farside.view.story import Story
from runtime.clock import Clock, Instant
from runtime.errors import Unavailable
from runtime.words import duration_text

SAID = (SUSPICIONS, INCIDENTS, COMMANDS, REPORTS, DELIVERIES, DIRECTIVES, HEALTH)
RECORDS_MAX = 50_000  # of each topic: what is older is not looked at
READINGS_S = 60.0  # of telemetry, where it is asked for
READINGS_MAX = 20_000
SILENCE_S = 5.0  # a scorer speaks once a second: after so long without a word its cell is unwatched
_TURNS_MAX = 20  # reads for one picture, so that it is drawn though more comes than can be read


class Heard(NamedTuple):
    """What a cell's scorer said last: how far it was behind, and when the log took that."""

    lag_s: float
    appended: Instant


class Overview:
    """The story of a fleet and the reader that feeds it. One thread's."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        about: About,
        look_back_s: float = 3600.0,
        *,
        readings: bool = False,
    ) -> None:
        """Look back so far; `readings`: also at what nodes measure."""
        self._bus = bus
        self._clock = clock
        self._about = about
        self._look_back_s = look_back_s
        self._topics = (TELEMETRY, *SAID) if readings else SAID
        self._story = Story(look_back_s, about=about)
        self._source = bus.source(self._topics)
        self._cells: dict[str, Heard] = {}
        self._trouble = ""

    def begin(self) -> None:
        """Read what was said lately, and what is still open however old; errors: `Unavailable`."""
        since = self._clock.now().plus(-self._look_back_s)
        ends = ends_of(self._source)
        standing = _standing(self._incidents(ends), since)
        oldest = min([since, *(one.appended for one in standing)])
        starts = self._starts(since, oldest)
        self._source.seek(
            {
                **no_earlier_than(starts, ends, RECORDS_MAX),
                **{place: end for place, end in ends.items() if place[0] == INCIDENTS},
            }
        )
        told = _of_those(in_order(self._source, ends, self._clock), standing, since)
        self._take(merge(standing, told, key=attrgetter("appended")))

    def look(self, timeout_s: float = 0.05) -> Snapshot:
        """Read on and return what a screen shows, and that nothing can be read, if so."""
        for _ in range(_TURNS_MAX):
            try:
                found = self._source.poll(1000, timeout_s)
            except Unavailable as error:
                self._trouble = str(error)
                break
            if not found:
                break
            self._trouble = ""
            self._take(sorted(found, key=attrgetter("appended")))
        now = self._clock.now()
        snapshot = self._story.snapshot(now)
        # The story counts from the first record that was read: nothing began to run then.
        return replace(
            snapshot,
            since=None,
            lag_s=max(self._lags(now).values(), default=None),
            about=replace(self._about, watching=self._watching(now)),
        )

    def close(self) -> None:
        """Let go of the topics."""
        self._source.close()

    def _incidents(self, ends: dict[Place, int]) -> list[Envelope]:
        source = self._bus.source([INCIDENTS])
        try:
            until = ends_of(source)
            source.seek(no_earlier_than(source.positions(), until, RECORDS_MAX))
            own = {place: end for place, end in ends.items() if place[0] == INCIDENTS}
            return list(in_order(source, own, self._clock))
        finally:
            source.close()

    def _starts(self, since: Instant, oldest: Instant) -> dict[Place, int]:
        """Return where to begin: what belongs to an open incident may be as old as that."""
        starts = begins(self._bus, [HEALTH], "earliest")
        starts |= begins(self._bus, [SUSPICIONS], since)
        starts |= begins(self._bus, [COMMANDS, REPORTS, DELIVERIES, DIRECTIVES], oldest)
        if TELEMETRY in self._topics:
            lately = begins(self._bus, [TELEMETRY], self._clock.now().plus(-READINGS_S))
            ends = begins(self._bus, [TELEMETRY], "latest")
            starts |= no_earlier_than(lately, ends, READINGS_MAX)
        return starts

    def _take(self, envelopes: Iterable[Envelope]) -> None:
        for envelope in envelopes:
            message = envelope.message
            if isinstance(message, Watermark):
                lag_s = max(message.head_time.since(message.time), 0.0)
                self._cells[message.cell] = Heard(lag_s, envelope.appended)
            self._story.see(envelope)

    def _lags(self, now: Instant) -> dict[str, float]:
        """Return how far each cell is behind; that nothing is heard of it counts, too."""
        return {
            cell: heard.lag_s + _silent_s(heard, now)
            for cell, heard in self._cells.items()
            if now.since(heard.appended) <= self._look_back_s
        }

    def _watching(self, now: Instant) -> str:
        if self._trouble:
            return self._trouble
        lags = self._lags(now)
        silent = [cell for cell in lags if _silent_s(self._cells[cell], now)]
        where = self._about.watching
        if not lags:
            span = duration_text(self._look_back_s)
            return f"nothing: no scorer has said a word for {span}; {where}"
        if silent:
            span = duration_text(max(_silent_s(self._cells[cell], now) for cell in silent))
            if len(silent) == len(lags):
                return f"nothing new for {span}: no scorer speaks, or it is away; {where}"
            return f"unwatched for {span}: {_cells(silent)} (no scorer speaks for it); {where}"
        return f"{_cells(lags)}; {where}"


def _cells(names: Iterable[str]) -> str:
    known = sorted(names)
    shown = ", ".join(known[:4])
    more = f" and {len(known) - 4} more" if len(known) > 4 else ""
    return f"{'cell' if len(known) == 1 else 'cells'} {shown}{more}"


def _silent_s(heard: Heard, now: Instant) -> float:
    silent_s = now.since(heard.appended)
    return silent_s if silent_s > SILENCE_S else 0.0


def _standing(incidents: list[Envelope], since: Instant) -> list[Envelope]:
    """Return what was told of incidents that are open, or were told of since then."""
    last: dict[str, Envelope] = {}
    for envelope in incidents:
        if isinstance(envelope.message, Incident):
            last[envelope.message.id] = envelope
    kept = {
        name
        for name, one in last.items()
        if one.appended >= since or getattr(one.message, "state", "") != "closed"
    }
    return [one for one in incidents if getattr(one.message, "id", None) in kept]


def _of_those(
    envelopes: Iterator[Envelope], standing: Iterable[Envelope], since: Instant
) -> Iterator[Envelope]:
    """Leave out what is old and belongs to none of the incidents that are shown."""
    shown = {one.message.id for one in standing if isinstance(one.message, Incident)}
    commands: set[str] = set()
    for one in envelopes:
        wish = one.message.command if isinstance(one.message, Proposal) else one.message
        if isinstance(wish, IsolationCommand | Refusal):
            if one.appended < since and wish.incident not in shown:
                continue
            commands.add(wish.id)
        elif one.topic in {REPORTS, DELIVERIES, DIRECTIVES} and one.appended < since:
            about = wish.command if isinstance(wish, ExecutionReport) else ""
            known = about in commands or getattr(wish, "incident", "") in shown
            if not known:
                continue
        yield one
