"""What a notifier is: it tells people of one change of state of an incident, in one sentence.

A notifier is one file of this package with `Settings` and `build(settings, context)`, and is named
in the configuration as `[notify.NAME]`. What it owes: it tells each notice that it is given once,
returns when it was taken, and of errors only `runtime.errors` leave it (`Unavailable` may be tried
again). Which notices are new, and what was told before, is the worker's business; where it can't
know (a kill between telling and noting), it tells once more under the same `Notice.id`.
"""

import hashlib
import sys
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TextIO

from bus.messages import Incident, Message, Refusal, Severity
from runtime.clock import Clock, Instant
from runtime.words import plain_text

REFUSED = "refused"
STATE_CHARS_MAX = 300
SENTENCE_CHARS_MAX = 1_000


class Notice(NamedTuple):
    """One thing to tell: `incident` and `state` together name it, and it is told once.

    state: the incident's state, or "refused ACTION: REASON". message: all that is known of it.
    """

    incident: str
    state: str
    time: Instant
    severity: Severity
    sentence: str
    message: Incident | Refusal

    @property
    def id(self) -> str:
        """Return what names this notice for ever: the same one told again has the same id."""
        words = f"{self.incident}\0{self.state}\0{self.time.text()}"
        return "notice_" + hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:32]

    @property
    def word(self) -> str:
        """Return the state in one word."""
        return self.message.state if isinstance(self.message, Incident) else REFUSED


def notice_of(message: Message) -> Notice | None:
    """Return what there is to tell of a message, None where it is not for people."""
    if isinstance(message, Incident):
        sentence = message.sentence or f"{message.scope.label}: {message.fault or 'trouble'}"
        return Notice(
            message.id,
            message.state,
            message.updated or message.opened,
            message.severity,
            plain_text(sentence, SENTENCE_CHARS_MAX),
            message,
        )
    if isinstance(message, Refusal):
        sentence = f"no {message.action} of {message.scope.label}: {message.reason}"
        return Notice(
            message.incident,
            plain_text(f"{REFUSED} {message.action}: {message.reason}", STATE_CHARS_MAX),
            message.time,
            "info",
            plain_text(sentence, SENTENCE_CHARS_MAX),
            message,
        )
    return None


@dataclass(frozen=True)
class Context:
    """What a notifier is given to stand on; `stream` is where what prints prints."""

    clock: Clock
    cluster: str = ""
    node: str = ""
    stream: TextIO = field(default_factory=lambda: sys.stdout)


class Notifier(Protocol):
    """Tells people. One thread calls it."""

    @property
    def name(self) -> str:
        """Return the name by which deliveries call it."""

    def wants(self, notice: Notice) -> bool:
        """Tell whether this notice is for its people."""

    def tell(self, notice: Notice, now: Instant) -> None:
        """Tell it, and return when it was taken.

        Errors: `Unavailable` when it could not be told now, `Rejected` when it never will be.
        """

    def close(self) -> None:
        """Let go of what it holds open."""

    def cannot(self) -> list[str]:
        """Return a sentence for each thing that it can't do here, and why; tells nobody."""
