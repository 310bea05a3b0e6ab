"""The file of one incident: all that was said and done about it, and the readings around it.

The readings are kept with the incident, thinned, so that its page can still be drawn when the
story's own window has moved on.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

from bus.messages import (
    Delivery,
    ExecutionReport,
    Incident,
    IsolationCommand,
    Proposal,
    Refusal,
    Suspicion,
    SuspicionState,
)
from farside.view.events import forecast_words, is_dry, outcome_words
from farside.view.snapshot import Level
from farside.view.things import Curve, Thing, short_names
from runtime.clock import Instant, nanoseconds
from runtime.words import duration_text

KEPT_MAX = 64  # of each kind of message in one file
EXHIBIT_POINTS_MAX = 400
NEIGHBOURS_MAX = 8
AFTERWARDS_S = 30.0  # what is read after the end still belongs to the picture

K = TypeVar("K")
V = TypeVar("V")
Station = Literal[
    "onset", "suspicion", "forecast", "incident", "command", "refusal", "report", "limit", "told",
]  # fmt: skip


_LEVELS: dict[SuspicionState, Level] = {
    "healthy": "good",
    "suspect": "warning",
    "degraded": "critical",
}
_INFO: Level = "info"
_WARNING: Level = "warning"
_SAID: dict[SuspicionState, str] = {
    "healthy": "no longer suspected",
    "suspect": "suspected",
    "degraded": "degraded: strong evidence",
}


@dataclass(frozen=True)
class Truth:
    """What is known from outside: when the leak began, and when it would have met its limit."""

    onset: Instant
    limit_time: Instant


@dataclass(frozen=True)
class Moment:
    """One station of an incident's way. `mark`: the word beside it in a plot."""

    time: Instant
    station: Station
    text: str
    level: Level = "info"
    mark: str = ""


@dataclass(frozen=True)
class Case:
    """Everything about one incident, for a page. All are in the order in which they came."""

    incident: Incident
    history: tuple[Incident, ...]
    suspicions: tuple[Suspicion, ...]
    commands: tuple[IsolationCommand | Proposal, ...]
    reports: tuple[ExecutionReport, ...]
    refusals: tuple[Refusal, ...]
    deliveries: tuple[Delivery, ...]
    curve: Curve | None
    neighbours: tuple[Curve, ...]
    node: Curve | None

    @property
    def wishes(self) -> tuple[IsolationCommand, ...]:
        """Return the commands, and those that waited for a person."""
        return tuple(one.command if isinstance(one, Proposal) else one for one in self.commands)

    @property
    def act(self) -> IsolationCommand | None:
        """Return the first command that changes something: no mere telling, no giving back."""
        return next((one for one in self.wishes if one.action not in {"notify", "release"}), None)

    @property
    def done(self) -> ExecutionReport | None:
        """Return the report that says that the act was carried out; a dry run is none."""
        act = self.act
        if act is None or is_dry(act):
            return None
        told = self.report_on(act)
        return next((one for one in told if one.outcome in {"done", "already"}), None)

    @property
    def decisive(self) -> Suspicion | None:
        """Return the suspicion on which was decided: the last one with a forecast before the act.

        Without an act: the last one with a forecast.
        """
        until = self.act.issued if self.act else None
        found = None
        for one in self.suspicions:
            if one.exhaustion is not None and (until is None or one.time <= until or found is None):
                found = one
        return found

    def report_on(self, command: IsolationCommand) -> tuple[ExecutionReport, ...]:
        """Return what became of a command."""
        return tuple(one for one in self.reports if one.command == command.id)


def moments(case: Case, truth: Truth | None) -> list[Moment]:
    """Return the stations of the incident's way in order of time."""
    found = [*_judged(case), *_decided(case), *_told(case)]
    if truth is not None:
        found.append(Moment(truth.onset, "onset", "the leak begins", mark="leak begins"))
        stopped = case.done is not None and case.done.finished < truth.limit_time
        text = "would have met its limit" if stopped else "meets its limit"
        found.append(Moment(truth.limit_time, "limit", text, "critical", mark=text))
    order: dict[Station, int] = {"onset": 0, "suspicion": 1, "forecast": 2, "incident": 3}
    return sorted(found, key=lambda moment: (moment.time, order.get(moment.station, 4)))


def _judged(case: Case) -> list[Moment]:
    found: list[Moment] = []
    said: SuspicionState = "healthy"
    ahead = False
    for one in case.suspicions:
        if one.state != said:
            said = one.state
            text = _SAID[said]
            first = said != "healthy" and not any(item.station == "suspicion" for item in found)
            mark = "suspected" if first else ""
            found.append(Moment(one.time, "suspicion", text, _LEVELS[said], mark))
        if one.exhaustion is not None and not ahead:
            ahead = True
            text = f"first forecast: its limit {forecast_words(one)}"
            found.append(Moment(one.time, "forecast", text, "warning"))
    return found


def _decided(case: Case) -> list[Moment]:
    found = []
    state = None
    for one in case.history:
        if one.state != state:
            state = one.state
            level: Level = "good" if state in {"contained", "closed", "probation"} else one.severity
            mark = "incident" if state == "open" else ""
            text = f"incident {'opened' if state == 'open' else state}: {one.sentence}"
            found.append(Moment(one.updated or one.opened, "incident", text, level, mark))
    for wish in case.wishes:
        mark = "command" if wish == case.act else ""
        dry = ", as a dry run" if is_dry(wish) else ""
        text = f"{wish.action} is ordered{dry}: {wish.reason}"
        found.append(Moment(wish.issued, "command", text, "info", mark))
        for report in case.report_on(wish):
            found.append(_report(wish, report, case))  # noqa: PERF401  # nested twice reads worse
    found += [
        Moment(one.time, "refusal", f"{one.action} is refused: {one.reason}")
        for one in case.refusals
    ]
    return found


def _report(wish: IsolationCommand, report: ExecutionReport, case: Case) -> Moment:
    done = report.outcome in {"done", "already"}
    word = outcome_words(wish, report)
    text = f"{word}: {report.detail}" if report.detail else word
    mark = word if report == case.done or not done else ""
    level: Level = ("info" if is_dry(wish) else "good") if done else "warning"
    return Moment(report.finished, "report", text, level, mark)


def _told(case: Case) -> list[Moment]:
    found: dict[tuple[str, str], Moment] = {}
    for one in case.deliveries:
        text, level = f"told by {one.notifier}: {one.state or 'the news'}", _INFO
        if one.outcome not in {"done", "already"}:
            text, level = f"could not be told by {one.notifier}: {one.detail}", _WARNING
        found.setdefault((one.notifier, one.state), Moment(one.time, "told", text, level))
    return list(found.values())


def lead_words(case: Case, truth: Truth | None) -> tuple[str, str]:
    """Return (figure, what it is) of how long before the limit the act was carried out."""
    done, decisive = case.done, case.decisive
    if done is None:
        dry = case.act is not None and is_dry(case.act)
        return "none", "as a dry run: nothing was done" if dry else "nothing was carried out"
    if truth is not None:
        lead_s = truth.limit_time.since(done.finished)
        return duration_text(lead_s), "before it would have met its limit"
    if decisive is not None and decisive.exhaustion is not None:
        lead_s = decisive.exhaustion.time.since(done.finished)
        return duration_text(lead_s), "before the forecast limit"
    return "unknown", "no forecast was made"


class CaseFile:
    """An incident's file while the story goes on. Not safe for several threads by itself."""

    def __init__(self, incident: Incident, thing: Thing) -> None:
        """Open the file of an incident at a thing."""
        self.history: list[Incident] = [incident]
        self.thing = thing
        self.commands: dict[str, IsolationCommand | Proposal] = {}
        self.reports: dict[tuple[str, str], ExecutionReport] = {}
        self.refusals: dict[str, Refusal] = {}
        self.deliveries: list[Delivery] = []
        self.exhibits: dict[Thing, Thing] = {}

    @property
    def incident(self) -> Incident:
        """Return the incident as it was told last."""
        return self.history[-1]

    @property
    def closed(self) -> bool:
        """Tell whether it is over."""
        return self.incident.state == "closed"

    def update(self, incident: Incident) -> bool:
        """Take the next state; tell whether it says something new."""
        if incident in self.history:
            return False
        self.history.append(incident)
        if len(self.history) > KEPT_MAX:
            del self.history[KEPT_MAX // 2]
        return True

    def decide(self, message: IsolationCommand | Proposal | Refusal) -> bool:
        """Take a decision; tell whether it is a new one."""
        if isinstance(message, Refusal):
            return _keep(self.refusals, message.id, message)
        wish = message.command if isinstance(message, Proposal) else message
        return _keep(self.commands, wish.id, message)

    def report(self, report: ExecutionReport) -> bool:
        """Take a report; tell whether it is a new one."""
        return _keep(self.reports, (report.command, report.outcome), report)

    def deliver(self, delivery: Delivery) -> None:
        """Note who was told."""
        if len(self.deliveries) < KEPT_MAX:
            self.deliveries.append(delivery)

    def follow(self, beside: list[Thing]) -> None:
        """Bring the readings up to date; `beside`: its node and neighbours, the largest first."""
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
            incident=self.incident,
            history=tuple(self.history),
            suspicions=self._suspicions(),
            commands=tuple(self.commands.values()),
            reports=tuple(self.reports.values()),
            refusals=tuple(self.refusals.values()),
            deliveries=tuple(self.deliveries),
            curve=own.curve(names[own.scope], self._signal(own)) if own and own.series else None,
            neighbours=tuple(one.curve(names[one.scope]) for one in beside if one is not node),
            node=node.curve(names[node.scope]) if node else None,
        )

    def _suspicions(self) -> tuple[Suspicion, ...]:
        """Return the suspicions that led to this incident and came while it was open."""
        opened = self.history[0].opened
        until = (self.incident.updated or opened) if self.closed else None
        told = self.thing.suspicions
        calm = [i for i, one in enumerate(told) if one.state == "healthy" and one.time < opened]
        since = calm[-1] + 1 if calm else 0
        return tuple(one for one in told[since:] if until is None or one.time <= until)

    def _signal(self, own: Thing) -> str | None:
        """Return the signal that the incident is about, of those that were read."""
        evidence = self.incident.evidence or self.history[0].evidence
        return next((one.signal for one in evidence if one.signal in own.series), None)


def _keep(kept: dict[K, V], key: K, value: V) -> bool:
    if key in kept or len(kept) >= KEPT_MAX:
        return False
    kept[key] = value
    return True
