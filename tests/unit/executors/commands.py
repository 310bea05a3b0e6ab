"""Commands and a scripted executor, for tests that need no machine."""

from collections.abc import Callable

from bus.messages import Action, IsolationCommand, Scope
from executors.base import Held
from executors.ledger import Ledger, Verdict
from runtime.clock import Instant

NODE = "n1"
START = Instant.parse("2026-11-30T12:00:00Z")


def command(
    name: str = "c1",
    action: Action = "freeze",
    *,
    now: Instant = START,
    executor: str = "script",
    incident: str = "i1",
    node: str = NODE,
    dry_run: bool = False,
    expires_s: float = 30.0,
) -> IsolationCommand:
    """Return a command that was issued at `now`."""
    return IsolationCommand(
        id=name,
        scope=Scope("container", "a", node, "/jobs/7@4711"),
        action=action,
        executor=executor,
        precondition={},
        generation=1,
        reason="its memory leaks",
        incident=incident,
        issued=now,
        expires=now.plus(expires_s),
        dry_run=dry_run,
    )


class Script:
    """An executor that answers as it is told, and keeps what it was asked."""

    name = "script"
    knows: frozenset[Action] = frozenset({"freeze", "reclaim", "release"})

    def __init__(self, answer: Callable[[IsolationCommand], Verdict] | None = None) -> None:
        self.answer = answer or (lambda _: Verdict("done", "done"))
        self.ledger = Ledger(None)
        self.acted: list[str] = []
        self.holds: dict[str, Held] = {}
        self.lifting: Callable[[str], None] = lambda _: None
        self.left: list[str] = []
        self.objecting = ""

    def reaches(self, scope: Scope) -> bool:
        return scope.node == NODE

    def objection(self, command: IsolationCommand) -> str:  # noqa: ARG002  # the protocol's
        return self.objecting

    def act(self, command: IsolationCommand, now: Instant) -> Verdict:
        verdict = self.answer(command)
        self.acted.append(command.id)
        if verdict.held_until is not None:
            self.holds[command.id] = Held(
                command.id, command.action, command.scope, now, verdict.held_until
            )
        return verdict

    def lift(self, command_id: str, now: Instant) -> Verdict:
        self.lifting(command_id)
        self.holds.pop(command_id)
        return Verdict("done", f"{command_id} goes on", now)

    def held(self) -> list[Held]:
        return list(self.holds.values())

    def settle(self, now: Instant) -> list[str]:  # noqa: ARG002  # the protocol's
        return self.left

    def close(self, now: Instant) -> list[str]:
        return [self.lift(name, now).detail for name in list(self.holds)]

    def cannot(self) -> list[str]:
        return []
