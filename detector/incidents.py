"""Incidents: when they open and close, what they live through, and who folds into whom.

A `Case` is all that the decider remembers of one incident. It opens at a score that an unlucky
moment does not reach, closes only after a long calm, and in between follows its commands:
open → acting (a command is out) → contained (it was carried out) → probation (lifted) → closed.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from bus.messages import (
    Contribution,
    ExecutionReport,
    Exhaustion,
    Fault,
    Incident,
    IncidentState,
    IsolationCommand,
    Outcome,
    Scope,
    Severity,
    Suspicion,
    container_name,
)
from detector import explain
from detector.deciding import DeciderSettings
from detector.suspicions import WORK, is_bad, is_tighter, is_urgent, severity_of
from runtime.clock import Instant
from runtime.words import duration_text

ALSO_MAX = 8
PLACES = frozenset({"node", "gpu", "port", "disk"})  # what stands or falls with its node
HOLDS = frozenset({"freeze", "throttle", "limit", "hold"})  # lifted after a while
WORKED = frozenset({"done", "already"})
STAYS = frozenset({"drain", "drain_at_checkpoint", "isolate"})  # until somebody releases it
LAST_SAVED_NS = 2**63 - 1  # in April 2262: the latest moment that a checkpoint can hold
NEVER = Instant(LAST_SAVED_NS)
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


def short_id(*parts: object) -> str:
    """Return an identifier that follows from content alone, so that a repeat makes the same."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


class Attempt(msgspec.Struct, frozen=True):
    """What became of the last try of one action, and how many there were."""

    outcome: Outcome | Literal["unanswered"]
    time: Instant
    count: int


class Case(msgspec.Struct, kw_only=True):
    """One incident in all that the decider must remember.

    base: the sentence on what is wrong; note: what was done about it. calm: since when nothing bad
    is heard. settled: when it was last contained or lifted. held_by: the command that holds now;
    held_until: until when something is, or may be, held. standing: closes only when told to.
    """

    id: str
    scope: Scope
    fault: Fault
    opened: Instant
    updated: Instant
    state: IncidentState = "open"
    severity: Severity = "info"
    base: str = ""
    note: str = ""
    suspicion: Suspicion | None = None
    evidence: tuple[Contribution, ...] = ()
    exhaustion: Exhaustion | None = None
    also: dict[str, Contribution] = {}
    calm: Instant | None = None
    standing: bool = False
    generation: int = 0
    command: IsolationCommand | None = None
    pending: bool = False
    held_by: IsolationCommand | None = None
    held_until: Instant | None = None
    settled: Instant | None = None
    attempts: dict[str, Attempt] = {}
    refused: list[str] = []
    told: tuple[IncidentState, Severity, str] | None = None
    told_at: Instant = Instant(0)
    told_forecast: Exhaustion | None = None
    told_also: int = 0

    # --- what is seen --------------------------------------------------------------------------

    def see(self, suspicion: Suspicion, now: Instant, settings: DeciderSettings) -> None:
        """Take a newer suspicion of the same scope."""
        self.suspicion = suspicion
        self.updated = now
        if not is_bad(suspicion, self.fault, settings):
            self.calm = self.calm or max(now, suspicion.time)
            return
        self.calm = None
        self.evidence = suspicion.contributions
        self.exhaustion = suspicion.exhaustion
        self.raise_to(severity_of(suspicion, self.fault, now, settings))
        if self.state == "contained" and self._relapsed(suspicion):
            self.state = "open"
            self.note = ""
        if self.state == "open" or (self.state == "probation" and self.judged_on()):
            self.base = explain.sentence(self.scope, self.fault, suspicion, now)

    def _relapsed(self, suspicion: Suspicion) -> bool:
        """Tell whether trouble began anew after it was ended (what is held can't begin anew)."""
        began = suspicion.since
        ended = self.settled is not None and self.held_until is None
        return ended and began is not None and self.settled is not None and began > self.settled

    def fold(self, suspicion: Suspicion) -> None:
        """Note that another scope shows the same trouble."""
        key = suspicion.scope.key
        if key in self.also or len(self.also) < ALSO_MAX:
            self.also[key] = Contribution(
                signal="also_seen",
                device=suspicion.scope.name,
                nats=0.0,
                text=explain.also_seen(suspicion),
            )

    def raise_to(self, severity: Severity) -> None:
        """Make it as severe as this; it never becomes milder again."""
        if SEVERITIES.index(severity) > SEVERITIES.index(self.severity):
            self.severity = severity

    def judged_on(self) -> Suspicion | None:
        """Return the suspicion that an act could rest on: none from before it was last settled."""
        suspicion = self.suspicion
        if suspicion is None or (self.settled is not None and suspicion.time <= self.settled):
            return None
        return suspicion

    # --- what is done --------------------------------------------------------------------------

    def issue(self, command: IsolationCommand, now: Instant) -> None:
        """Note that a command went out."""
        self.command = command
        self.generation = command.generation
        self.pending = True
        self.updated = now
        if command.action == "release":
            self.note = explain.doing(command)
            return
        self.state = "acting"
        self.base = command.reason
        self.note = explain.doing(command)
        self.held_until = command.hold_until or (NEVER if command.action in STAYS else None)

    def asked(self, command_id: str) -> IsolationCommand | None:
        """Return the command of this identifier where it is the last one or the one that holds."""
        for command in (self.command, self.held_by):
            if command is not None and command.id == command_id:
                return command
        return None

    def awaits(self, command: IsolationCommand) -> bool:
        """Tell whether the command has no answer yet (one that comes late still counts)."""
        if self.command is None or command.id != self.command.id:
            return False
        attempt = self.attempts.get(command.action)
        return self.pending or (attempt is not None and attempt.outcome == "unanswered")

    def answer(self, command: IsolationCommand, report: ExecutionReport, now: Instant) -> bool:
        """Take a report; tell whether it changed anything."""
        if not self.awaits(command):
            return self._ended(command, report, now)
        self.pending = False
        self.updated = now
        self._note_attempt(command.action, report.outcome, now)
        if report.outcome not in WORKED:
            self._failed(command, report)
        elif command.action == "release":
            self._lift(now, "released")
        elif command.dry_run:
            # Nothing was touched: only the budget behaves as if it were.
            self.state = "open"
            self.note = explain.done(command, None)
        else:
            self._contain(command, report, now)
            self._ended(command, report, now)
        return True

    def _contain(self, command: IsolationCommand, report: ExecutionReport, now: Instant) -> None:
        self.state = "contained"
        self.settled = now
        until = report.held_until or command.hold_until if command.action in HOLDS else None
        self.held_until = NEVER if command.action in STAYS else until
        self.held_by = command if self.held_until is not None else None
        self.note = explain.done(command, until)

    def _failed(self, command: IsolationCommand, report: ExecutionReport) -> None:
        self.note = explain.one_line(f"{command.action} {report.outcome}: {report.detail}")
        if command.action != "release":
            self.state = "open"
            self.held_until = None

    def _ended(self, command: IsolationCommand, report: ExecutionReport, now: Instant) -> bool:
        """Take a later word on what is held: that it is held no longer."""
        if self.held_by is None or self.held_by.id != command.id:
            return False
        until = report.held_until
        if report.outcome in WORKED and (until is None or until > report.finished):
            return False
        self._lift(now, explain.one_line(f"no longer held: {report.detail}"))
        return True

    def _lift(self, now: Instant, note: str) -> None:
        self.state = "probation"
        self.settled = now
        self.held_by = None
        self.held_until = None
        self.updated = now
        self.note = note

    def _note_attempt(
        self, action: str, outcome: Outcome | Literal["unanswered"], now: Instant
    ) -> None:
        before = self.attempts.get(action)
        # A late answer is an answer to the same try.
        late = before is not None and before.outcome == "unanswered" and outcome != "unanswered"
        count = (before.count if before else 0) + (0 if late else 1)
        self.attempts[action] = Attempt(outcome, now, count)

    @property
    def stuck(self) -> bool:
        """Whether an act on it was refused or failed."""
        return any(
            attempt.outcome not in WORKED
            for action, attempt in self.attempts.items()
            if action != "release"
        )

    # --- what time does ------------------------------------------------------------------------

    def pass_time(self, now: Instant, settings: DeciderSettings) -> IsolationCommand | None:
        """Let time pass; return the command whose answer is missed, just when it is."""
        missed = None
        if self.pending and self.command is not None:
            missed = self._miss(self.command, now, settings)
        if self.held_until is not None and now > self.held_until:
            if self.state == "contained":
                self._lift(now, f"no longer held since {explain.clock_text(self.held_until)}")
            elif not self.pending:
                self.held_until = None
        if self.calm is None and self.suspicion is not None and not self.standing:
            unheard_s = now.since(self.suspicion.time)
            self.calm = now if unheard_s > settings.forget_s else None
        if self._quiet(now, settings):
            self.end(f"nothing more of it for {duration_text(settings.quiet_s)}", now)
        return missed

    def end(self, note: str, now: Instant) -> None:
        """Close it at once, for the reason in `note`."""
        self.state = "closed"
        self.note = note
        self.updated = now

    def _miss(
        self, command: IsolationCommand, now: Instant, settings: DeciderSettings
    ) -> IsolationCommand | None:
        if now.since(command.expires) <= settings.answer_s:
            return None
        self.pending = False
        self.updated = now
        self._note_attempt(command.action, "unanswered", now)
        self.note = f"{command.action} was not answered"
        if self.state == "acting":
            self.state = "open"
        return command

    def _quiet(self, now: Instant, settings: DeciderSettings) -> bool:
        if self.standing or self.pending or self.held_until is not None or self.calm is None:
            return False
        return now.since(max(self.calm, self.settled or self.calm)) >= settings.quiet_s

    # --- what is told --------------------------------------------------------------------------

    def due(self, now: Instant, settings: DeciderSettings) -> bool:
        """Tell whether people should hear of it now."""
        if self.told != (self.state, self.severity, self.note):
            return True
        news = self.exhaustion != self.told_forecast or len(self.also) != self.told_also
        return news and now.since(self.told_at) >= settings.refresh_s

    def tell(self, now: Instant) -> Incident:
        """Return the incident as it stands, and remember that it was told."""
        self.told = (self.state, self.severity, self.note)
        self.told_at = now
        self.told_forecast = self.exhaustion
        self.told_also = len(self.also)
        return Incident(
            id=self.id,
            scope=self.scope,
            state=self.state,
            severity=self.severity,
            opened=self.opened,
            evidence=(*self.evidence, *self.also.values()),
            sentence=self.sentence,
            fault=self.fault,
            updated=self.updated,
            exhaustion=self.exhaustion,
            command=self.command.id if self.command else "",
        )

    @property
    def sentence(self) -> str:
        """What is wrong, and what was done about it."""
        return explain.one_line(f"{self.base}; {self.note}" if self.note else self.base)


def opened(suspicion: Suspicion, fault: Fault, now: Instant, settings: DeciderSettings) -> Case:
    """Return the new case that a suspicion opens."""
    case = Case(
        id=short_id(suspicion.scope.key, fault, int(suspicion.time)),
        scope=suspicion.scope,
        fault=fault,
        opened=suspicion.time,
        updated=now,
    )
    case.see(suspicion, now, settings)
    return case


def inside(inner: Scope, outer: Scope) -> bool:
    """Tell whether the names show that one container lies in the other."""
    if inner.kind != "container" or outer.kind != "container" or inner.node != outer.node:
        return False
    inner_path, outer_path = container_name(inner.name), container_name(outer.name)
    return inner_path.startswith(f"{outer_path.rstrip('/')}/") and inner_path != outer_path


def home_of(
    suspicion: Suspicion,
    fault: Fault,
    cases: Iterable[Case],
    now: Instant,
    settings: DeciderSettings,
) -> Case | None:
    """Return the case among those of its node that this suspicion is an echo of, if any.

    The leak of a container or process shows in its node, and in the containers around it. Whether a
    process lies in a container can't be seen from names: it is taken for an echo while the
    container has less room left (a process that is bounded by its container's limit has none of its
    own). An echo dies away some time after the case is settled; a process stands on its own where
    its container could not be acted upon.
    """
    scope = suspicion.scope
    for case in cases:
        if case.fault != fault or case.scope == scope or not _echoes(suspicion, case):
            continue
        settled_s = now.since(case.settled) if case.settled is not None else 0.0
        if settled_s <= settings.settle_s and not (case.stuck and scope.kind == "process"):
            return case
    return None


def first_within(
    case: Case, cases: Iterable[Case], now: Instant, settings: DeciderSettings
) -> Case | None:
    """Return the case among those of its node that must be dealt with before this one, if any.

    That is what lies inside it; and of a container and a process that may be one trouble, the one
    with less room, when its turn has come.
    """
    for other in cases:
        if other is case or other.fault != case.fault or other.state not in {"open", "acting"}:
            continue
        if {case.scope.kind, other.scope.kind} == {"container", "process"}:
            due = other.state == "acting" or (
                other.suspicion is not None and is_urgent(other.suspicion, now, settings)
            )
            if due and not other.stuck and _less_room(other, case):
                return other
        elif case.suspicion is not None and _echoes(case.suspicion, other):
            return other
    return None


def _less_room(this: Case, than: Case) -> bool:
    """Tell which of a container and a process goes first; equal room speaks for the process."""
    if this.scope.kind == "container":
        return is_tighter(this.suspicion, than.suspicion)
    return not is_tighter(than.suspicion, this.suspicion)


def _echoes(suspicion: Suspicion, case: Case) -> bool:
    """Tell whether this could be the trouble of the case, seen from elsewhere."""
    scope = suspicion.scope
    if scope.kind == "node":
        # That a node runs out of memory is its own trouble, whoever uses it up.
        return case.scope.kind in WORK and case.fault != "memory_exhaustion"
    if scope.kind == "container":
        return inside(case.scope, scope)
    if scope.kind == "process":
        return case.scope.kind == "container" and is_tighter(case.suspicion, suspicion)
    return False
