"""Counters to rates: raw cumulative numbers in, increments per second out.

A counter that falls was reset (a reboot, a driver reload, a wrap): the interval is a gap, never a
spike. Counters are kept as float64, which counts exactly up to 2^53.
"""

import numpy as np
from numpy.typing import NDArray

from detector.series import IntColumn

Floats = NDArray[np.float64]


class Rates:
    """The last value and moment of each counter."""

    def __init__(self, capacity: int) -> None:
        """Know nothing about `capacity` rows."""
        self._value = np.full(capacity, np.nan)
        self._time_s = np.full(capacity, np.nan)
        self.resets = 0

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        more = np.full(max(capacity - len(self._value), 0), np.nan)
        self._value = np.concatenate([self._value, more])
        self._time_s = np.concatenate([self._time_s, more])

    def forget(self, rows: IntColumn) -> None:
        """Make these rows fresh."""
        self._value[rows] = np.nan
        self._time_s[rows] = np.nan

    def advance(self, rows: IntColumn, time_s: Floats, values: Floats) -> Floats:
        """Return increments per second since each row's last sample, NaN for the first or a reset.

        A sample that is not newer than the row's last one gives NaN and changes nothing.
        """
        before = self._value[rows]
        elapsed = time_s - self._time_s[rows]
        step = values - before
        stale = elapsed <= 0
        reset = (step < 0) & ~stale
        self.resets += int(np.count_nonzero(reset))
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(reset | stale, np.nan, step / elapsed)
        taken = ~stale & ~np.isnan(values)
        self._value[rows[taken]] = values[taken]
        self._time_s[rows[taken]] = time_s[taken]
        return rates

    def save(self) -> dict[str, NDArray[np.float64]]:
        """Return copies of the columns."""
        return {"value": self._value.copy(), "time_s": self._time_s.copy()}

    def load(self, state: dict[str, NDArray[np.float64]]) -> None:
        """Become the saved state."""
        self._value = state["value"].copy()
        self._time_s = state["time_s"].copy()
