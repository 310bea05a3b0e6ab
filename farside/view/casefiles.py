"""The file of one incident while the story goes on: what was said of it, and the readings around.

The readings are kept with the incident, thinned, so that its page can still be drawn when the
story's own window has moved on.
"""

from bisect import insort
from collections.abc import Sequence
from operator import itemgetter

from bus.messages import (
    Delivery,
    ExecutionReport,
    Incident,
    IsolationCommand,
    Proposal,
    Refusal,
    Suspicion,
)
from farside.view.cases import Case, Said
from farside.view.things import Thing, short_names
from runtime.clock import Instant, nanoseconds

SAID_MAX = 256
EXHIBIT_POINTS_MAX = 400
NEIGHBOURS_MAX = 8
AFTERWARDS_S = 30.0  # what is read after the end still belongs to the picture


class CaseFile:
    """An incident's file. Not safe for several threads by itself."""

    def __init__(self, incident: Incident, thing: Thing, appended: Instant) -> None:
        """Open the file of an incident at a thing; the log took the incident at `appended`."""
        self.incident = incident
        self.thing = thing
        self._said: list[tuple[Instant, Said]] = [(appended, incident)]
        self.exhibits: dict[Thing, Thing] = {}

    @property
    def said(self) -> list[Said]:
        """Return what was said, in the order in which the log took it."""
        return [one for _, one in self._said]

    @property
    def closed(self) -> bool:
        """Tell whether it is over."""
        return self.incident.state == "closed"

    @property
    def commands(self) -> dict[str, IsolationCommand]:
        """Return what was ordered or proposed, by id."""
        found = {}
        for one in self.said:
            if isinstance(one, IsolationCommand | Proposal):
                wish = one.command if isinstance(one, Proposal) else one
                found[wish.id] = wish
        return found

    @property
    def proposed(self) -> frozenset[str]:
        """Return the ids of commands that wait for a person."""
        ordered = {one.id for one in self.said if isinstance(one, IsolationCommand)}
        proposed = {one.command.id for one in self.said if isinstance(one, Proposal)}
        return frozenset(proposed - ordered)

    @property
    def reports(self) -> tuple[ExecutionReport, ...]:
        """Return what became of the commands."""
        return tuple(one for one in self.said if isinstance(one, ExecutionReport))

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Return what the decider refused."""
        return tuple(one for one in self.said if isinstance(one, Refusal))

    def take(self, message: Said, appended: Instant) -> bool:
        """Take what was said; tell whether it is new (the audit and a crash may say it twice)."""
        if any(_same(message, one) for _, one in self._said):
            return False
        # Topics are read one after the other: what the log took first belongs first.
        insort(self._said, (appended, message), key=itemgetter(0))
        if isinstance(message, Incident):
            self.incident = next(
                one for _, one in reversed(self._said) if isinstance(one, Incident)
            )
        if len(self._said) > SAID_MAX:
            del self._said[SAID_MAX // 2]
        return True

    def follow(self, beside: Sequence[Thing]) -> None:
        """Bring the readings up to date; `beside`: its node and neighbours, the nearest first."""
        until_ns = None
        if self.closed:
            end = self.incident.updated or self.incident.opened
            until_ns = int(end) + nanoseconds(AFTERWARDS_S)
        for thing in (self.thing, *beside):
            if thing not in self.exhibits and len(self.exhibits) < NEIGHBOURS_MAX + 2:
                self.exhibits[thing] = Thing(thing.scope)
        for thing, exhibit in self.exhibits.items():
            exhibit.extend(thing, EXHIBIT_POINTS_MAX, until_ns)

    def seen(self) -> Case:
        """Return the file as it stands now, as values of its own."""
        names = short_names(one.scope for one in self.exhibits.values())
        own = self.exhibits.get(self.thing)
        beside = [one for one in self.exhibits.values() if one is not own and one.series]
        node = next((one for one in beside if one.key.kind == "node"), None)
        return Case(
            said=tuple(self.said),
            suspicions=self._suspicions(),
            curve=own.curve(names[own.scope], self._signal(own)) if own and own.series else None,
            neighbours=tuple(one.curve(names[one.scope]) for one in beside if one is not node),
            node=node.curve(names[node.scope]) if node else None,
        )

    def _suspicions(self) -> tuple[Suspicion, ...]:
        """Return the suspicions that led to this incident and came while it was open."""
        opened = self.incident.opened
        until = (self.incident.updated or opened) if self.closed else None
        told = self.thing.suspicions
        calm = [i for i, one in enumerate(told) if one.state == "healthy" and one.time < opened]
        since = calm[-1] + 1 if calm else 0
        return tuple(one for one in told[since:] if until is None or one.time <= until)

    def _signal(self, own: Thing) -> str | None:
        """Return the signal that the incident is about, of those that were read."""
        evidence = [part for one in self.said if isinstance(one, Incident) for part in one.evidence]
        return next((one.signal for one in reversed(evidence) if one.signal in own.series), None)


def _same(one: Said, other: Said) -> bool:
    """Tell whether two messages say the same: ids are made of content, so equal ids are enough."""
    match one, other:
        case ExecutionReport(), ExecutionReport():
            return (one.command, one.outcome) == (other.command, other.outcome)
        case IsolationCommand(), IsolationCommand():
            return one.id == other.id
        case Refusal(), Refusal():
            return one.id == other.id
        case Proposal(), Proposal():
            return one.command.id == other.command.id
        case (Incident(), Incident()) | (Delivery(), Delivery()):
            return one == other
    return False
