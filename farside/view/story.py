"""The story of a run as people look at it: fed with all records, asked for what a screen shows.

It judges nothing. One thread may feed it while others ask; memory is bounded by the window, by the
points kept for each series, by the number of things and by the number of incidents.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from bus.messages import Incident, NodeHealth, Scope
from bus.transport import Envelope
from farside.view.casefiles import CaseFile
from farside.view.cases import Case
from farside.view.known import Known, moved
from farside.view.rows import row_of
from farside.view.snapshot import About, CellLine, Event, IncidentLine, Row, Snapshot
from farside.view.things import Curve, Key, Thing, short_names
from runtime.clock import Instant, nanoseconds
from runtime.errors import Rejected

GONE_S = 10.0  # a thing not read for so long, while its node is, is gone
SHOWN_EVENTS = 24
SHOWN_INCIDENTS = 8
SHOWN_CELLS = 64
QUIET_S = 5.0  # watermarks come once a second: a scorer that says nothing for longer falls behind


@dataclass(frozen=True)
class NodeStory:
    """Everything about one node, for a page: its own curve, what runs on it, its incidents."""

    node: str
    health: NodeHealth | None
    curve: Curve | None
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    cases: tuple[Case, ...]
    events: tuple[Event, ...]


class Story:
    """What happened lately, by thing and by incident.

    window_s: how far back readings are kept. points_max: for each series, beyond which old points
    are thinned. things_max: beyond which the smallest healthy ones are let go. cases_max: beyond
    which the oldest closed incidents are let go.
    """

    def __init__(
        self,
        window_s: float = 900.0,
        points_max: int = 1200,
        about: About | None = None,
        *,
        things_max: int = 2000,
        cases_max: int = 64,
    ) -> None:
        """Start with nothing seen."""
        self._about = about or About()
        self._known = Known(window_s, points_max, things_max, cases_max)
        self._lock = threading.Lock()

    def see(self, envelope: Envelope) -> None:
        """Take one record of any topic."""
        with self._lock:
            self._known.take(envelope)

    def see_all(self, envelopes: Iterable[Envelope]) -> None:
        """Take several records."""
        for envelope in envelopes:
            self.see(envelope)

    def tell_about(self, about: About) -> None:
        """Set what a story can't know by itself."""
        with self._lock:
            self._about = about

    def snapshot(self, now: Instant | None = None, rows_max: int = 60) -> Snapshot:
        """Return what a screen shows; `now` None means the newest time that was seen."""
        with self._lock:
            known = self._known
            now = Instant(known.now_ns) if now is None else now
            rows = _rows(known, now)
            cells = _cells(known, now)
            return Snapshot(
                time=now,
                about=self._about,
                since=self._about.started or (Instant(known.since_ns) if known.since_ns else None),
                lag_s=max((one.lag_s for one in cells if one.lag_s is not None), default=None),
                cells=cells[:SHOWN_CELLS],
                nodes=len(known.nodes),
                samples=known.samples,
                rejected=known.rejected,
                rows=tuple(rows[:rows_max]),
                left_out=max(len(rows) - rows_max, 0),
                incidents=_incident_lines(known),
                events=tuple(known.events)[-SHOWN_EVENTS:],
                happened=known.happened,
            )

    def scopes(self, now: Instant | None = None) -> tuple[Row, ...]:
        """Return all scopes as rows, those that matter most first."""
        with self._lock:
            return tuple(_rows(self._known, now or Instant(self._known.now_ns)))

    def events(self) -> tuple[Event, ...]:
        """Return what happened lately, oldest first."""
        with self._lock:
            return tuple(self._known.events)

    def incidents(self) -> tuple[Incident, ...]:
        """Return all known incidents as they were told last, oldest first."""
        with self._lock:
            return tuple(case.incident for case in self._known.cases.values())

    def incident(self, incident_id: str) -> Case:
        """Return an incident's file; `Rejected` where there is none of this id."""
        with self._lock:
            case = self._known.case_of(incident_id)
            if case is None:
                known = ", ".join(list(self._known.cases)[-5:]) or "none"
                msg = f"no incident {incident_id[:80]!r} is known (known: {known})"
                raise Rejected(msg)
            return case.seen()

    def around(self, scope: Scope) -> tuple[Curve | None, tuple[Curve, ...]]:
        """Return a scope's curve and those of its node and neighbours, the largest first."""
        with self._lock:
            thing = self._known.things.get(Key.of(scope))
            if thing is None:
                return None, ()
            beside = self._known.beside(thing)
            names = short_names(one.scope for one in (thing, *beside))
            curves = [one.curve(names[one.scope]) for one in (thing, *beside)]
            return curves[0], tuple(curves[1:])

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of which something is known."""
        with self._lock:
            known = self._known
            named = {*known.nodes, *known.health, *(key.node for key in known.things)}
            return tuple(sorted(named - {""}))

    def node(self, name: str, curves_max: int = 24) -> NodeStory:
        """Return all about a node; `Rejected` where nothing is known of it."""
        with self._lock:
            known = self._known
            cases = [case for case in known.cases.values() if case.thing.key.node == name]
            if not cases and not any(key.node == name for key in known.things):
                nodes = ", ".join(sorted(known.nodes)[:5]) or "none"
                msg = f"nothing is known of a node {name[:80]!r} (known: {nodes})"
                raise Rejected(msg)
            rows = [row for row in _rows(known, Instant(known.now_ns)) if row.scope.node == name]
            own = known.things.get(Key("node", name, ""))
            drawn = [
                known.things[Key.of(row.scope)].curve(row.name)
                for row in rows
                if row.scope.kind != "node" and row.used is not None
            ]
            ids = {case.incident.id for case in cases}
            names = {name, *(row.name for row in rows)}
            return NodeStory(
                node=name,
                health=known.health.get(name),
                curve=own.curve(name) if own and own.series else None,
                rows=tuple(rows),
                curves=tuple(drawn[:curves_max]),
                cases=tuple(case.seen() for case in map(known.case_of, sorted(ids)) if case),
                events=tuple(
                    event for event in known.events if event.incident in ids or event.scope in names
                ),
            )


def _cells(known: Known, now: Instant) -> tuple[CellLine, ...]:
    """Return how well each cell is seen: the blind ones first, then those that lag most."""
    blind = {
        case.incident.scope.cell: case.incident.sentence or "it is not watched"
        for case in known.cases.values()
        if not case.closed
        and (case.incident.scope.kind, case.incident.fault) == ("cell", "telemetry")
    }
    found = [
        CellLine(
            cell=cell,
            judged=mark.time,
            heard=heard,
            # Who says nothing judges nothing: the log has gone on since.
            lag_s=max(mark.head_time.since(mark.time), 0.0) + max(now.since(heard) - QUIET_S, 0.0),
            blind=blind.pop(cell, ""),
        )
        for cell, (heard, mark) in known.marks.items()
    ]
    found += [CellLine(cell=cell, blind=sentence) for cell, sentence in blind.items()]
    return tuple(sorted(found, key=lambda one: (not one.blind, -(one.lag_s or 0.0), one.cell)))


def _rows(known: Known, now: Instant) -> list[Row]:
    latest: dict[Key, CaseFile] = {}
    for case in known.cases.values():
        other = latest.get(case.thing.key)
        if other is None or other.closed or not case.closed:
            latest[case.thing.key] = case
    shown = [
        thing
        for thing in known.things.values()
        if thing.signal() is not None or thing.suspected or thing.key in latest
    ]
    names = short_names(thing.scope for thing in shown)
    rows = []
    for thing in shown:
        unread_ns = known.nodes.get(thing.key.node, 0) - thing.seen_ns
        gone = bool(thing.seen_ns) and unread_ns > nanoseconds(GONE_S)
        found = latest.get(thing.key)
        if gone and not thing.suspected and (found is None or found.closed):
            continue
        health = known.health.get(thing.key.node) if thing.key.kind == "node" else None
        rows.append((thing, row_of(thing, names[thing.scope], now, found, health, gone=gone)))
    rows.sort(key=_rank)
    return [row for _, row in rows]


def _rank(pair: tuple[Thing, Row]) -> tuple[bool, int, bool, float, float, str]:
    """Order rows: nodes, then what matters, then what ever came nearest to its limit."""
    thing, row = pair
    return (
        row.scope.kind != "node",
        -row.attention,
        row.limit is None,
        -round(thing.peak_share, 2),
        -thing.peak,
        row.name,
    )


def _incident_lines(known: Known) -> tuple[IncidentLine, ...]:
    ranked = sorted(known.cases.values(), key=lambda case: (case.closed, -moved(case)))
    return tuple(
        IncidentLine(
            id=case.incident.id,
            scope=case.incident.scope,
            state=case.incident.state,
            severity=case.incident.severity,
            sentence=case.incident.sentence,
            opened=case.incident.opened,
            updated=case.incident.updated or case.incident.opened,
        )
        for case in ranked[:SHOWN_INCIDENTS]
    )
