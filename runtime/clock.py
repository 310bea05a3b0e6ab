"""Moments and the giver of moments: the only module that asks the operating system for the time.

Everything else takes a moment as an argument or a `Clock` at the edge, so that replay, simulation
and tests move time by themselves.
"""

import re
import threading
import time
from datetime import UTC, datetime
from typing import Protocol, Self

from runtime.errors import Rejected

NANOSECONDS = 1_000_000_000
# RFC 3339 allows years 0 to 9999; a datetime can't print beyond them.
LATEST_NS = 253_402_300_799 * NANOSECONDS + 999_999_999
_FORM = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))",
)


class Instant(int):
    """A moment: nanoseconds since the Unix epoch, UTC."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an RFC 3339 time with up to nine decimals; `Rejected` where it is none."""
        form = _FORM.fullmatch(text)
        if form is None:
            msg = f"not an RFC 3339 time: {text[:40]!r}"
            raise Rejected(msg)
        year, month, day, hour, minute, second = (int(form[i]) for i in range(1, 7))
        try:
            whole = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        except ValueError as error:
            msg = f"not a time: {text[:40]!r} ({error})"
            raise Rejected(msg) from None
        offset_s = 0
        if form[8]:
            offset_s = (int(form[9]) * 3600 + int(form[10]) * 60) * (1 if form[8] == "+" else -1)
        fraction_ns = int((form[7] or "0").ljust(9, "0"))
        days = whole.toordinal() - datetime(1970, 1, 1, tzinfo=UTC).toordinal()
        whole_s = days * 86_400 + hour * 3600 + minute * 60 + second - offset_s
        return cls(whole_s * NANOSECONDS + fraction_ns)

    def text(self) -> str:
        """Return RFC 3339 with nine decimals and Z (clamped to years 1 to 9999)."""
        whole_s, fraction_ns = divmod(
            min(max(int(self), -62_135_596_800 * NANOSECONDS), LATEST_NS), NANOSECONDS
        )
        days, rest = divmod(whole_s, 86_400)
        date = datetime.fromordinal(days + datetime(1970, 1, 1, tzinfo=UTC).toordinal())
        hour, rest = divmod(rest, 3600)
        minute, second = divmod(rest, 60)
        return (
            f"{date.year:04d}-{date.month:02d}-{date.day:02d}"
            f"T{hour:02d}:{minute:02d}:{second:02d}.{fraction_ns:09d}Z"
        )

    def plus(self, duration_s: float) -> "Instant":
        """Return the moment `duration_s` seconds later (or earlier, when negative)."""
        return Instant(int(self) + nanoseconds(duration_s))

    def since(self, earlier: int) -> float:
        """Return the seconds from `earlier` to this moment."""
        return (int(self) - int(earlier)) / NANOSECONDS


def nanoseconds(duration_s: float) -> int:
    """Return a duration in seconds as whole nanoseconds."""
    return round(duration_s * NANOSECONDS)


class Clock(Protocol):
    """Gives moments to the edges of the program."""

    def now(self) -> Instant:
        """Return the moment by the wall clock."""

    def monotonic(self) -> float:
        """Return seconds that never jump, from an arbitrary start."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set or the time is over; tell whether it was set."""


class SystemClock:
    """The operating system's clock."""

    def now(self) -> Instant:
        """Return the moment by the wall clock."""
        return Instant(time.time_ns())

    def monotonic(self) -> float:
        """Return seconds that never jump, from an arbitrary start."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set or the time is over; tell whether it was set."""
        return event.wait(max(timeout_s, 0.0))


class ManualClock:
    """A clock that moves only when it is told to (tests, replay); waiting advances it."""

    def __init__(self, start: int = 1_700_000_000 * NANOSECONDS) -> None:
        """Begin at `start` (nanoseconds since the epoch)."""
        self._now = int(start)
        self._monotonic_s = 0.0
        self._lock = threading.Lock()

    def now(self) -> Instant:
        """Return the moment that was last set."""
        return Instant(self._now)

    def monotonic(self) -> float:
        """Return the seconds that were advanced so far."""
        return self._monotonic_s

    def advance(self, duration_s: float) -> None:
        """Move both clocks forward."""
        with self._lock:
            self._now += nanoseconds(duration_s)
            self._monotonic_s += duration_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Let the time pass at once, unless `event` is set already."""
        if event.is_set():
            return True
        self.advance(max(timeout_s, 0.0))
        return event.is_set()
