"""Which row belongs to which series: the index behind all columns of one cell.

A series is (node, metric, device). Rows are handed out once and used again after their series has
been silent for `ttl_s`; a node that boots anew begins with fresh rows, because nothing that was
learned about its past life holds.
"""

from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from bus.samples import Layout, Pair
from bus.signals import Catalogue, Signal

IntColumn = NDArray[np.int64]
NO_ROW = -1
_KINDS = ("gauge", "percent", "duration", "counter", "ladder", "leak", "state")
KIND = {kind: number for number, kind in enumerate(_KINDS)}


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many series there may be, and how long one is remembered after its last sample."""

    series_per_node_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4096
    series_max: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 2_000_000
    ttl_s: Annotated[float, msgspec.Meta(ge=60, le=2_592_000)] = 600.0


class NodeSeries:
    """The series of one node: a row for each (metric, device), and its layouts turned into rows."""

    __slots__ = ("by_layout", "name", "number", "rows")

    def __init__(self, name: str, number: int) -> None:
        """Start without series."""
        self.name = name
        self.number = number
        self.rows: dict[Pair, int] = {}
        self.by_layout: dict[bytes, IntColumn] = {}


class SeriesIndex:
    """Rows for series, and what is fixed about each row."""

    def __init__(self, catalogue: Catalogue, limits: Limits, capacity: int = 256) -> None:
        """Start empty, with room for `capacity` rows (it doubles as needed)."""
        self._signals = catalogue.signals
        self._limits = limits
        self.kind = np.full(capacity, NO_ROW, np.int64)
        self.metric = np.full(capacity, NO_ROW, np.int64)
        self.metric_numbers = {name: number for number, name in enumerate(self._signals)}
        self.node = np.full(capacity, NO_ROW, np.int64)
        self.bound = np.full(capacity, NO_ROW, np.int64)
        self.leak = np.full(capacity, NO_ROW, np.int64)
        self.seen_s = np.zeros(capacity)
        self._pairs: list[Pair | None] = [None] * capacity
        self._free = list(range(capacity - 1, -1, -1))
        self.leak_rows = np.full(64, NO_ROW, np.int64)
        self._leak_free = list(range(63, -1, -1))
        self.nodes: list[NodeSeries] = []
        self._by_name: dict[str, NodeSeries] = {}
        self.refused: dict[str, int] = {}

    @property
    def capacity(self) -> int:
        """Return how many rows there is room for."""
        return len(self.kind)

    @property
    def leak_capacity(self) -> int:
        """Return how many leak-capable series there is room for."""
        return len(self.leak_rows)

    def of_node(self, name: str) -> NodeSeries:
        """Return the node's series, new ones for a node that is new."""
        node = self._by_name.get(name)
        if node is None:
            node = NodeSeries(name, len(self.nodes))
            self.nodes.append(node)
            self._by_name[name] = node
        return node

    def rows_of(self, node: NodeSeries, layout: Layout, now_s: float) -> IntColumn:
        """Return a row for each sample of the layout; `NO_ROW` where the metric is unknown."""
        rows = node.by_layout.get(layout.names)
        if rows is not None:
            return rows
        found = [self._row(node, pair, now_s) for pair in layout.pairs]
        # Of a pair that stands twice in one batch the last one counts.
        last = {row: place for place, row in enumerate(found)}
        rows = np.array(
            [row if last[row] == place else NO_ROW for place, row in enumerate(found)],
            np.int64,
        )
        for row in rows:
            if row != NO_ROW:
                self._bind(node, int(row))
        if len(node.by_layout) >= 16:
            node.by_layout.clear()
        node.by_layout[layout.names] = rows
        return rows

    def signal(self, row: int) -> Signal:
        """Return what is measured in this row."""
        return self._signals[self.pair(row)[0]]

    def pair(self, row: int) -> Pair:
        """Return (metric, device) of this row."""
        pair = self._pairs[row]
        if pair is None:
            msg = f"row {row} has no series"
            raise LookupError(msg)
        return pair

    def find(self, node: NodeSeries, metric: str, device: str) -> int:
        """Return the row of a series, or `NO_ROW`."""
        return node.rows.get((metric, device), NO_ROW)

    def expired(self, now_s: float) -> IntColumn:
        """Return the rows of series that have been silent too long."""
        return np.flatnonzero((self.kind != NO_ROW) & (self.seen_s < now_s - self._limits.ttl_s))

    def forget_node(self, node: NodeSeries) -> tuple[IntColumn, IntColumn]:
        """Free all rows of a node; return (rows, leak rows)."""
        return self.free_rows(np.array(sorted(node.rows.values()), np.int64))

    def free_rows(self, rows: IntColumn) -> tuple[IntColumn, IntColumn]:
        """Give rows back; return (rows, leak rows)."""
        leaks = self.leak[rows]
        leaks = leaks[leaks != NO_ROW]
        self.leak_rows[leaks] = NO_ROW
        self._leak_free.extend(int(leak) for leak in leaks)
        for row in rows:
            owner = self.nodes[self.node[row]]
            del owner.rows[self.pair(int(row))]
            owner.by_layout.clear()
            self._pairs[row] = None
            self._free.append(int(row))
        for column in (self.kind, self.metric, self.node, self.bound, self.leak):
            column[rows] = NO_ROW
        if len(rows):
            self.bound[np.isin(self.bound, rows)] = NO_ROW
        return rows, leaks

    def _row(self, node: NodeSeries, pair: Pair, now_s: float) -> int:
        row = node.rows.get(pair)
        if row is not None:
            return row
        signal = self._signals.get(pair[0])
        if signal is None:
            return self._refuse("unknown signal")
        if len(node.rows) >= self._limits.series_per_node_max:
            return self._refuse("too many series on the node")
        if not self._free and self.capacity >= self._limits.series_max:
            return self._refuse("too many series")
        if not self._free:
            self._double()
        row = self._free.pop()
        self.kind[row] = KIND[signal.kind]
        self.metric[row] = self.metric_numbers[signal.name]
        self.node[row] = node.number
        self.seen_s[row] = now_s
        self._pairs[row] = pair
        node.rows[pair] = row
        if signal.kind == "leak":
            self._lend_leak_row(row)
        return row

    def _refuse(self, reason: str) -> int:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        return NO_ROW

    def _lend_leak_row(self, row: int) -> None:
        if not self._leak_free:
            size = len(self.leak_rows)
            self.leak_rows = np.concatenate([self.leak_rows, np.full(size, NO_ROW, np.int64)])
            self._leak_free = list(range(2 * size - 1, size - 1, -1))
        leak = self._leak_free.pop()
        self.leak[row] = leak
        self.leak_rows[leak] = row

    def _bind(self, node: NodeSeries, row: int) -> None:
        """Note which row bounds a leak-capable one: the same device's, else the node's."""
        metric, device = self.pair(row)
        capacity = self._signals[metric].capacity
        if capacity:
            self.bound[row] = node.rows.get((capacity, device), NO_ROW)

    def _double(self) -> None:
        size = self.capacity
        more = np.full(size, NO_ROW, np.int64)
        self.kind = np.concatenate([self.kind, more])
        self.metric = np.concatenate([self.metric, more])
        self.node = np.concatenate([self.node, more])
        self.bound = np.concatenate([self.bound, more])
        self.leak = np.concatenate([self.leak, more])
        self.seen_s = np.concatenate([self.seen_s, np.zeros(size)])
        self._pairs.extend([None] * size)
        self._free = list(range(2 * size - 1, size - 1, -1))

    def save(self) -> "SavedIndex":
        """Return the index as plain values; the other columns follow from them."""
        return SavedIndex(
            capacity=self.capacity,
            free=list(self._free),
            leak_free=list(self._leak_free),
            seen_s=self.seen_s.tolist(),
            refused=dict(self.refused),
            nodes=[
                (
                    node.name,
                    [(metric, device, row) for (metric, device), row in node.rows.items()],
                )
                for node in self.nodes
            ],
            leak_rows=self.leak_rows.tolist(),
        )

    @classmethod
    def restored(cls, catalogue: Catalogue, limits: Limits, state: "SavedIndex") -> "SeriesIndex":
        """Return the index that was saved."""
        index = cls(catalogue, limits, state.capacity)
        index._free = list(state.free)
        index._leak_free = list(state.leak_free)
        index.seen_s = np.array(state.seen_s)
        index.refused = dict(state.refused)
        index.leak_rows = np.array(state.leak_rows, np.int64)
        for name, rows in state.nodes:
            node = index.of_node(name)
            for metric, device, row in rows:
                node.rows[metric, device] = row
                index._pairs[row] = (metric, device)
                index.kind[row] = KIND[catalogue.signals[metric].kind]
                index.metric[row] = index.metric_numbers[metric]
                index.node[row] = node.number
        for node in index.nodes:
            for row in node.rows.values():
                index._bind(node, row)
        lent = np.flatnonzero(index.leak_rows != NO_ROW)
        index.leak[index.leak_rows[lent]] = lent
        return index


class SavedIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a saved index."""

    capacity: int
    free: list[int]
    leak_free: list[int]
    seen_s: list[float]
    refused: dict[str, int]
    nodes: list[tuple[str, list[tuple[str, str, int]]]]
    leak_rows: list[int]
