"""When growth meets its limit, and when it began: arithmetic on lines.

Kept apart from the tests, which decide whether a line may be drawn at all.

A leak's total is a rising floor with something on top: the teeth of a garbage collector, batches,
checkpoints. What kills is the top. So the best estimate and the early end of the interval let the
floor's line carry the usual swing with it; the late end is when the floor itself arrives.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.base import Flags, Floats


class Line(NamedTuple):
    """A rising floor, one row for each series: what a window says of level and slope."""

    start_s: Floats
    """When the window's last block began."""
    floor: Floats
    """The line's level at that moment."""
    slope: Floats
    """Values per second, with the interval that holds the slope to come."""
    slope_low: Floats
    slope_high: Floats
    swing: Floats
    """How far above the floor the series usually reaches within a block, its growth taken off;
    0 where that is less than the growth of one block."""


class Forecast(NamedTuple):
    """Seconds from the moment asked about until the limit.

    inf where it is never met, 0 where it has been.
    """

    exhaustion_s: Floats
    low_s: Floats
    high_s: Floats


def exhaustion(line: Line, time_s: Floats, values: Floats, limits: Floats) -> Forecast:
    """Carry each line on from its newest reading.

    `values` at `time_s` anchor the forecast: where nothing swings above the floor they are the
    truth; where it does, the line with its swing is, unless the reading is already higher.
    """
    floor = line.floor + line.slope * np.maximum(time_s - line.start_s, 0.0)
    top = np.where(line.swing > 0, np.maximum(values, floor + line.swing), values)
    bottom = np.where(line.swing > 0, np.minimum(values, floor), values)
    return Forecast(
        _time_to(limits - top, line.slope),
        _time_to(limits - top, line.slope_high),
        _time_to(limits - bottom, line.slope_low),
    )


def swing_above(swing: Floats, slope: Floats, width_s: float) -> Floats:
    """What of a block's swing is not its growth; too little to tell from growth counts as none."""
    growth = slope * width_s
    return np.where(swing > 2.0 * growth, swing - growth, 0.0)


def _time_to(headroom: Floats, slope: Floats) -> Floats:
    rising = slope > 0
    seconds = np.maximum(headroom, 0.0) / np.where(rising, slope, 1.0)
    return np.where(rising, seconds, np.where(headroom > 0, np.inf, 0.0))


class History(NamedTuple):
    """What a wider ring remembers of each row: (n, blocks)."""

    start_s: Floats
    floor: Floats
    known: Flags
    """False where the ring holds no such block."""
    width_s: float


def onset(line: Line, began_s: Floats, histories: Sequence[History]) -> Floats:
    """When the growth along `line` began, seconds of event time.

    `began_s` is when the judged window began, all of it growth. Each wider ring is asked for the
    newest block before that which does not lie on the line: its floor is the level before, and the
    line leaves that level at the onset. Where every block that is known lies on the line, growth
    is as old as the oldest of them, or older.
    """
    level_s = np.full(began_s.shape, np.nan)
    oldest_s = began_s.astype(np.float64)
    for history in histories:
        before = history.known & (history.start_s + history.width_s <= began_s[:, None])
        along = line.floor[:, None] + line.slope[:, None] * (
            history.start_s - line.start_s[:, None]
        )
        tolerance = 2.0 * line.slope[:, None] * history.width_s
        off = before & (np.abs(history.floor - along) > tolerance)
        newest = np.argmax(np.where(off, history.start_s, -np.inf), axis=1)
        each = np.arange(len(newest))
        crossing_s = line.start_s - (line.floor - history.floor[each, newest]) / line.slope
        found = off.any(axis=1) & np.isnan(level_s)
        level_s[found] = np.maximum(crossing_s, history.start_s[each, newest])[found]
        oldest_s = np.minimum(oldest_s, np.where(before, history.start_s, np.inf).min(axis=1))
    return np.where(np.isnan(level_s), oldest_s, level_s)
