"""What happened, in one line each: which messages are worth a line, and what it says."""

from bus.messages import (
    Delivery,
    Directive,
    ExecutionReport,
    Incident,
    IsolationCommand,
    LogLine,
    Message,
    NodeHealth,
    Proposal,
    Refusal,
    Suspicion,
)
from farside.view.snapshot import Event, EventKind, Level
from runtime.clock import Instant
from runtime.words import estimate_text, plain_text, share_text

TEXT_CHARS_MAX = 400
DONE_WORDS = {
    "notify": "told",
    "hold": "held",
    "deprioritize": "deprioritized",
    "checkpoint": "checkpoint asked for",
    "freeze": "frozen",
    "throttle": "throttled",
    "limit": "limited",
    "reclaim": "ended",
    "drain_at_checkpoint": "to be drained at the next checkpoint",
    "drain": "drained",
    "isolate": "isolated",
    "diagnose": "diagnosed",
    "release": "released",
}
_LOG_LEVELS: dict[str, Level] = {"warning": "warning", "error": "warning", "fatal": "critical"}


def is_dry(command: IsolationCommand) -> bool:
    """Tell whether a command changes nothing, whatever is reported of it."""
    return command.dry_run or command.executor == "dry_run"


def outcome_words(command: IsolationCommand | None, report: ExecutionReport) -> str:
    """Return what became of a command: "frozen", "freeze failed", "freeze, as a dry run"."""
    action = command.action if command else "command"
    if report.outcome not in {"done", "already"}:
        return f"{action} {report.outcome}"
    if command is not None and is_dry(command):
        return f"{action}, as a dry run"
    return DONE_WORDS.get(action, action)


def forecast_words(suspicion: Suspicion) -> str:
    """Return when the limit will be met, seen from the suspicion: "in 7 s (6-9 s)"."""
    end = suspicion.exhaustion
    if end is None:
        return ""
    ahead = (moment.since(suspicion.time) for moment in (end.time, end.low, end.high))
    return f"in {estimate_text(*ahead)}"


def event_of(message: Message, name: str, previous: Suspicion | None) -> Event | None:
    """Return the line for a message, or None where it says nothing new to a person.

    `name` is the short name of the message's scope; `previous` the suspicion of it before this one.
    """
    match message:
        case Suspicion():
            return _suspicion(message, name, previous)
        case Incident():
            return _incident(message)
        case IsolationCommand() | Proposal() | Refusal():
            return _decision(message, name)
        case _:
            return _aside(message, name)


def _aside(message: Message, name: str) -> Event | None:
    """Return the line for what is no station of an incident's way."""
    match message:
        case LogLine() if "kind" in message.fields:
            level = _LOG_LEVELS.get(message.fields.get("severity", ""), "info")
            text = f"{message.source}: {message.text}"
            return _event(message.time, "log", text, level, message.node)
        case Directive():
            what = " ".join(filter(None, (message.kind.replace("_", " "), name, message.reason)))
            return _event(message.time, "directive", f"{message.who}: {what}")
        case Delivery() if message.outcome in {"failed", "refused", "expired"}:
            text = f"{message.notifier} could not be told: {message.detail or message.outcome}"
            return _event(message.time, "delivery", text, "warning", incident=message.incident)
        case NodeHealth() if message.state in {"isolated", "isolating", "diagnosing"}:
            text = f"{message.node} is {message.state}: {message.sentence}".rstrip(": ")
            return _event(message.since, "health", text, "warning", scope=message.node)
    return None


def report_event(
    report: ExecutionReport,
    name: str,
    command: IsolationCommand | None,
) -> Event:
    """Return the line for a report, in the words of the command that it answers."""
    incident = command.incident if command else ""
    word = outcome_words(command, report)
    head = f"{name}: {word}" if name else word
    text = f"{head} \u2013 {report.detail}" if report.detail else head
    done = report.outcome in {"done", "already"}
    level: Level = ("info" if command and is_dry(command) else "good") if done else "warning"
    return _event(report.finished, "report", text, level, scope=name, incident=incident)


def _suspicion(message: Suspicion, name: str, previous: Suspicion | None) -> Event | None:
    before = previous.state if previous else "healthy"
    if message.state != before:
        if message.state == "healthy":
            return _event(message.time, "suspicion", f"{name}: no longer suspected", scope=name)
        fault = max(message.p_bad, key=message.p_bad.__getitem__, default=None)
        belief = f", {share_text(message.p_bad[fault])} sure" if fault else ""
        what = (fault or "trouble").replace("_", " ")
        ahead = f"; limit {forecast_words(message)}" if message.exhaustion else ""
        level: Level = "critical" if message.state == "degraded" else "warning"
        text = f"{name}: {message.state} ({what}{belief}){ahead}"
        return _event(message.time, "suspicion", text, level, scope=name)
    if message.exhaustion and not (previous and previous.exhaustion):
        text = f"{name}: will hit its limit {forecast_words(message)}"
        return _event(message.time, "forecast", text, "warning", scope=name)
    return None


def _incident(message: Incident) -> Event:
    level: Level = message.severity
    if message.state in {"contained", "probation", "closed"}:
        level = "good"
    text = f"{message.state}: {message.sentence or message.scope.label}"
    return _event(
        message.updated or message.opened,
        "incident",
        text,
        level,
        scope=message.scope.label,
        incident=message.id,
    )


def _decision(message: IsolationCommand | Proposal | Refusal, name: str) -> Event:
    match message:
        case IsolationCommand():
            dry = " (dry run)" if is_dry(message) else ""
            text = f"{message.action} {name}{dry} \u2013 {message.reason}"
            return _event(
                message.issued, "command", text, "info", scope=name, incident=message.incident
            )
        case Proposal():
            wish = message.command
            text = f"{wish.action} {name} waits for a person \u2013 {wish.reason}"
            return _event(
                wish.issued, "proposal", text, "warning", scope=name, incident=wish.incident
            )
        case Refusal():
            text = f"{message.action} {name} refused \u2013 {message.reason}"
            return _event(
                message.time, "refusal", text, "info", scope=name, incident=message.incident
            )


def _event(
    time: Instant,
    kind: EventKind,
    text: str,
    level: Level = "info",
    scope: str = "",
    incident: str = "",
) -> Event:
    return Event(
        time=time,
        kind=kind,
        text=plain_text(text, TEXT_CHARS_MAX),
        level=level,
        scope=plain_text(scope, 200),
        incident=incident,
    )
