"""The story of a cluster as its topics tell it: what `top` and `explain` show where Kafka is.

First what was said is read, so far back as is asked for (and of what is not over yet, all that
was said), in the order in which the logs took it; then the telemetry, which is bounded by a number
of records: of a large cell only the newest seconds are looked at. `look` goes on from there.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from bus.messages import (
    Delivery,
    ExecutionReport,
    Incident,
    IsolationCommand,
    NodeHealth,
    Proposal,
    Refusal,
    Watermark,
)
from bus.topics import COMMANDS, DELIVERIES, HEALTH, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Bus, Envelope, Place, Source, Start
from farside.view.snapshot import About, Snapshot
from farside.view.story import Story
from runtime.clock import Clock, Instant
from runtime.errors import NotPermitted, Unavailable
from runtime.words import duration_text

if TYPE_CHECKING:
    from farside.compose import Site

BACK_S = 3600.0
STANDING_S = 30 * 86_400.0  # how long ago an incident that is still open may have begun
BEFORE_S = 900.0  # what came before an incident belongs to its page
AFTER_S = 60.0
RECORDS_MAX = 20_000  # telemetry: of the past, and beyond which what comes is passed over
PAGE_RECORDS_MAX = 100_000  # the same for the page of one incident or node
SAID_MAX = 500_000  # suspicions and watermarks of the past
READ_S = 120.0  # for the past, altogether
_POLL_RECORDS = 2000
_POLL_S = 1.0
_LOOK_S = 0.5
_SAID = (INCIDENTS, COMMANDS, REPORTS, DELIVERIES)
_FOLLOWED = (*_SAID, HEALTH, SUSPICIONS, TELEMETRY)


class TopicsView:
    """Reads topics into a story; it belongs to one thread.

    cells: the partition of telemetry that each cell has (empty: one cell, all partitions).
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        about: About,
        *,
        back_s: float = BACK_S,
        cells: Mapping[str, int] | None = None,
        records_max: int = RECORDS_MAX,
        page_records_max: int = PAGE_RECORDS_MAX,
    ) -> None:
        """Connect nothing yet."""
        self._bus = bus
        self._clock = clock
        self._about = about
        self._back_s = back_s
        self._cells = cells or {}
        self._records_max = records_max
        self._page_records_max = page_records_max
        self._follows: Source | None = None
        self._positions: dict[Place, int] = {}
        self._end_s = clock.monotonic() + READ_S
        self.story = Story(about=about)
        self.notes: list[str] = []
        self._problem = ""

    # --- the past ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Read what was said and the newest telemetry; `Unavailable` where that can't be."""
        now = self._clock.now()
        self._end_s = self._clock.monotonic() + READ_S
        self.story = Story(max(self._back_s, BEFORE_S), about=self._about)
        self.story.see_all(self._said(now, now.plus(-self._back_s)))
        start = now.plus(-min(self._back_s, BEFORE_S))
        self._read([TELEMETRY], start, self.story.see_all, newest=self._records_max)

    def begin_about(self, name: str) -> None:
        """Read what was said, and the telemetry around the incident or node of this name.

        Errors: `Unavailable` where the bus can't be read.
        """
        now = self._clock.now()
        self._end_s = self._clock.monotonic() + READ_S
        begin = now.plus(-self._back_s)
        said = self._said(now, begin, always=name)
        around = _Around.of(name, said, begin, now)
        self.story = Story(
            max(now.since(around.start), BEFORE_S),
            about=self._about,
            cases_max=1024,
        )
        read = self._telemetry(around) if around.node else []
        self.story.see_all(sorted([*said, *read], key=attrgetter("appended")))

    def _telemetry(self, around: "_Around") -> list[Envelope]:
        """Return what a node said around the event; of too many records those nearest to it."""
        cell = self._cells.get(around.cell)
        places: list[str | Place] = [TELEMETRY if cell is None else (TELEMETRY, cell)]
        first, event, end = (
            self._at(places, moment) for moment in (around.start, around.event, around.end)
        )
        most = max(self._page_records_max // max(len(first), 1), 1)
        begin = {place: max(at, event[place] - most * 3 // 4) for place, at in first.items()}
        until = {place: min(at, begin[place] + most) for place, at in end.items()}
        whole = sum(end.values()) - sum(first.values())
        taken = sum(until.values()) - sum(begin.values())
        if taken < whole:
            self.notes.append(
                f"of {whole} records of telemetry {taken} were read, those around "
                f"{around.event.text()[:19]}Z"
            )
        read: list[Envelope] = []

        def take(found: list[Envelope]) -> None:
            read.extend(
                one
                for one in found
                if one.key == around.node and one.offset < until[one.topic, one.partition]
            )

        source = self._bus.source(places)
        try:
            source.seek(begin)
            source.log()  # connects
            self._drain(source, until, take)
        finally:
            source.close()
        return read

    def _at(self, places: Iterable[str | Place], moment: Instant) -> dict[Place, int]:
        """Return the offset of the first record that each log took at a moment or later."""
        source = self._bus.source(places, moment)
        try:
            source.log()  # connects
            return source.positions()
        finally:
            source.close()

    def _said(self, now: Instant, begin: Instant, always: str = "") -> list[Envelope]:
        """Return what was said since `begin`, and of what is not over yet all; in order of time."""
        old = now.plus(-max(STANDING_S, self._back_s))
        said: list[Envelope] = []
        self._read(_SAID, old, said.extend)
        said = _standing(said, begin, always)
        health: dict[str, Envelope] = {}
        self._read([HEALTH], "earliest", lambda found: health.update((e.key, e) for e in found))
        marks: dict[str, Envelope] = {}

        def judged(found: Iterable[Envelope]) -> None:
            for one in found:
                if isinstance(one.message, Watermark):
                    marks[one.message.cell] = one
                else:
                    said.append(one)

        since = begin
        if always:
            opened = [
                one.message.opened
                for one in said
                if isinstance(one.message, Incident) and one.message.id == always
            ]
            since = min([begin, *(one.plus(-BEFORE_S) for one in opened)])
        self._read([SUSPICIONS], since, judged, newest=SAID_MAX)
        return sorted([*said, *health.values(), *marks.values()], key=attrgetter("appended"))

    def _read(
        self,
        places: Iterable[str | Place],
        start: Start,
        take: Callable[[list[Envelope]], object],
        newest: int | None = None,
    ) -> None:
        """Read from `start` to the end that there is now; of all only so many, the `newest`."""
        source = self._bus.source(places, start)
        try:
            source.log()  # connects
            ends = _ends(source)
            if newest is not None:
                _pass_over(source, ends, max(newest // max(len(ends), 1), 1))
            self._drain(source, ends, take)
            self._positions |= source.positions()
        finally:
            source.close()

    def _drain(
        self, source: Source, ends: Mapping[Place, int], take: Callable[[list[Envelope]], object]
    ) -> None:
        """Read up to these offsets; what lies beyond may be among what is taken last."""
        while any(source.positions()[place] < end for place, end in ends.items()):
            if self._clock.monotonic() > self._end_s:
                self.notes.append(f"not all was read within {duration_text(READ_S)}")
                break
            take(source.poll(_POLL_RECORDS, _POLL_S))

    # --- what comes ----------------------------------------------------------------------------

    def look(self) -> None:
        """Take what came since, for about half a second; a bus that is away is a problem told."""
        end_s = self._clock.monotonic() + _LOOK_S
        try:
            source = self._following()
            while True:
                found = source.poll(_POLL_RECORDS, max(end_s - self._clock.monotonic(), 0.01))
                self.story.see_all(found)
                if not found or self._clock.monotonic() >= end_s:
                    break
            _pass_over(source, _ends(source), self._records_max, only=TELEMETRY)
            self._problem = ""
        except Unavailable as error:
            self._problem = str(error)

    def _following(self) -> Source:
        if self._follows is None:
            self._follows = self._bus.source(list(_FOLLOWED), self._clock.now())
            self._follows.seek(self._positions)
        return self._follows

    def snapshot(self) -> Snapshot:
        """Return what a screen shows now."""
        shown = self.story.snapshot(self._clock.now())
        # When reading began says nothing about how long anything runs.
        return structs.replace(shown, since=None, problem=self._problem)

    def close(self) -> None:
        """Give the connections back."""
        follows, self._follows = self._follows, None
        if follows is not None:
            follows.close()


class _Around(NamedTuple):
    """Where and when the telemetry of an incident or a node is to be found."""

    node: str
    cell: str
    start: Instant
    event: Instant
    end: Instant

    @classmethod
    def of(cls, name: str, said: Iterable[Envelope], begin: Instant, now: Instant) -> "_Around":
        """Return it for a name; one that is no incident's is taken for a node's."""
        told = [one.message for one in said if isinstance(one.message, Incident)]
        about = [one for one in told if one.id == name]
        later = now.plus(AFTER_S)
        if about:
            scope, opened, last = about[-1].scope, about[0].opened, about[-1]
            end = (last.updated or opened).plus(AFTER_S) if last.state == "closed" else later
            return cls(scope.node, scope.cell, opened.plus(-BEFORE_S), opened, end)
        health = (one.message for one in said if isinstance(one.message, NodeHealth))
        cells = [one.cell for one in health if one.node == name]
        return cls(name, cells[-1] if cells else "", begin, later, later)


def _standing(said: list[Envelope], begin: Instant, always: str) -> list[Envelope]:
    """Leave out what was said before `begin` of incidents that were over by then."""
    last: dict[str, Envelope] = {}
    for one in said:
        if isinstance(one.message, Incident):
            last[one.message.id] = one
    kept = {
        name
        for name, one in last.items()
        if name == always
        or one.appended >= begin
        or (isinstance(one.message, Incident) and one.message.state != "closed")
    }
    commands: set[str] = set()
    found = []
    for one in sorted(said, key=lambda one: one.topic == REPORTS):
        message = one.message
        match message:
            case Incident():
                stays = message.id in kept
            case IsolationCommand() | Refusal() | Delivery():
                stays = message.incident in kept
            case Proposal():
                stays = message.command.incident in kept
            case ExecutionReport():
                stays = message.command in commands
            case _:
                stays = False
        if isinstance(message, IsolationCommand) and stays:
            commands.add(message.id)
        if stays or one.appended >= begin:
            found.append(one)
    return found


def _ends(source: Source) -> dict[Place, int]:
    waiting = source.lag()
    return {place: at + waiting.get(place, 0) for place, at in source.positions().items()}


def _pass_over(source: Source, ends: Mapping[Place, int], newest: int, only: str = "") -> None:
    """Go on at the newest records where more than `newest` wait in a partition."""
    positions = source.positions()
    source.seek(
        {
            place: end - newest
            for place, end in ends.items()
            if end - positions[place] > newest and only in {"", place[0]}
        }
    )


@contextlib.contextmanager
def opened(site: "Site", role: str, back_s: float) -> Iterator[TopicsView]:
    """Give a view of the topics that the configuration leads to.

    Errors: `NotPermitted` where Kafka can't be reached, `Misconfigured` where none is named.
    """
    from farside.roles import open_bus

    settings = site.settings
    bus = open_bus(site, role)
    about = About(host=f"cluster {settings.farside.cluster}", version=site.about().version)
    view = TopicsView(bus, site.clock, about, back_s=back_s, cells=settings.bus.cells)
    try:
        yield view
    except Unavailable as error:
        raise NotPermitted(str(error)) from None
    finally:
        view.close()
        bus.close()
