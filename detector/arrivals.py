"""What arrives from a node: repeats, gaps, restarts and clocks that are wrong.

One record is judged here before anything is learned from it: is it new, is its time believable, and
at which moment of the cell's time did it happen?
"""

from typing import Annotated, Literal

import msgspec

from detector.bounds import YEAR_S
from runtime.clock import NANOSECONDS, nanoseconds

# As many bits as one integer of the checkpoint holds. What is further behind counts as a repeat: a
# partition keeps the order of its writer, so only a few records can ever be overtaken.
WINDOW = 64
_WINDOW_MASK = (1 << WINDOW) - 1
# How many batches in a row must be late by the same amount before the node's clock is blamed, not
# the way: a backlog that drains gets younger with each record, a wrong clock stays wrong.
STEADY_BATCHES = 10
Verdict = Literal["kept", "duplicate", "stale start", "impossible time"]


class ArrivalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a node's clock may be off.

    skew_s: from here on the log's own time is used instead. impossible_s: from here on the record
    is rejected, because no clock that runs is so wrong (366 days).
    """

    skew_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 2.0
    impossible_s: Annotated[float, msgspec.Meta(ge=3600, le=10 * YEAR_S)] = 31_622_400.0

    def __post_init__(self) -> None:
        """Keep the order: what is off at all comes before what can't be."""
        if self.skew_s >= self.impossible_s:
            raise ValueError(
                f"skew_s: {self.skew_s:g} is not below impossible_s ({self.impossible_s:g}), so "
                "every clock that is off would be rejected: lower it"
            )


class Delivery(msgspec.Struct):
    """The numbers that one start of an agent has used: the highest, and a window of bits below."""

    start: str
    highest: int
    first: int
    seen: int = 1

    def take(self, sequence: int) -> bool:
        """Note a number; tell whether it is new."""
        ahead = sequence - self.highest
        if ahead > 0:
            self.seen = ((self.seen << ahead) | 1) & _WINDOW_MASK if ahead < WINDOW else 1
            self.highest = sequence
            return True
        if ahead <= -WINDOW or self.seen >> -ahead & 1:
            return False
        self.seen |= 1 << -ahead
        self.first = min(self.first, sequence)
        return True

    @property
    def missing(self) -> int:
        """Return how many numbers between the first and the highest have not arrived."""
        width = min(self.highest - self.first + 1, WINDOW)
        return width - (self.seen & ((1 << width) - 1)).bit_count()

    def give_up(self) -> int:
        """Stop waiting for what is missing; return how much that was."""
        missing = self.missing
        self.first = self.highest
        return missing


class NodeArrivals(msgspec.Struct):
    """What is known about one node's way of arriving.

    `start_order` numbers the agent's starts as they were first seen; `shift_ns` is what is added to
    the node's times; `steady` counts batches that were late by the same amount.
    """

    number: int
    boot: str = ""
    current: Delivery | None = None
    previous: Delivery | None = None
    newest_ns: int = 0
    shift_ns: int = 0
    offset_ns: int = 0
    steady: int = 0
    heard_ns: int = 0

    def take(self, start: str, sequence: int) -> Verdict:
        """Judge a record by the agent's start and its number."""
        if self.current is None or start != self.current.start:
            if self.previous is not None and start == self.previous.start:
                return "kept" if self.previous.take(sequence) else "duplicate"
            self.previous = self.current
            self.current = Delivery(start, sequence, sequence)
            return "kept"
        return "kept" if self.current.take(sequence) else "duplicate"

    def moment(
        self,
        time_ns: int,
        appended_ns: int,
        settings: ArrivalSettings,
        lateness_s: float,
    ) -> int | None:
        """Return the record's moment in the cell's time; None where its time is impossible.

        A record that is behind by less than the lateness that frames wait for needs no mending.
        """
        offset_ns = appended_ns - time_ns
        if abs(offset_ns) > settings.impossible_s * NANOSECONDS:
            return None
        skew_ns = nanoseconds(settings.skew_s)
        if self.shift_ns and abs(offset_ns - self.shift_ns) <= skew_ns:
            return time_ns + self.shift_ns
        if offset_ns < -skew_ns:
            # A record from the future: no way to arrive can explain that.
            self.shift_ns = offset_ns
        elif offset_ns > skew_ns + nanoseconds(lateness_s):
            # Compared with the start of the run: a backlog that drains is a little less late each
            # time, and a clock is not.
            same = abs(offset_ns - self.offset_ns) <= NANOSECONDS
            self.steady = self.steady + 1 if same else 0
            if not same:
                self.offset_ns = offset_ns
            self.shift_ns = offset_ns if self.steady >= STEADY_BATCHES else 0
        else:
            self.shift_ns = 0
            self.steady = 0
        return time_ns + self.shift_ns
