"""`explain` where the bus is Kafka: the story of one incident or node, told again from the topics.

Telemetry is read last and bounded: of a large cell that is what lies nearest to the event.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from bus.messages import (
    Delivery,
    ExecutionReport,
    Incident,
    IsolationCommand,
    LogLine,
    NodeHealth,
    Proposal,
    Refusal,
    SampleBatch,
    Suspicion,
)
from bus.topics import COMMANDS, DELIVERIES, HEALTH, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Bus, Envelope, Place, Start
from farside.backlog import begins, ends_of, in_order, no_earlier_than
from farside.view.story import Story
from runtime.clock import Clock, Instant

BEFORE_S = 900.0  # what led to an incident
AFTER_S = 60.0  # what is read after its end still belongs to the picture
RECORDS_MAX = 50_000  # of each topic but telemetry: what is older is not looked at
READINGS_MAX = 100_000  # of a partition of telemetry
FIND_MAX = 20_000  # of each partition, where that of a node has to be found first


class About(NamedTuple):
    """What is asked for: which node (none: a cell or the fleet), which incidents, from when on.

    Telemetry is read around `event`.
    """

    node: str
    incidents: Mapping[str, list[Incident]]
    begin: Instant
    event: Instant
    end: Instant


class Retelling:
    """Reads what the topics hold about one name. One thread's.

    `notes` are sentences about what could not be told.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        cells: Mapping[str, int],
        look_back_s: float = 3600.0,
        *,
        readings_max: int = READINGS_MAX,
    ) -> None:
        """Look back so far for a node, and as far as it takes for an incident.

        `cells` names the partition of each cell; where it does not, the partition is searched for.
        `readings_max`: how many records of a partition of telemetry are read at most.
        """
        self._bus = bus
        self._clock = clock
        self._cells = cells
        self._look_back_s = look_back_s
        self._readings_max = readings_max
        self.notes: list[str] = []

    def told(self, name: str) -> Story:
        """Return a story that knows the incident or node of this name, if anything does.

        Errors: `Unavailable` when the topics can't be read.
        """
        told = self._read([INCIDENTS], "earliest")
        about = _about(name, told, self._clock.now(), self._look_back_s)
        said = [*told, *self._read([HEALTH], "earliest")]
        said += self._read([SUSPICIONS, COMMANDS, REPORTS, DELIVERIES], about.begin)
        kept = _of_those(said, about)
        if about.node:
            for place in self._places(about.node, _cell(about.node, kept)):
                kept += self._readings(place, about)
        story = Story(self._clock.now().since(about.begin) + BEFORE_S)
        story.see_all(sorted(kept, key=attrgetter("appended")))
        return story

    def _read(self, topics: list[str], start: Start) -> list[Envelope]:
        """Return what these topics hold from there on, but not too much."""
        source = self._bus.source(topics, start)
        try:
            ends = ends_of(source)
            source.seek(no_earlier_than(source.positions(), ends, RECORDS_MAX))
            return list(in_order(source, ends, self._clock))
        finally:
            source.close()

    def _places(self, node: str, cell: str) -> list[Place]:
        """Return the partitions of telemetry in which a node is heard."""
        if cell in self._cells:
            return [(TELEMETRY, self._cells[cell])]
        everywhere = list(begins(self._bus, [TELEMETRY], "latest"))
        if len(everywhere) == 1:
            return everywhere
        return [place for place in everywhere if self._hears(place, node)]

    def _hears(self, place: Place, node: str) -> bool:
        source = self._bus.source([place])
        try:
            ends = ends_of(source)
            source.seek(no_earlier_than(source.positions(), ends, FIND_MAX))
            return any(_is_of(one, node) for one in in_order(source, ends, self._clock))
        finally:
            source.close()

    def _readings(self, place: Place, about: About) -> list[Envelope]:
        """Return what a node measured and logged around the event."""
        source = self._bus.source([place])
        try:
            last = ends_of(source)[place]
            marks = (about.begin, about.event, about.end)
            first, event, end = (min(self._at(place, moment), last) for moment in marks)
            begin = max(first, event - self._readings_max * 3 // 4)
            until = min(end, begin + self._readings_max)
            if (begin, until) != (first, end):
                self.notes.append(
                    f"of {end - first} records of telemetry {until - begin} were read, those "
                    f"around {about.event.text()}"
                )
            source.seek({place: begin})
            found = in_order(source, {place: until}, self._clock)
            return [one for one in found if _is_of(one, about.node)]
        finally:
            source.close()

    def _at(self, place: Place, moment: Instant) -> int:
        """Return the offset of the first record that the log took at a moment or later."""
        source = self._bus.source([place], moment)
        try:
            source.log()  # connects
            return source.positions()[place]
        finally:
            source.close()


def _about(name: str, told: Iterable[Envelope], now: Instant, look_back_s: float) -> About:
    """Return what a name means: an incident of this id, else a node."""
    histories: dict[str, list[Incident]] = {}
    for one in told:
        if isinstance(one.message, Incident):
            histories.setdefault(one.message.id, []).append(one.message)
    if name in histories:
        history = histories[name]
        first, last = history[0], history[-1]
        end = (last.updated or last.opened).plus(AFTER_S) if last.state == "closed" else now
        begin = first.opened.plus(-BEFORE_S)
        return About(first.scope.node, {name: history}, begin, first.opened, min(end, now))
    since = now.plus(-look_back_s)
    own = {
        one: history
        for one, history in histories.items()
        if history[-1].scope.node == name
        and (history[-1].state != "closed" or (history[-1].updated or since) >= since)
    }
    begin = min([since, *(history[0].opened.plus(-BEFORE_S) for history in own.values())])
    return About(name, own, begin, now, now)


def _of_those(said: Iterable[Envelope], about: About) -> list[Envelope]:
    """Return what was said of these incidents, their scopes, their node."""
    scopes = {history[-1].scope for history in about.incidents.values()}
    commands: set[str] = set()
    kept = []
    for one in sorted(said, key=attrgetter("appended")):
        message = one.message
        wish = message.command if isinstance(message, Proposal) else message
        match wish:
            case Incident():
                its = wish.id in about.incidents
            case Suspicion():
                its = wish.scope in scopes or bool(about.node and wish.scope.node == about.node)
            case IsolationCommand() | Refusal():
                its = wish.incident in about.incidents
                commands |= {wish.id} if its else set()
            case ExecutionReport():
                its = wish.command in commands
            case Delivery():
                its = wish.incident in about.incidents
            case NodeHealth():
                its = wish.node == about.node
            case _:
                its = False
        if its:
            kept.append(one)
    return kept


def _cell(node: str, said: Iterable[Envelope]) -> str:
    """Return the cell of a node as it was last named; empty where it never was."""
    found = ""
    for one in said:
        match one.message:
            case NodeHealth(node=its, cell=cell) if its == node and cell:
                found = cell
            case Incident(scope=scope) | Suspicion(scope=scope) if scope.node == node:
                found = scope.cell or found
    return found


def _is_of(one: Envelope, node: str) -> bool:
    return isinstance(one.message, SampleBatch | LogLine) and one.message.node == node
