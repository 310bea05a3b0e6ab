"""One incident as people read it: all that was said and done about it, in order of time."""

from dataclasses import dataclass, replace
from typing import Literal

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
from farside.view.things import Curve
from runtime.clock import Instant
from runtime.words import duration_text

Said = Incident | IsolationCommand | Proposal | Refusal | ExecutionReport | Delivery
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
    """Everything about one incident, for a page.

    said: what was decided, reported and told, in the order in which it came; never empty.
    """

    said: tuple[Said, ...]
    suspicions: tuple[Suspicion, ...]
    curve: Curve | None
    neighbours: tuple[Curve, ...]
    node: Curve | None

    @property
    def history(self) -> tuple[Incident, ...]:
        """Return the incident as it was told at each change."""
        return tuple(one for one in self.said if isinstance(one, Incident))

    @property
    def incident(self) -> Incident:
        """Return the incident as it was told last."""
        return self.history[-1]

    @property
    def commands(self) -> tuple[IsolationCommand | Proposal, ...]:
        """Return what was ordered or proposed."""
        return tuple(one for one in self.said if isinstance(one, IsolationCommand | Proposal))

    @property
    def reports(self) -> tuple[ExecutionReport, ...]:
        """Return what became of the orders."""
        return tuple(one for one in self.said if isinstance(one, ExecutionReport))

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Return what the decider refused."""
        return tuple(one for one in self.said if isinstance(one, Refusal))

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """Return who was told."""
        return tuple(one for one in self.said if isinstance(one, Delivery))

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
    found = [*_judged(case), *_said(case)]
    if truth is not None:
        found.append(Moment(truth.onset, "onset", "the leak begins", mark="leak begins"))
        stopped = case.done is not None and case.done.finished < truth.limit_time
        text = "would have met its limit" if stopped else "meets its limit"
        found.append(Moment(truth.limit_time, "limit", text, "critical", mark=text))
    first: dict[Station, int] = {"onset": 0, "suspicion": 1, "forecast": 2}
    return sorted(found, key=lambda moment: (moment.time, first.get(moment.station, 3)))


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


def _said(case: Case) -> list[Moment]:
    """Return what was decided and done, none earlier than what came before it.

    The decider stamps with the time that it judges, which lags behind that of an executor's report.
    """
    found: list[Moment] = []
    known: set[str] = set()
    latest = case.history[0].opened
    for message in case.said:
        moment = _moment(message, case)
        if moment is None:
            continue
        latest = max(latest, moment.time)
        key = _once(message)
        if key not in known:
            found.append(replace(moment, time=latest))
        known.add(key)
    return found


def _once(message: Said) -> str:
    """Return what must differ for a message to be told as another one."""
    if isinstance(message, Incident):
        return f"incident {message.state}"
    if isinstance(message, Delivery):
        return f"told {message.notifier} {message.state}"
    return repr(message)


def _moment(message: Said, case: Case) -> Moment | None:
    match message:
        case Incident():
            return _state(message)
        case IsolationCommand() | Proposal():
            return _order(message, case)
        case Refusal():
            text = f"{message.action} is refused: {message.reason}"
            return Moment(message.time, "refusal", text)
        case ExecutionReport():
            wish = next((one for one in case.wishes if one.id == message.command), None)
            return _report(wish, message, case) if wish else None
        case Delivery():
            text, level = f"told by {message.notifier}: {message.state or 'the news'}", _INFO
            if message.outcome not in {"done", "already"}:
                text = f"could not be told by {message.notifier}: {message.detail}"
                level = _WARNING
            return Moment(message.time, "told", text, level)


def _state(one: Incident) -> Moment:
    level: Level = "good" if one.state in {"contained", "closed", "probation"} else one.severity
    opened = one.state == "open"
    text = f"incident {'opened' if opened else one.state}: {one.sentence}"
    time = one.opened if opened else one.updated or one.opened
    return Moment(time, "incident", text, level, "incident" if opened else "")


def _order(message: IsolationCommand | Proposal, case: Case) -> Moment:
    wish = message.command if isinstance(message, Proposal) else message
    word = "is proposed, and waits for a person" if isinstance(message, Proposal) else "is ordered"
    dry = ", as a dry run" if is_dry(wish) else ""
    text = f"{wish.action} {word}{dry}: {wish.reason}"
    return Moment(wish.issued, "command", text, "info", "command" if wish == case.act else "")


def _report(wish: IsolationCommand, report: ExecutionReport, case: Case) -> Moment:
    done = report.outcome in {"done", "already"}
    word = outcome_words(wish, report)
    text = f"{word}: {report.detail}" if report.detail else word
    mark = word if report == case.done or report.outcome in {"failed", "refused"} else ""
    level: Level = "good" if done else "info" if report.outcome == "expired" else "warning"
    if is_dry(wish):
        level = "info"
    return Moment(report.finished, "report", text, level, mark)


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
