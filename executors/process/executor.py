"""The process executor: what is noted before and after each act, and how acts are undone.

The steps of one act, each synced to disk before the next (the names in quotes are the points at
which a test may let it crash): find and verify the target → note the intent ("intent") → note each
change before it is made ("touched") → act and read back ("acted") → note the answer ("finished").
"""

from collections.abc import Callable

from bus.messages import Action, IsolationCommand, Scope
from executors import base
from executors.base import Context, Held, Refused, moment_text
from executors.ledger import Case, Change, Verdict
from executors.process.ending import Ending
from executors.process.freezing import Freezing
from executors.process.groups import Groups
from executors.process.limiting import Limiting
from executors.process.processes import Identity, Processes, Signals
from executors.process.settings import Settings
from executors.process.targets import Gone, Target, Targets
from runtime.clock import Instant
from runtime.errors import FarsideError, Unavailable

HOLDING: frozenset[Action] = frozenset({"freeze", "throttle", "limit"})
KNOWS: frozenset[Action] = HOLDING | {"reclaim", "release"}


class ProcessExecutor:
    """Carries out commands on this node's processes and containers."""

    name = "process"
    knows = KNOWS

    def __init__(self, settings: Settings, context: Context, signals: Signals) -> None:
        """Own what `settings` declares; reach processes through `signals`."""
        self._settings = settings
        self._context = context
        self.ledger = context.ledger(self.name)
        self._groups = Groups(context.tree)
        self._processes = Processes(context.tree, signals)
        self._targets = Targets(settings, context, self._groups, self._processes)
        clock, confirm_s = context.clock, settings.confirm_s
        self._freezing = Freezing(self._groups, self._processes, self._targets, clock, confirm_s)
        self._limiting = Limiting(settings, self._groups, self._targets)
        self._ending = Ending(
            self._groups, self._processes, self._targets, self._freezing, clock, confirm_s
        )

    def reaches(self, scope: Scope) -> bool:
        """Tell whether the scope lies on this node."""
        return scope.node == self._context.node

    def objection(self, command: IsolationCommand) -> str:
        """Return why it would refuse the command now, "" when it would act; changes nothing."""
        try:
            self._known(command)
            if command.action != "release":
                self._targets.find(command)
        except FarsideError as error:
            return str(error)
        return ""

    def act(self, command: IsolationCommand, now: Instant) -> Verdict:
        """Carry out a command and tell what is true afterwards.

        Errors: `Unavailable` when it could not be done now; nothing is then left half-done.
        """
        earlier = self.ledger.earlier(command.id)
        if earlier is not None:
            return earlier
        case = self.ledger.case(command.id)
        if case is not None:
            return self._settle(case, now)
        try:
            self._known(command)
            if command.action == "release":
                verdict = self._release(command, now)
            elif command.action == "reclaim":
                verdict = self._reclaim(command, now)
            else:
                verdict = self._hold(command, now)
        except Refused as error:
            verdict = Verdict("refused", str(error))
        verdict = verdict.plain()
        self._answer(command, verdict, now)
        return verdict

    def lift(self, command_id: str, now: Instant) -> Verdict:
        """Undo what the command holds; "already" when it holds nothing (any more)."""
        case = self.ledger.case(command_id)
        if case is None or not case.holds:
            return Verdict("already", f"command {command_id} holds nothing")
        said = self._undo(case)
        detail = f"{case.action} of {case.scope.label} was lifted" + (said and f": {said}")
        self.ledger.lift(command_id, detail, now)
        return Verdict("done", detail, now).plain()

    def held(self) -> list[Held]:
        """Return what is held, the oldest first, also from an earlier run."""
        return [
            Held(case.command, case.action, case.scope, case.begun, case.until or case.begun)
            for case in self.ledger.holding()
        ]

    def settle(self, now: Instant) -> list[str]:
        """Judge by the truth what an earlier run left half-done; one sentence for each.

        What was held when the machine went down is held no more.
        """
        sentences = []
        boot = self._targets.boot()
        for case in self.ledger.holding():
            if not case.pending and case.boot != boot:
                detail = f"{case.action} of {case.scope.label} ended: the machine was restarted"
                self.ledger.lift(case.command, detail, now)
                sentences.append(detail)
        for case in self.ledger.pending():
            try:
                sentences.append(self._settle(case, now).detail)
            except Unavailable as error:
                sentences.append(f"{case.scope.label} ({case.action}) can't be judged yet: {error}")
        return sentences

    def close(self, now: Instant) -> list[str]:
        """End in order: lift all that is held; return a sentence for each thing that was lifted."""
        sentences = base.lift_all(self, now)
        self.ledger.close()
        return sentences

    def cannot(self) -> list[str]:
        """Return a sentence for each thing that it can't do here, and why; changes nothing."""
        sentences = self._targets.cannot()
        try:
            hierarchies = self._groups.hierarchies()
        except Unavailable as error:
            return [*sentences, f"control groups can't be looked at ({error}): signals must do"]
        if not {"unified", "freezer"} & set(hierarchies):
            sentences.append("no cgroup freezer is mounted here: freezing is done by SIGSTOP")
        if not hierarchies:
            sentences.append("no cgroups are mounted here: nothing can be throttled or limited")
        return sentences

    def _known(self, command: IsolationCommand) -> None:
        if command.action not in self.knows:
            raise Refused(base.unknown(self, command.action))
        if not self.reaches(command.scope):
            raise Refused(f"{command.scope.label} is not on {self._context.node}")

    def _hold(self, command: IsolationCommand, now: Instant) -> Verdict:
        target = self._targets.find(command)
        until = self._until(command, now)
        ours = [case.change for case in self.ledger.holding() if case.change]
        shared = self._freezing.shared(target, ours) if command.action == "freeze" else None
        if shared is not None:
            self.ledger.begin(command, self._targets.boot(), until, now)
            self.ledger.change(command.id, shared)
            detail = f"{target.label} is frozen by an earlier command already, now for this one too"
            return Verdict("already", f"{detail}, until {moment_text(until)}", until)
        said = self._guarded(
            command, until, now, lambda note: self._touch(target, command, ours, note)
        )
        return Verdict("done", f"{target.label}: {said}; held until {moment_text(until)}", until)

    def _touch(
        self,
        target: Target,
        command: IsolationCommand,
        ours: list[Change],
        note: Callable[[Change], None],
    ) -> str:
        if command.action == "freeze":
            return self._freezing.freeze(target, ours, note)
        if command.action == "throttle":
            return self._limiting.throttle(target, note)
        wished = command.precondition.get("limit_bytes", "")
        return self._limiting.limit(target, wished, note)

    def _guarded(
        self,
        command: IsolationCommand,
        until: Instant,
        now: Instant,
        touch: Callable[[Callable[[Change], None]], str],
    ) -> str:
        """Note the intent, act, and where that fails put everything back before saying so."""
        case = self.ledger.begin(command, self._targets.boot(), until, now)
        self._context.at("intent")

        def note(change: Change) -> None:
            self.ledger.change(command.id, change)
            self._context.at("touched")

        try:
            said = touch(note)
        except FarsideError:
            self._undo(case)
            self.ledger.withdraw(command.id)
            raise
        self._context.at("acted")
        return said

    def _reclaim(self, command: IsolationCommand, now: Instant) -> Verdict:
        try:
            target = self._targets.find(command)
            ours = [case.change for case in self.ledger.holding() if case.change]
            self.ledger.begin(command, self._targets.boot(), None, now)
            self._context.at("intent")
            try:
                said = self._ending.end(target, ours)
            except FarsideError:
                self.ledger.withdraw(command.id)
                raise
        except Gone as gone:
            self._forget(command.scope, now)
            return Verdict("already", f"{gone}: there is nothing to end")
        self._context.at("acted")
        self._forget(command.scope, now)
        return Verdict("done", f"{target.label}: {said}")

    def _release(self, command: IsolationCommand, now: Instant) -> Verdict:
        """Lift what one command holds (precondition "command"), or all that is held on the scope.

        Nothing is verified but our own ledger: what we hold is ours to let go, and what changed
        its identity since is left alone.
        """
        wanted = command.precondition.get("command", "")
        found = [
            held
            for held in self.held()
            if held.command == wanted or (not wanted and held.scope == command.scope)
        ]
        if not found:
            if not wanted and self._is_still(command):
                raise Refused(
                    f"{command.scope.label} is stopped or frozen, and not by farside: not ours to "
                    "let go"
                )
            return Verdict("already", f"nothing is held on {command.scope.label}")
        details = [self.lift(held.command, now).detail for held in reversed(found)]
        return Verdict("done", "; ".join(details))

    def _is_still(self, command: IsolationCommand) -> bool:
        try:
            return self._freezing.all_still(self._targets.find(command))
        except (Refused, Unavailable):
            return False

    def _forget(self, scope: Scope, now: Instant) -> None:
        """Lift what was held on something that has ended: an empty group must not stay frozen."""
        for held in self.held():
            if held.scope == scope:
                self.lift(held.command, now)

    def _undo(self, case: Case) -> str:
        change = case.change
        if change is None or (case.boot and case.boot != self._targets.boot()):
            return ""
        others = [
            other.change
            for other in self.ledger.holding()
            if other.change is not None and other.command != case.command
        ]
        if case.action == "freeze":
            return self._freezing.let_go(change, others)
        return self._limiting.put_back(change, others)

    def _settle(self, case: Case, now: Instant) -> Verdict:
        """Answer what a crash left open, by what is true now."""
        if case.boot != self._targets.boot():
            verdict = Verdict("failed", f"{case.scope.label}: the machine was restarted meanwhile")
        elif case.action == "reclaim":
            verdict = self._settle_end(case)
        elif self._in_force(case):
            until = case.until or now
            verdict = Verdict(
                "done",
                f"{case.scope.label}: {case.action} was interrupted by a restart of the executor "
                f"and is read back as in force; held until {moment_text(until)}",
                until,
            )
        else:
            self._undo(case)
            verdict = Verdict(
                "failed",
                f"{case.scope.label}: {case.action} was interrupted by a restart of the executor "
                "before it took effect; nothing is held",
            )
        verdict = verdict.plain()
        self.ledger.settle(case, verdict, now)
        if verdict.outcome == "failed" and case.holds:
            self.ledger.lift(case.command, verdict.detail, now)
        return verdict

    def _settle_end(self, case: Case) -> Verdict:
        if self._ending.gone(self._target_of(case)):
            return Verdict(
                "done",
                f"{case.scope.label}: was being ended when the executor restarted, and is seen to "
                "be gone",
            )
        return Verdict(
            "failed",
            f"{case.scope.label}: ending it was interrupted by a restart of the executor, and it "
            "still runs",
        )

    def _in_force(self, case: Case) -> bool:
        change = case.change
        if change is None:
            return False
        if case.action == "freeze":
            touched = bool(change.members) or self._limiting.in_force(change)
            return touched and self._freezing.all_still(self._target_of(case))
        return self._limiting.in_force(change)

    def _target_of(self, case: Case) -> Target:
        """Return the target of an old case, by the name in its scope; it may be gone."""
        name, label = case.scope.name, case.scope.label
        if case.scope.kind == "process":
            _, pid, start = name.rsplit(":", 2)
            return Target(name, label, who=Identity(int(pid), int(start)))
        path, _, inode = name.rpartition("@")
        hierarchy = self._groups.memory()
        try:
            group = None if hierarchy is None else self._groups.group(hierarchy, path)
        except (Unavailable, Refused):
            group = None
        return Target(name, label, group=group if group and str(group.inode) == inode else None)

    def _until(self, command: IsolationCommand, now: Instant) -> Instant:
        latest = now.plus(self._settings.hold_s_max)
        until = command.hold_until or now.plus(self._settings.hold_s)
        if until <= now:
            raise Refused(f"it was to be held until {moment_text(until)}, which is over")
        return min(until, latest)

    def _answer(self, command: IsolationCommand, verdict: Verdict, now: Instant) -> None:
        """Note the answer; where the disk fails after the act, the truth is told all the same."""
        try:
            self.ledger.answer(command, verdict, now)
        except Unavailable:
            if verdict.outcome != "done":
                raise
        self._context.at("finished")
