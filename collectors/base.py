"""What every collector is: it reads its part of a machine when asked, and says what it can't see.

A plug-in is a module with `Settings` and `build(settings, tree) -> Collector`.
"""

import hashlib
from typing import NamedTuple, Protocol, runtime_checkable

from bus.samples import Sample
from runtime.clock import Instant
from runtime.words import plain_text

DEVICE_CHARS_MAX = 256


class FoundLine(NamedTuple):
    """A log line worth a look, with what was recognised in it.

    Fields: kind, code, severity (info, warning, error, fatal), device, count, action, clears, and
    where known cgroup, pid and process.
    """

    time: Instant
    source: str
    text: str
    fields: dict[str, str]


class Reading(NamedTuple):
    """What one look at the machine gave."""

    samples: list[Sample]
    lines: list[FoundLine]


class Collector(Protocol):
    """Reads one part of a machine; used from one thread at a time."""

    def collect(self, now: Instant) -> Reading:
        """Return what is to be seen now.

        What this machine or user lacks for good is left out (absence, never zero) and told by
        `cannot_see`. Errors: `Unavailable` when what should be there can't be read this time.
        """

    def cannot_see(self) -> list[str]:
        """Return one plain sentence for each thing that stays unseen: what, why, the remedy."""


@runtime_checkable
class Waiting(Protocol):
    """A collector that knows when there is news: it need not wait for the period."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for news at most `timeout_s` seconds; tell whether there is some.

        Called from another thread than `collect`.
        """


@runtime_checkable
class Counting(Protocol):
    """A collector that counts what passed through it."""

    def counts(self) -> dict[str, int]:
        """Return totals since the start by outcome."""


@runtime_checkable
class Closing(Protocol):
    """A collector that holds something open."""

    def close(self) -> None:
        """Give it back."""


def device_name(text: str) -> str:
    """Return a device's name as it may travel: printable, at most `DEVICE_CHARS_MAX` characters.

    A longer one keeps both ends (what it is, and its identity) around a hash of the whole.
    """
    if text.isprintable() and len(text) <= DEVICE_CHARS_MAX:
        return text
    shown = plain_text(text, chars_max=1 << 16)
    if len(shown) <= DEVICE_CHARS_MAX:
        return shown
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    end = (DEVICE_CHARS_MAX - len(mark) - 2) // 2
    return f"{shown[:end]}~{mark}~{shown[-end:]}"
