"""What the floor rings answer: which blocks closed, and what the tests say of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from models.base import Flags, Floats, Indices, Rows


@dataclass(frozen=True, slots=True)
class Advanced:
    """Which rows closed a block at which width, narrowest width first."""

    closed: tuple[tuple[int, Rows], ...] = ()
    """(place in `widths_s`, rows); a width is there at most once."""

    def __bool__(self) -> bool:
        return bool(self.closed)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Columns, one entry for each judged pair of row and width, by width and then by row."""

    rows: Indices
    width_s: Floats
    end_s: Floats
    """When the newest closed block ended, seconds of event time."""
    passed: Flags
    """All tests said yes at this block end and at the one before."""
    passed_now: Flags
    """All tests said yes at this block end."""
    said_yes: Indices
    """Bits of `LeakTest`; `SAID_NO` has the words for those that are missing."""
    slope: Floats
    """Values per second; NaN where the ring is not full, as in all columns below."""
    slope_low: Floats
    slope_high: Floats
    floor: Floats
    """The lowest value of the block that closed last."""
    exhaustion_s: Floats
    """Seconds from the end of that block until the limit: best estimate, early end and late end
    of an interval meant to hold nine times in ten. inf where the limit is never met; below 0 where
    readings after that block had met it."""
    low_s: Floats
    high_s: Floats
    onset_s: Floats
    """When growth began, seconds of event time: where the line leaves the level that wider rings
    remember; the oldest known moment of growth where none remembers an earlier level."""

    def __len__(self) -> int:
        return len(self.rows)


def joined(found: Sequence[Verdicts]) -> Verdicts:
    """One set of columns out of several, in their order."""
    if not found:
        return _NO_VERDICTS
    names = [field.name for field in fields(Verdicts)]
    return Verdicts(*(np.concatenate([getattr(part, name) for part in found]) for name in names))


_NO_VERDICTS = Verdicts(
    rows=np.empty(0, dtype=np.intp),
    width_s=np.empty(0),
    end_s=np.empty(0),
    passed=np.empty(0, dtype=np.bool_),
    passed_now=np.empty(0, dtype=np.bool_),
    said_yes=np.empty(0, dtype=np.intp),
    slope=np.empty(0),
    slope_low=np.empty(0),
    slope_high=np.empty(0),
    floor=np.empty(0),
    exhaustion_s=np.empty(0),
    low_s=np.empty(0),
    high_s=np.empty(0),
    onset_s=np.empty(0),
)
