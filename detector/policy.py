"""The decision: what is to be done about an incident, or why not; a function of its arguments.

For containers and processes whose memory leaks the weakest act comes first, and late: a freeze
takes milliseconds, so it waits until the early end of the forecast lies within the time that the
act takes plus a margin of polls. What can't be undone needs more evidence than what can.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bus.messages import (
    EXECUTORS_OF,
    Action,
    Contribution,
    Directive,
    IsolationCommand,
    Refusal,
    Scope,
    Suspicion,
)
from detector import budgets, explain
from detector.budgets import Ledger, No
from detector.deciding import ActRule, DeciderSettings
from detector.incidents import HOLDS, PLACES, STAYS, WORKED, Case, short_id
from detector.suspicions import WORK, act_window_s, is_bad, poll_s
from runtime.clock import Instant
from runtime.words import duration_text

# Weakest first. A throttled leak still reaches a limit that is three polls away, so freezing, which
# can be undone just as well, comes before throttling.
WORK_LADDER: tuple[Action, ...] = ("freeze", "throttle", "limit", "reclaim")
SOFT: tuple[Action, ...] = ("hold", "deprioritize", "checkpoint", "drain_at_checkpoint")
HARD: tuple[Action, ...] = ("drain", "isolate")
DRY_RUN = "dry_run"
DEMANDING = frozenset({"reclaim"})
MEMORY = frozenset({"memory_leak", "memory_exhaustion"})
# Evidence on the state of the thing itself, not on the shape of its growth. Hits of a limit are no
# such evidence: page cache alone causes them.
STATE_EVIDENCE = frozenset(
    {
        "near_limit",
        "memory_pressure",
        "oom",
        "container_memory_oom_kills_total",
        "container_memory_pressure_full_percent",
        "memory_oom_kills_total",
        "memory_pressure_full_percent",
    },
)


class View(NamedTuple):
    """What a decision sees besides the incident.

    left_s: to the early end of the forecast, its own or that of a container around it. shared: the
    sentence on a common cause, where there is one. within: the case that must come first.
    """

    now: Instant
    left_s: float
    pool: str
    rule: ActRule | None
    executors: Sequence[str]
    stopped: Directive | None
    shared: str
    within: Case | None
    held: Sequence[Scope]
    known_nodes: int
    ledger: Ledger


class Wish(NamedTuple):
    """What is wanted, and on what grounds."""

    case: Case
    action: Action
    suspicion: Suspicion


class Decision(NamedTuple):
    """A command, or a refusal and its kind."""

    kind: str
    message: IsolationCommand | Refusal


def decide(case: Case, view: View, settings: DeciderSettings) -> Decision | None:
    """Return what is to be done about an incident now, why not, or None where nothing is.

    A refusal's identifier follows from incident, action and kind, so that it is told once.
    """
    suspicion = case.judged_on()
    if suspicion is None or _busy(case, view.now):
        return None
    if not is_bad(suspicion, case.fault, settings):
        return None
    wanted = _wanted(case, suspicion, view, settings)
    if wanted is None:
        return None
    action, problem = wanted
    wish = Wish(case, action, suspicion)
    guards = (_stopped, _old, _shared, _within, _unnamed, _unknown, _paused, _full, _spent)
    for guard in guards:
        problem = problem or guard(wish, view, settings)
    if problem is not None:
        return Decision(problem.kind, _refusal(wish, problem, view.now))
    return Decision("act", _command(wish, view, settings))


def release(
    case: Case, holding: IsolationCommand, wish: Directive, now: Instant, settings: DeciderSettings
) -> IsolationCommand:
    """Return the command that lifts what `holding` holds, because a person says so."""
    generation = case.generation + 1
    why = f": {wish.reason}" if wish.reason else ""
    return IsolationCommand(
        id=short_id(case.id, "release", generation),
        scope=case.scope,
        action="release",
        executor=holding.executor,
        precondition={"command": holding.id},
        generation=generation,
        reason=explain.one_line(f"{wish.who} releases {explain.name(case.scope)}{why}"),
        incident=case.id,
        issued=now,
        expires=now.plus(settings.command_ttl_s),
        dry_run=holding.dry_run,
    )


# --- what is wanted ------------------------------------------------------------------------------


def _wanted(
    case: Case, suspicion: Suspicion, view: View, settings: DeciderSettings
) -> tuple[Action, No | None] | None:
    """Return the weakest action that fits, with the reason where none of those allowed does."""
    ladder = _ladder(case, suspicion, view.left_s, settings)
    if not ladder:
        return None
    listed = [action for action in ladder if view.rule is not None and action in view.rule.actions]
    if not listed:
        return ladder[0], _off(case, view, ladder[0])
    usable = [action for action in listed if _usable(case, action, view.now, settings)]
    for action in _stronger_first(case, usable):
        if action not in DEMANDING or _may_end(suspicion, view.left_s, settings):
            return action, None
    return (usable[0], _too_little(suspicion)) if usable else None


def _ladder(
    case: Case, suspicion: Suspicion, left: float, settings: DeciderSettings
) -> tuple[Action, ...]:
    """Return the actions that would do something about this now, the weakest first."""
    if case.scope.kind in WORK:
        near = case.fault in MEMORY and left <= act_window_s(suspicion, settings)
        return WORK_LADDER if near else ()
    if case.scope.kind not in PLACES or case.fault == "telemetry":
        return ()
    if case.fault == "memory_leak" and left > settings.drain_s:
        return ()
    return (*SOFT, *HARD) if suspicion.state == "degraded" else SOFT


def _off(case: Case, view: View, action: Action) -> No:
    section = f"[act.{case.fault}.{view.pool}]"
    if view.rule is None or not view.rule.actions:
        reason = f"acting is off for {case.fault} in pool {view.pool}; {section} switches it on"
    else:
        reason = f"{action} is not among the actions of {section}"
    return No("off", reason)


def _usable(case: Case, action: Action, now: Instant, settings: DeciderSettings) -> bool:
    """Tell whether an action may be tried: what failed waits, and not for ever."""
    attempt = case.attempts.get(action)
    if attempt is None or attempt.outcome in WORKED:
        return True
    waited_s = now.since(attempt.time)
    return attempt.count < settings.tries_max and waited_s >= settings.cooldown_s


def _stronger_first(case: Case, usable: Sequence[Action]) -> list[Action]:
    """Return what was not done yet before what was done and did not cure."""
    tried = [
        place
        for place, action in enumerate(usable)
        if action in case.attempts and case.attempts[action].outcome in WORKED
    ]
    after = tried[-1] + 1 if tried else 0
    return [*usable[after:], *usable[:after]]


def _may_end(suspicion: Suspicion, left: float, settings: DeciderSettings) -> bool:
    """Tell whether there is enough to end it: a second width, or its own state and no time left."""
    if len(suspicion.widths) > 1:
        return True
    soon = left <= settings.act_time_s + poll_s(suspicion)
    return soon and _shows_state(suspicion.contributions)


def _shows_state(contributions: Iterable[Contribution]) -> bool:
    return any(part.signal.partition(" ")[0] in STATE_EVIDENCE for part in contributions)


def _too_little(suspicion: Suspicion) -> No:
    seen = "one width" if suspicion.widths else "no width"
    return No(
        "evidence",
        f"ending it can't be undone: a leak seen at {seen} only is ended when its limit is one "
        "poll away and its own state says so too",
    )


def _busy(case: Case, now: Instant) -> bool:
    """Tell whether something is under way or in force."""
    if case.pending or case.state not in {"open", "probation"}:
        return True
    rehearsed = case.command is not None and case.command.dry_run
    return rehearsed and case.held_until is not None and now <= case.held_until


# --- what may stand against it -------------------------------------------------------------------


def _stopped(_: Wish, view: View, __: DeciderSettings) -> No | None:
    order = view.stopped
    if order is None or (order.until is not None and view.now > order.until):
        return None
    why = f": {order.reason}" if order.reason else ""
    return No("stopped", explain.one_line(f"everything was stopped by {order.who}{why}"))


def _old(wish: Wish, view: View, settings: DeciderSettings) -> No | None:
    age_s = view.now.since(wish.suspicion.time)
    if abs(age_s) <= settings.age_limit_s:
        return None
    limit = duration_text(settings.age_limit_s)
    subject = f"what is known of {explain.name(wish.case.scope)}"
    if age_s < 0:
        return No("age", f"{subject} lies {-age_s:.0f} s in the future, limit {limit}")
    return No("age", f"{subject} is {age_s:.0f} s old, limit {limit}")


def _shared(_: Wish, view: View, __: DeciderSettings) -> No | None:
    return No("common", view.shared) if view.shared else None


def _within(_: Wish, view: View, __: DeciderSettings) -> No | None:
    if view.within is None:
        return None
    inner = explain.name(view.within.scope)
    return No("within", f"{inner}, which lies inside it, is dealt with first")


def _unnamed(wish: Wish, _: View, __: DeciderSettings) -> No | None:
    if _precondition(wish):
        return None
    return No("identity", "its boot and identity are not known, so it can't be told apart")


def _unknown(wish: Wish, view: View, settings: DeciderSettings) -> No | None:
    if _executor(wish, view, settings):
        return None
    return No("executor", f"no executor that knows {wish.action} is configured")


def _paused(wish: Wish, view: View, settings: DeciderSettings) -> No | None:
    return view.ledger.pause(wish.case.scope, view.now, settings)


def _full(wish: Wish, view: View, settings: DeciderSettings) -> No | None:
    if wish.action not in HOLDS | STAYS:
        return None
    return budgets.room(wish.case.scope, view.held, view.known_nodes, settings)


def _spent(_: Wish, view: View, settings: DeciderSettings) -> No | None:
    return view.ledger.rate(view.now, settings)


# --- what comes of it ----------------------------------------------------------------------------


def _command(wish: Wish, view: View, settings: DeciderSettings) -> IsolationCommand:
    case, action, now = wish.case, wish.action, view.now
    executor = _executor(wish, view, settings)
    generation = case.generation + 1
    return IsolationCommand(
        id=short_id(case.id, action, generation),
        scope=case.scope,
        action=action,
        executor=executor,
        precondition=_precondition(wish),
        generation=generation,
        reason=explain.sentence(case.scope, case.fault, wish.suspicion, now),
        incident=case.id,
        issued=now,
        expires=now.plus(settings.command_ttl_s),
        dry_run=_dry(view, settings) or executor == DRY_RUN,
        hold_until=now.plus(settings.hold_s) if action in HOLDS else None,
    )


def _refusal(wish: Wish, problem: No, now: Instant) -> Refusal:
    return Refusal(
        id=short_id(wish.case.id, wish.action, problem.kind),
        scope=wish.case.scope,
        incident=wish.case.id,
        action=wish.action,
        reason=problem.reason,
        time=now,
    )


def _dry(view: View, settings: DeciderSettings) -> bool:
    return settings.dry_run or (view.rule is not None and view.rule.dry_run)


def _executor(wish: Wish, view: View, settings: DeciderSettings) -> str:
    """Return the first executor that knows the action; the rehearsing one first in a dry run."""
    able = [name for name in view.executors if name in EXECUTORS_OF[wish.action]]
    able.sort(key=lambda name: (name == DRY_RUN) != _dry(view, settings))
    return able[0] if able else ""


def _precondition(wish: Wish) -> dict[str, str]:
    """Return what must still be so when the command is carried out; empty where it is not known."""
    scope, boot = wish.case.scope, wish.suspicion.boot
    parts: Sequence[str] = ()
    names: Sequence[str] = ()
    if scope.kind == "process":
        parts, names = scope.name.rsplit(":", 2)[1:], ("pid", "start")
    elif scope.kind == "container":
        parts, names = scope.name.rsplit("@", 1), ("cgroup", "inode")
    if not boot or len(parts) != len(names) or not all(parts):
        return {}
    return {"boot": boot, **dict(zip(names, parts, strict=True))}
