"""What an executor is: it carries out commands, reads back what is true, and says what became.

An executor is one file (or folder) of this package with `Settings` and `build(settings, context)`,
and is named in the configuration as `[execute.NAME]`. What it owes, whatever it acts on:

* it acts only inside what its settings declare as its own, checked at the moment of acting;
* it answers a command that it carried out before with that answer, across its own restart;
* before it changes anything it notes on its own disk what it is about to change, so that a crash
  in between leaves nothing that can't be found and undone (`executors.ledger`);
* it reads back what is true: "done" means that it was seen to be so;
* of errors only `runtime.errors` leave it: `Unavailable` may be tried again.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from bus.messages import Action, IsolationCommand, Scope
from executors.ledger import Ledger, Verdict
from runtime.clock import Clock, Instant
from runtime.errors import FarsideError, Rejected
from runtime.files import SysTree


class Refused(Rejected):
    """No: the sentence says why not, and goes into the report."""


class Held(NamedTuple):
    """What a command holds until a moment: frozen, throttled, limited."""

    command: str
    action: Action
    scope: Scope
    since: Instant
    until: Instant

    @property
    def sentence(self) -> str:
        """Say it."""
        return (
            f"{self.scope.label} has been held ({self.action}) since {moment_text(self.since)} "
            f"by command {self.command}, until {moment_text(self.until)}"
        )


def pass_by(_point: str) -> None:
    """Go on: what happens at the named points of an act, unless a test puts a crash there."""


@dataclass(frozen=True)
class Context:
    """What an executor is given to stand on.

    `state_dir` None keeps the ledger in memory only. `boot` is the boot id that this machine's
    agent sends, asked where the kernel's file can't be read. `at` is called at the points "intent",
    "touched", "acted" and "finished" of each act.
    """

    tree: SysTree
    clock: Clock
    node: str
    boot: str = ""
    state_dir: Path | None = None
    own_pid: int = 0
    at: Callable[[str], None] = pass_by

    def ledger(self, executor: str) -> Ledger:
        """Return the ledger of the executor of this name; its first use opens it."""
        path = None if self.state_dir is None else self.state_dir / f"executor-{executor}.jsonl"
        return Ledger(path)

    def pid(self) -> int:
        """Return the process that must never be acted on, with all its ancestors: this one."""
        return self.own_pid or os.getpid()


class Executor(Protocol):
    """Carries out commands. One thread calls it."""

    @property
    def name(self) -> str:
        """Return the name by which commands address it."""

    @property
    def knows(self) -> frozenset[Action]:
        """Return the actions that it can carry out."""

    @property
    def ledger(self) -> Ledger:
        """Return where it keeps what it was asked and what it answered."""

    def reaches(self, scope: Scope) -> bool:
        """Tell whether this scope is its business: one on a node leaves other nodes to theirs."""

    def objection(self, command: IsolationCommand) -> str:
        """Return why it would refuse the command now, "" when it would act; changes nothing."""

    def act(self, command: IsolationCommand, now: Instant) -> Verdict:
        """Carry out a command and tell what is true afterwards.

        Errors: `Unavailable` when it could not be done now; nothing is then left half-done.
        """

    def lift(self, command_id: str, now: Instant) -> Verdict:
        """Undo what the command holds; "already" when it holds nothing (any more).

        Errors: `Unavailable` when it could not be undone now; it is then still held.
        """

    def held(self) -> list[Held]:
        """Return what is held, the oldest first, also from an earlier run."""

    def settle(self, now: Instant) -> list[str]:
        """Judge by the truth what an earlier run left half-done; one sentence for each."""

    def close(self, now: Instant) -> list[str]:
        """End in order: lift all that is held; return a sentence for each thing that was lifted."""

    def cannot(self) -> list[str]:
        """Return a sentence for each thing that it can't do here, and why; changes nothing."""


def lift_all(executor: Executor, now: Instant) -> list[str]:
    """Lift everything that is held and say what became of each; a failure stops nothing."""
    sentences = []
    for held in reversed(executor.held()):
        try:
            verdict = executor.lift(held.command, now)
        except FarsideError as error:
            sentences.append(f"{held.scope.label} is still held ({held.action}): {error}")
        else:
            sentences.append(verdict.detail)
    return sentences


def moment_text(moment: Instant) -> str:
    """Return a moment as people read it: to the second."""
    return f"{moment.text()[:19]}Z"


def unknown(executor: Executor, action: Action) -> str:
    """Say that an executor does not know an action."""
    known = ", ".join(sorted(executor.knows))
    return f"the {executor.name} executor does not know {action}; it knows {known}"
