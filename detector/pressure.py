"""The hard rule for memory: almost nothing left and falling, or all work waiting for memory.

It needs no trend over many blocks, so it speaks within seconds (detection of what is too fast for
the rings). It judges nodes; what happens to a container at its own limit is the kernel's to tell.
"""

from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.bounds import Nats, Percent, Share
from detector.series import IntColumn

Floats = NDArray[np.float64]


class PressureSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """available_share and falling_share_per_s: both must hold; or full_percent alone.

    Each must hold for `sustain_s`; evidence ends `calm_s` after none holds any more.
    """

    available_share: Share = 0.08
    falling_share_per_s: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.001
    falling_tau_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 3.0
    full_percent: Percent = 10.0
    sustain_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 3.0
    calm_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    nats: Nats = 12.0


class Pressure:
    """One entry for each node of the cell."""

    def __init__(self, settings: PressureSettings, capacity: int = 16) -> None:
        """Know nothing yet."""
        self._settings = settings
        # share available, share lost per second, PSI, newest sample, hot since, calm since
        self._columns = np.full((6, capacity), np.nan)

    def advance(
        self,
        nodes: IntColumn,
        time_s: Floats,
        share: Floats,
        full_percent: Floats,
    ) -> tuple[IntColumn, IntColumn]:
        """Take one frame of unique nodes; return those that are hot and those that calmed down."""
        self._grow(int(nodes.max(initial=-1)) + 1)
        columns, rules = self._columns, self._settings
        elapsed = time_s - columns[3, nodes]
        known = elapsed > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            speed = (columns[0, nodes] - share) / elapsed
            weight = 1.0 - np.exp(-elapsed / rules.falling_tau_s)
        before = np.nan_to_num(columns[1, nodes])
        falling = np.where(known & np.isfinite(speed), before + weight * (speed - before), before)
        columns[0, nodes], columns[1, nodes], columns[3, nodes] = share, falling, time_s
        columns[2, nodes] = full_percent
        hot = (share < rules.available_share) & (falling > rules.falling_share_per_s)
        hot |= full_percent > rules.full_percent
        since = np.where(hot, np.fmin(columns[4, nodes], time_s), np.nan)
        columns[4, nodes] = since
        calm = np.where(hot, np.nan, np.fmin(columns[5, nodes], time_s))
        columns[5, nodes] = calm
        return (
            nodes[hot & (time_s - since >= rules.sustain_s)],
            nodes[~hot & (time_s - calm >= rules.calm_s)],
        )

    def of(self, node: int) -> tuple[float, float, float]:
        """Return (share available, share lost per second, PSI full percent) of a node."""
        share, falling, full = self._columns[:3, node]
        return float(share), float(falling), float(full)

    def forget(self, node: int) -> None:
        """Make a node fresh."""
        if node < self._columns.shape[1]:
            self._columns[:, node] = np.nan

    def save(self) -> dict[str, NDArray[np.float64]]:
        """Return a copy of the columns."""
        return {"columns": self._columns.copy()}

    def load(self, state: dict[str, NDArray[np.float64]]) -> None:
        """Become the saved state."""
        self._columns = state["columns"].copy()

    def _grow(self, capacity: int) -> None:
        have = self._columns.shape[1]
        if capacity > have:
            more = np.full((6, max(have, capacity - have)), np.nan)
            self._columns = np.hstack([self._columns, more])
