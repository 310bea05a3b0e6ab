"""Judges a demo run: what farside said and did, held against what really happened. Pure.

What must be so, by the demo's own promise:

plain      the leaking one is suspected, forecast, becomes an incident and is frozen or ended before
           its limit, it alone; its neighbours live on and are not even suspected
--hard     as plain, but slow neighbours look like leaks until they level off: they may be
           suspected, never acted on
--no-leak  no incident is opened; everybody lives on
--no-act   nothing is done, and the leaking one really dies at its limit; its neighbours live on
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from bus.messages import (
    ExecutionReport,
    Exhaustion,
    Incident,
    IsolationCommand,
    Message,
    Refusal,
    Scope,
    Suspicion,
)
from bus.transport import Envelope
from farside.demo.plan import Plan
from farside.demo.truth import Child, Truth
from runtime.clock import Instant

# They change nothing on a machine: telling people, and giving back what was held.
_HARMLESS = frozenset({"notify", "release"})
_ENDS_THE_GROWTH = frozenset({"freeze", "reclaim"})
_CARRIED_OUT = frozenset({"done", "already"})

T = TypeVar("T", bound=Message)


@dataclass(frozen=True)
class Forecast:
    """One forecast of the leak's limit, and how far off it was.

    `error_percent` is the error over the time that was left when it was made: +10 means 10 % too
    late. `covers` tells whether the truth lies inside the forecast's interval.
    """

    made: Instant
    exhaustion: Exhaustion
    error_s: float
    error_percent: float
    covers: bool


@dataclass(frozen=True)
class Result:
    """What a run came to; `failures` is empty when it kept its promise.

    Times are moments on the wall clock. `lead_s` is how long before the leak's limit the act was
    carried out. Names are those of the plan's members.
    """

    seed: int
    mode: str
    truth: Truth
    suspected_at: Instant | None = None
    forecast: Forecast | None = None
    incident: Incident | None = None
    command: IsolationCommand | None = None
    report: ExecutionReport | None = None
    lead_s: float | None = None
    neighbours_suspected: tuple[str, ...] = ()
    neighbours_acted_on: tuple[str, ...] = ()
    harmed: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Tell whether all of the promise was kept."""
        return not self.failures

    @property
    def caught(self) -> bool:
        """Tell whether the leak was stopped before its limit (whatever else went wrong)."""
        leak = self.truth.leak
        stopped = leak is not None and leak.ending in {"stopped", "killed"} and leak.hits == 0
        return stopped and self.lead_s is not None and self.lead_s > 0


class _Story:
    """The records of a run, sorted by what they are."""

    def __init__(self, records: Iterable[Envelope]) -> None:
        self._messages: list[Message] = [record.message for record in records]
        self.suspicions = [one for one in self._of(Suspicion) if one.state != "healthy"]
        self.incidents = self._of(Incident)
        self.refusals = self._of(Refusal)
        self.commands = [
            one
            for one in self._of(IsolationCommand)
            if one.action not in _HARMLESS and not one.dry_run
        ]
        self._reports = self._of(ExecutionReport)

    def reports(self, command: IsolationCommand) -> list[ExecutionReport]:
        """Return all reports on a command."""
        return [one for one in self._reports if one.command == command.id]

    def carried_out(self, command: IsolationCommand) -> ExecutionReport | None:
        """Return the first report that says the command was carried out."""
        return next((one for one in self.reports(command) if one.outcome in _CARRIED_OUT), None)

    def _of(self, kind: type[T]) -> list[T]:
        return [message for message in self._messages if isinstance(message, kind)]


def means(scope: Scope, child: Child) -> bool:
    """Tell whether a scope is this child: by its cgroup or as a process."""
    if scope.kind == "container":
        return scope.name == child.device
    return scope.kind == "process" and scope.name == child.process


def judge(plan: Plan, truth: Truth, records: Sequence[Envelope], *, acting: bool = True) -> Result:
    """Hold a run's records against its truth.

    `truth` is what `Arena.truth` returned while that which farside froze was still frozen.
    `acting=False` judges a run with --no-act; whether it was --hard or --no-leak says the plan.
    """
    story = _Story(records)
    result = _seen(plan, truth, story, acting=acting)
    failures = [*_failed_neighbours(plan, result)]
    if plan.leak is None:
        failures += _failed_control(story, truth)
    elif acting:
        failures += _failed_catch(result, story)
    else:
        failures += _failed_no_act(result, story)
    return replace(result, failures=tuple(failures))


def _seen(plan: Plan, truth: Truth, story: _Story, *, acting: bool) -> Result:
    """Find the stations of the leak's way, and what befell the neighbours."""
    words = ["hard"] if plan.hard else []
    words += [] if plan.leak else ["no leak"]
    words += [] if acting else ["no act"]
    neighbours = [fate.child for fate in truth.neighbours]
    result = Result(
        seed=plan.seed,
        mode=", ".join(words) or "plain",
        truth=truth,
        neighbours_suspected=_named(neighbours, [one.scope for one in story.suspicions]),
        neighbours_acted_on=_named(neighbours, [one.scope for one in story.commands]),
        harmed=tuple(fate.child.name for fate in truth.neighbours if not fate.running),
    )
    if truth.leak is None:
        return result
    leak = truth.leak.child
    suspicions = [one for one in story.suspicions if means(one.scope, leak)]
    incidents = [one for one in story.incidents if means(one.scope, leak)]
    commands = [
        one for one in story.commands if means(one.scope, leak) and one.action in _ENDS_THE_GROWTH
    ]
    acted = [(one, report) for one in commands if (report := story.carried_out(one)) is not None]
    command, report = acted[0] if acted else (commands[0] if commands else None, None)
    return replace(
        result,
        suspected_at=min((one.time for one in suspicions), default=None),
        forecast=_forecast(suspicions, truth),
        incident=incidents[0] if incidents else None,
        command=command,
        report=report,
        lead_s=None if report is None else truth.limit.since(report.finished),
    )


def _forecast(suspicions: Sequence[Suspicion], truth: Truth) -> Forecast | None:
    """Return the first forecast that was made after the leak began."""
    for one in sorted(suspicions, key=lambda suspicion: suspicion.time):
        if one.exhaustion is None or one.time < truth.onset:
            continue
        error_s = one.exhaustion.time.since(truth.limit)
        left_s = truth.limit.since(one.time)
        return Forecast(
            made=one.time,
            exhaustion=one.exhaustion,
            error_s=error_s,
            error_percent=100.0 * error_s / max(left_s, 1.0),  # 1 s: a forecast at the limit itself
            covers=one.exhaustion.low <= truth.limit <= one.exhaustion.high,
        )
    return None


def _failed_neighbours(plan: Plan, result: Result) -> list[str]:
    failures = [f"{name}, a healthy neighbour, was acted on" for name in result.neighbours_acted_on]
    if not plan.hard:
        failures += [
            f"{name}, a healthy neighbour, was suspected" for name in result.neighbours_suspected
        ]
    failures += [
        f"{fate.child.name}, a healthy neighbour, {fate.sentence()}"
        for fate in result.truth.neighbours
        if not fate.running
    ]
    return failures


def _failed_control(story: _Story, truth: Truth) -> list[str]:
    # The first of each id wins. What else runs on this machine may really be ill.
    found = [one for one in story.incidents if not _foreign(one.scope, truth)]
    opened = {one.id: one for one in reversed(found)}
    return [
        f"an incident was opened though nothing leaks: {one.sentence or one.scope.label}"
        for one in reversed(opened.values())
    ]


def _foreign(scope: Scope, truth: Truth) -> bool:
    """Tell whether a container or process is neither one of the run's own nor around one."""
    if scope.kind not in {"container", "process"}:
        return False
    around = f"{scope.name.rpartition('@')[0].rstrip('/')}/"
    return not any(
        means(scope, fate.child)
        or (scope.kind == "container" and fate.child.device.startswith(around))
        for fate in truth.fates
    )


def _failed_catch(result: Result, story: _Story) -> list[str]:
    """Walk the leak's way; a station that was missed explains those behind it."""
    fate = result.truth.leak
    if fate is None:
        return []
    name = fate.child.name
    failures = [
        f"{one.action} was ordered for {one.scope.label}, which is not the leaking one"
        for one in story.commands
        if not any(means(one.scope, other.child) for other in result.truth.fates)
        # A stranger's leak may be real; what counts is that the executor leaves it alone.
        and not (_foreign(one.scope, result.truth) and story.carried_out(one) is None)
    ]
    if result.suspected_at is None:
        failures.append(f"{name} was never suspected")
    elif result.forecast is None:
        failures.append(f"{name} was suspected, but its limit was never forecast")
    if result.incident is None:
        failures.append(f"{name} never became an incident")
    elif result.incident.opened < result.truth.onset:
        early_s = result.truth.onset.since(result.incident.opened)
        failures.append(f"{name} became an incident {early_s:.1f} s before it leaked")
    failures += _failed_execution(result, story, name)
    if fate.ending == "alive":
        failures.append(f"{name} still runs and leaks")
    if fate.ending == "ended":
        failures.append(f"{name} {fate.sentence()}, which nobody asked for")
    if fate.ending == "at its limit":
        failures.append(f"{name} died at its limit")
    elif fate.hits:
        failures.append(f"{name} met its limit {fate.hits} times")
    return failures


def _failed_execution(result: Result, story: _Story, name: str) -> list[str]:
    if result.command is None:
        said = [
            f"{one.action} refused: {one.reason}"
            for one in story.refusals
            if result.incident is not None and one.incident == result.incident.id
        ]
        reason = f" ({said[-1]})" if said else ""
        return [f"neither freezing nor ending {name} was ordered{reason}"]
    if result.report is None:
        told = [f"{one.outcome}: {one.detail}" for one in story.reports(result.command)]
        reason = told[-1] if told else "no executor answered"
        return [f"{result.command.action} of {name} was not carried out ({reason})"]
    if result.lead_s is not None and result.lead_s <= 0:
        return [f"{result.command.action} of {name} came {-result.lead_s:.1f} s after its limit"]
    return []


def _failed_no_act(result: Result, story: _Story) -> list[str]:
    fate = result.truth.leak
    if fate is None:
        return []
    failures = [
        f"{one.action} was carried out on {one.scope.label} though acting was off"
        for one in story.commands
        if story.carried_out(one) is not None
    ]
    if fate.ending != "at its limit":
        failures.append(
            f"{fate.child.name} {fate.sentence()}; left alone it should have died at its limit"
        )
    return failures


def _named(children: Sequence[Child], scopes: Sequence[Scope]) -> tuple[str, ...]:
    return tuple(child.name for child in children if any(means(scope, child) for scope in scopes))
