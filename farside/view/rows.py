"""One row of the table of scopes: what is known of a thing now, in one line."""

from bus.messages import NodeHealth
from farside.view.casefiles import CaseFile
from farside.view.events import is_dry
from farside.view.snapshot import Row
from farside.view.things import Thing
from runtime.clock import Instant
from runtime.words import duration_text

_HOLDS = {"freeze": "frozen", "throttle": "throttled", "limit": "limited"}
_ENDS = {"reclaim": "ended", "drain": "drained", "isolate": "isolated"}


def row_of(
    thing: Thing,
    name: str,
    now: Instant,
    case: CaseFile | None,
    health: NodeHealth | None,
    *,
    gone: bool,
) -> Row:
    """Return the row of a thing; `case` is its latest incident, `health` its node's state."""
    latest = thing.latest
    incident = case.incident if case else None
    held, until, note = _effect(thing, case, now)
    state = latest.state if latest else "healthy"
    word = held or (health.state if health else state)
    if gone and not held:
        word = note if note in _ENDS.values() else "gone"
    return Row(
        scope=thing.scope,
        name=name,
        used=thing.used(),
        limit=thing.limit(),
        file_bytes=thing.file(),
        growth_5s=thing.growth(5.0),
        growth_30s=thing.growth(30.0),
        state=state,
        score=latest.score if latest and latest.state != "healthy" else None,
        since=latest.since if latest and latest.state != "healthy" else None,
        # What is held grows no more: its forecast was right when it was made.
        exhaustion=latest.exhaustion if latest and not (held or gone) else None,
        health=word,
        incident=incident.id if incident else "",
        incident_state=incident.state if incident else None,
        severity=incident.severity if incident else None,
        held=held,
        held_until=until,
        note=note or _waits(case),
        seen=Instant(thing.seen_ns) if thing.seen_ns else None,
        gone=gone,
    )


def _effect(thing: Thing, case: CaseFile | None, now: Instant) -> tuple[str, Instant | None, str]:
    """Return (held, until, note): what our commands did to it, as the reports say."""
    held, until, note = ("frozen", None, "") if thing.frozen() else ("", None, "")
    if case is None:
        return held, until, note
    commands = case.commands
    for report in case.reports:
        command = commands.get(report.command)
        if command is None or is_dry(command) or report.outcome not in {"done", "already"}:
            continue
        action = command.action
        if action == "release":
            held, until, note = "", None, "released"
        elif action in _HOLDS:
            held, until = _HOLDS[action], report.held_until
            note = f"lifted in {_coarse(until.since(now))}" if until else ""
        elif action in _ENDS:
            held, until, note = "", None, _ENDS[action]
    if until is not None and until < now:
        return "", None, "no longer held"
    return held, until, note


def _coarse(duration_s: float) -> str:
    """Return a duration in whole minutes from two on: a table has little room."""
    return duration_text(duration_s // 60 * 60 if duration_s >= 120 else duration_s)


def _waits(case: CaseFile | None) -> str:
    """Return why nothing was done, or what is under way, where that is so."""
    if case is None or case.closed:
        return ""
    answered = {report.command for report in case.reports}
    for wish in case.commands.values():
        if wish.id in answered:
            continue
        if wish.id in case.proposed:
            return f"{wish.action} waits for a person"
        return f"{wish.action} ordered" + (" (dry run)" if is_dry(wish) else "")
    last = case.refusals[-1] if case.refusals and not case.reports else None
    return f"{last.action} refused: {last.reason}" if last else ""
