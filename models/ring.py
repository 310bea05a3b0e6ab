"""The lowest value of each block of time, for the last blocks of every series, at one width.

The floor of a block hides what comes and goes within it: garbage collection, batches, checkpoints.
Block k of width W holds the readings with k W <= time < (k + 1) W, by the series' own event time,
and lies in slot k mod slots. So all rows that are at the same block share a slot, and a frame of
readings is one contiguous write.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.base import Columns, Floats, Indices, Kind, Rows, Singles, numbered

NONE = -(2**62)
"""No block: what a fresh row has as its open and as its newest closed block."""

BRIDGE_BLOCKS_MAX = 2
"""A hole of at most this many blocks is bridged on a straight line; a longer one starts anew."""

Index = NDArray[np.int64]


class Closed(NamedTuple):
    """The blocks that were just closed, one for each row: which, its lowest and highest value."""

    number: Index
    low: Singles
    high: Singles


class Ring(Columns):
    """Floors at one width for all series; one block more than a window, so that two windows fit."""

    floors: Singles
    newest: Index
    filled: NDArray[np.uint8]
    bridged: NDArray[np.uint32]
    open: Index
    low: Singles
    high: Singles
    swing: Singles
    swung: NDArray[np.uint8]
    """Blocks since the swing that counts was seen, 255 at most."""

    def __init__(self, blocks: int, capacity: int) -> None:
        self.blocks = blocks
        self.slots = blocks + 1
        self._bits = np.uint32((1 << self.slots) - 1)
        self._fade = np.float32(1.0 - 1.0 / blocks)
        super().__init__(
            capacity,
            {
                "floors": Kind(np.float32, 0.0, width=self.slots),
                "newest": Kind(np.int64, NONE),
                "filled": Kind(np.uint8, 0),
                "bridged": Kind(np.uint32, 0),
                "open": Kind(np.int64, NONE),
                "low": Kind(np.float32, 0.0),
                "high": Kind(np.float32, 0.0),
                "swing": Kind(np.float32, 0.0),
                "swung": Kind(np.uint8, 255),
            },
        )

    def absorb(self, rows: Rows, index: Index, low: Singles, high: Singles) -> None:
        """Take readings (or a narrower ring's closed block) into the open block `index`.

        A row whose open block is another one starts this one; the caller has closed the other.
        """
        going_on = self.open[rows] == index
        if going_on.all():
            self.low[rows] = np.minimum(self.low[rows], low)
            self.high[rows] = np.maximum(self.high[rows], high)
        elif not going_on.any():
            self.low[rows] = low
            self.high[rows] = high
            self.open[rows] = index
        else:
            self.low[rows] = np.where(going_on, np.minimum(self.low[rows], low), low)
            self.high[rows] = np.where(going_on, np.maximum(self.high[rows], high), high)
            self.open[rows] = index

    def close(self, rows: Rows) -> Closed:
        """Move the open block of each of these rows into its ring, and leave none open."""
        closed = Closed(self.open[rows].copy(), self.low[rows].copy(), self.high[rows].copy())
        missing = closed.number - self.newest[rows] - 1
        swing = closed.high - closed.low
        if not missing.any() and (closed.number == closed.number[0]).all():
            self.floors[int(closed.number[0]) % self.slots, rows] = closed.low
            self.filled[rows] = np.minimum(self.filled[rows] + np.uint8(1), np.uint8(self.slots))
            self.bridged[rows] = (self.bridged[rows] << np.uint32(1)) & self._bits
            self._swing(rows, swing, self.swing[rows] * self._fade, np.uint8(1))
        else:
            self._close_apart(numbered(rows, self.capacity), closed, missing, swing)
        self.newest[rows] = closed.number
        self.open[rows] = NONE
        return closed

    def _close_apart(self, rows: Indices, closed: Closed, missing: Index, swing: Singles) -> None:
        """Close blocks that lie in different slots, or have a hole before them."""
        anew = missing > BRIDGE_BLOCKS_MAX
        hole = np.where(anew, 0, missing)
        before = self.floors[self.newest[rows] % self.slots, rows]
        for step in range(1, BRIDGE_BLOCKS_MAX + 1):
            here = hole >= step
            share = np.float32(step) / (hole[here] + 1).astype(np.float32)
            slot = (self.newest[rows[here]] + step) % self.slots
            self.floors[slot, rows[here]] = before[here] + (closed.low[here] - before[here]) * share
        self.floors[closed.number % self.slots, rows] = closed.low
        added = (hole + 1).astype(np.uint32)
        bits = ((np.uint32(1) << added) - np.uint32(2)) | (self.bridged[rows] << added)
        self.bridged[rows] = np.where(anew, np.uint32(0), bits & self._bits)
        filled = np.minimum(self.filled[rows] + added, self.slots).astype(np.uint8)
        self.filled[rows] = np.where(anew, np.uint8(1), filled)
        faded = self.swing[rows] * self._fade
        for step in range(1, BRIDGE_BLOCKS_MAX + 1):
            faded = np.where(hole >= step, faded * self._fade, faded)
        faded = np.where(anew, np.float32(0.0), faded)
        self._swing(rows, swing, faded, added.astype(np.uint8))

    def _swing(
        self, rows: Rows, swing: Singles, faded: Singles, passed: NDArray[np.uint8] | np.uint8
    ) -> None:
        """Keep the larger of a block's swing and what is left of an earlier one."""
        anew = swing >= faded
        older = np.minimum(self.swung[rows], np.uint8(200)) + passed
        self.swing[rows] = np.where(anew, swing, faded)
        self.swung[rows] = np.where(anew, np.uint8(0), older)

    def usual_swing(self, rows: Indices) -> Floats:
        """How far the series swings within a block, 0 where it has not since the window began.

        The fall that began the window is no swing that rides on what grew since: a slow tooth
        would seem to be at its peak's height above its peak.
        """
        within = self.swung[rows] < self.blocks - 2
        return np.where(within, self.swing[rows], 0.0).astype(np.float64)

    def ends(self, rows: Rows, back: int) -> tuple[Singles, Singles]:
        """First and last floor of the window that ends `back` blocks before the newest one."""
        newest = self.newest[rows]
        if len(newest) and (newest == newest[0]).all():
            last = (int(newest[0]) - back) % self.slots
            first = (last - self.blocks + 1) % self.slots
            return self.floors[first, rows], self.floors[last, rows]
        numbers = numbered(rows, self.capacity)
        slot = (newest - back) % self.slots
        return (
            self.floors[(slot - self.blocks + 1) % self.slots, numbers],
            self.floors[slot, numbers],
        )

    def windows(self, rows: Indices, back: int) -> Floats:
        """The window that ends `back` blocks before each row's newest: (n, blocks), oldest first.

        Holes that were never filled hold stale numbers: ask `full` first.
        """
        order = np.arange(1 - self.blocks - back, 1 - back)
        slots = (self.newest[rows][:, None] + order) % self.slots
        return np.asarray(self.floors[slots, rows[:, None]], dtype=np.float64)

    def holes(self, rows: Indices, back: int) -> Indices:
        """How many blocks of that window were bridged."""
        window = (np.uint32(1) << np.uint32(self.blocks)) - np.uint32(1)
        seen = (self.bridged[rows] >> np.uint32(back)) & window
        return np.asarray(np.bitwise_count(seen), dtype=np.intp)
