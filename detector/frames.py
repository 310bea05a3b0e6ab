"""Frames: the samples of a whole cell, aligned by event time.

A frame holds what happened within one period. It closes as soon as every node that is expected has
delivered it, or when the log's time has moved on by `lateness_s`; what arrives after that is late.
All of this depends on the records alone, never on how polls happened to group them.
"""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.series import IntColumn

Floats = NDArray[np.float64]
FRAMES_WAITING_MAX = 1000  # each holds a whole cell


class FrameSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """period_s: the length of a frame; lateness_s: how long a frame waits for slow nodes.

    The wait counts from the end of a frame; it may keep FRAMES_WAITING_MAX of them in the making.
    """

    period_s: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 1.0
    lateness_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0

    def __post_init__(self) -> None:
        """Bound how many frames there are in the making."""
        if self.lateness_s > FRAMES_WAITING_MAX * self.period_s:
            raise ValueError(
                f"lateness_s: {self.lateness_s:g} keeps more than {FRAMES_WAITING_MAX} frames of "
                f"period_s = {self.period_s:g} waiting: lower it, or raise period_s"
            )


@dataclass(frozen=True, slots=True)
class Frame:
    """One aligned moment: its newest sample's time; rows with a value, their times and values."""

    newest_ns: int
    rows: IntColumn
    times_s: Floats
    values: Floats


@dataclass(slots=True)
class Part:
    """One node's batch within a frame."""

    node: int
    time_ns: int
    sequence: int
    offset: int
    rows: IntColumn
    values: Floats


@dataclass
class Frames:
    """The frames in the making.

    `reached` holds, for each node number, the newest frame up to which its delivery has no gap;
    -1 where the node is not expected. `waiting` nodes have not reached the oldest frame yet.
    """

    settings: FrameSettings
    pending: dict[int, list[Part]] = field(default_factory=dict)
    closed: int = -1
    reached: IntColumn = field(default_factory=lambda: np.full(16, -1, np.int64))
    waiting: int = 0
    _oldest: int | None = None

    def number_of(self, time_ns: int) -> int:
        """Return the number of the frame in which a moment lies."""
        return int(time_ns // round(self.settings.period_s * 1e9))

    def add(self, part: Part) -> None:
        """Put a batch into its frame."""
        number = self.number_of(part.time_ns)
        parts = self.pending.get(number)
        if parts is None:
            self.pending[number] = [part]
            if self._oldest is None or number < self._oldest:
                self._look_at(number)
        else:
            parts.append(part)

    def reach(self, node: int, number: int) -> None:
        """Note that a node's delivery is whole up to this frame."""
        if node >= len(self.reached):
            more = np.full(max(len(self.reached), node + 1), -1, np.int64)
            self.reached = np.concatenate([self.reached, more])
        before = int(self.reached[node])
        if number <= before:
            return
        self.reached[node] = number
        if self._oldest is not None and 0 <= before < self._oldest <= number:
            self.waiting -= 1

    def expect_no_more(self, node: int) -> None:
        """Stop waiting for a node that went silent."""
        if node < len(self.reached) and self.reached[node] >= 0:
            self.reached[node] = -1
            if self._oldest is not None:
                self._look_at(self._oldest)

    def due(self, now_ns: int) -> int | None:
        """Return the number of the oldest frame that can close now, or None."""
        if self._oldest is None:
            return None
        end_ns = (self._oldest + 1) * self.settings.period_s * 1e9
        if self.waiting <= 0 or now_ns >= end_ns + self.settings.lateness_s * 1e9:
            return self._oldest
        return None

    def close(self, number: int) -> list[Frame]:
        """Take a frame out; several where a node has more than one batch in it."""
        parts = self.pending.pop(number)
        self.closed = max(self.closed, number)
        self._oldest = None
        if self.pending:
            self._look_at(min(self.pending))
        return [_joined(layer) for layer in _layers(parts) if layer]

    def drop(self, node: int) -> None:
        """Drop what is pending of a node: it booted anew, its rows are another life's."""
        for number, parts in self.pending.items():
            self.pending[number] = [part for part in parts if part.node != node]

    def restore(self, closed: int, reached: IntColumn, pending: dict[int, list[Part]]) -> None:
        """Become the saved frames."""
        self.closed, self.reached, self.pending = closed, reached, pending
        self._oldest = None
        if pending:
            self._look_at(min(pending))

    def _look_at(self, number: int) -> None:
        self._oldest = number
        self.waiting = int(np.count_nonzero((self.reached >= 0) & (self.reached < number)))


def _layers(parts: list[Part]) -> list[list[Part]]:
    """Split so that no node stands twice in one layer; a node's batches go by time."""
    if len({part.node for part in parts}) == len(parts):
        return [parts]
    layers: list[list[Part]] = []
    depth: dict[int, int] = {}
    for part in sorted(parts, key=lambda part: (part.time_ns, part.sequence)):
        place = depth.get(part.node, 0)
        depth[part.node] = place + 1
        if place == len(layers):
            layers.append([])
        layers[place].append(part)
    return layers


def _joined(parts: list[Part]) -> Frame:
    counts = np.array([len(part.rows) for part in parts], np.int64)
    times_s = np.repeat(np.array([part.time_ns / 1e9 for part in parts]), counts)
    rows = np.concatenate([part.rows for part in parts])
    values = np.concatenate([part.values for part in parts])
    return Frame(max(part.time_ns for part in parts), rows, times_s, values)
