"""Says what it would do, and does nothing: for rehearsals, shadow mode and replay."""

from typing import get_args

import msgspec

from bus.messages import EXECUTORS_OF, Action, IsolationCommand, Outcome, Scope
from executors import base
from executors.base import Context, Held, moment_text
from executors.ledger import Ledger, Verdict
from runtime.clock import Instant

KNOWS: frozenset[Action] = frozenset(
    action for action in get_args(Action) if "dry_run" in EXECUTORS_OF[action]
)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`own_node_only` leaves what concerns other nodes to the dry runs there."""

    own_node_only: bool = False


class DryRun:
    """Carries out every action in words alone."""

    name = "dry_run"
    knows = KNOWS

    def __init__(self, ledger: Ledger, node: str = "") -> None:
        """Answer for every node, or for `node` alone where one is given."""
        self.ledger = ledger
        self._node = node

    def reaches(self, scope: Scope) -> bool:
        """Tell whether this scope is its business."""
        return not self._node or scope.node in {"", self._node}

    def objection(self, command: IsolationCommand) -> str:
        """Return why it would refuse the command now, "" when it would act."""
        return "" if command.action in self.knows else base.unknown(self, command.action)

    def act(self, command: IsolationCommand, now: Instant) -> Verdict:
        """Say what would be done."""
        earlier = self.ledger.earlier(command.id)
        if earlier is not None:
            return earlier
        objection = self.objection(command)
        outcome: Outcome = "refused" if objection else "done"
        verdict = Verdict(outcome, objection or sentence(command, now)).plain()
        self.ledger.answer(command, verdict, now)
        return verdict

    def lift(self, command_id: str, now: Instant) -> Verdict:  # noqa: ARG002  # the protocol's
        """Hold nothing, lift nothing."""
        return Verdict("already", f"command {command_id} holds nothing: it was a dry run")

    def held(self) -> list[Held]:
        """Return nothing: a dry run holds nothing."""
        return []

    def settle(self, now: Instant) -> list[str]:  # noqa: ARG002  # the protocol's
        """Return nothing: a dry run leaves nothing half-done."""
        return []

    def close(self, now: Instant) -> list[str]:  # noqa: ARG002  # the protocol's
        """Let go of the ledger."""
        self.ledger.close()
        return []

    def cannot(self) -> list[str]:
        """Return nothing: words always can."""
        return []


def build(settings: Settings, context: Context) -> DryRun:
    """Return the executor; opens nothing yet."""
    return DryRun(context.ledger("dry_run"), context.node if settings.own_node_only else "")


_WORDS: dict[Action, str] = {
    "hold": "give no new work to",
    "deprioritize": "put last in the queue",
    "checkpoint": "ask for a checkpoint of",
    "reclaim": "end",
    "drain_at_checkpoint": "drain, after the next checkpoint,",
    "release": "let go of",
}


def sentence(command: IsolationCommand, now: Instant) -> str:
    """Return what a command would do, as a sentence."""
    words = _WORDS.get(command.action, command.action)
    until = command.hold_until
    end = f" until {moment_text(until)}" if until is not None and until > now else ""
    return f"dry run: would {words} {command.scope.label}{end}; nothing was touched"
