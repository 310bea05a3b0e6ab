"""The columns of one cell: newest values, rates, levels, leaks and memory pressure, frame by frame.

This is where samples become evidence. Below here there is no Python loop over samples; the loops
that are left go over the few series that are suspected.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.messages import Contribution, Scope
from bus.samples import Layout
from bus.signals import Catalogue
from detector.frames import Frame
from detector.fusion import Evidence, Fusion
from detector.leaks import Leaks, Reading, weighed
from detector.pressure import Pressure
from detector.rates import Rates
from detector.series import KIND, NO_ROW, IntColumn, NodeSeries, SavedIndex, SeriesIndex
from detector.settings import ModelSettings, ScorerSettings
from models import floors, level

Floats = NDArray[np.float64]
PRESSURE_OF_SCOPE = {
    "container": "container_memory_pressure_full_percent",
    "node": "memory_pressure_full_percent",
}


class CellColumns:
    """Everything that is known about the series of one cell."""

    def __init__(
        self,
        settings: ScorerSettings,
        models: ModelSettings,
        catalogue: Catalogue,
        cell: str,
    ) -> None:
        """Know nothing yet."""
        self._settings = settings
        self._catalogue = catalogue
        self._cell = cell
        self.index = SeriesIndex(catalogue, settings.series)
        self.value = np.full(self.index.capacity, np.nan)
        self._rates = Rates(self.index.capacity)
        self._level = level.build(models.level, self.index.capacity)
        self._leaks = Leaks(
            settings.leaks,
            floors.build(models.floors, self.index.leak_capacity),
        )
        self._pressure = Pressure(settings.pressure)
        self._misses: dict[int, int] = {}

    def rows_of(self, node: NodeSeries, layout: Layout, now_s: float) -> IntColumn:
        """Return the rows of a batch, making room for series that are new."""
        rows = self.index.rows_of(node, layout, now_s)
        if self.index.capacity > len(self.value):
            more = self.index.capacity - len(self.value)
            self.value = np.concatenate([self.value, np.full(more, np.nan)])
            self._rates.grow(self.index.capacity)
            self._level.grow(self.index.capacity)
        self._leaks.grow(self.index.leak_capacity)
        return rows

    def advance(self, frame: Frame, fusion: Fusion) -> None:
        """Take one frame: score, learn, and tell the fusion what changed."""
        moment_ns = frame.newest_ns
        # Rows may have been given back since the batch came (its node booted anew).
        alive = self.index.kind[frame.rows] != NO_ROW
        rows, times_s, values = frame.rows[alive], frame.times_s[alive], frame.values[alive]
        elapsed_s = times_s - self.index.seen_s[rows]
        self.value[rows] = values
        self.index.seen_s[rows] = times_s
        kind = self.index.kind[rows]
        counters = kind == KIND["counter"]
        self._rates.advance(rows[counters], times_s[counters], values[counters])
        gauges = (kind == KIND["gauge"]) | (kind == KIND["duration"]) | (kind == KIND["percent"])
        self._level.learn(rows[gauges], values[gauges], np.maximum(elapsed_s[gauges], 0.0))
        self._leak_evidence(rows, times_s, values, moment_ns, fusion)
        self._pressure_evidence(rows, times_s, moment_ns, fusion)
        self._collector_evidence(rows, values, moment_ns, fusion)

    def _leak_evidence(
        self,
        rows: IntColumn,
        times_s: Floats,
        values: Floats,
        moment_ns: int,
        fusion: Fusion,
    ) -> None:
        capable = self.index.leak[rows] != NO_ROW
        leaks = self.index.leak[rows[capable]]
        if not len(leaks):
            return
        told = self._leaks.advance(leaks, times_s[capable], values[capable], self._limits())
        for leak in told:
            row = int(self.index.leak_rows[leak])
            scope, family = self._scope(row), f"memory:{self.index.signal(row).name}"
            growth = self._leaks.growth(int(leak))
            reading = self._reading(row)
            if growth is None or not np.isfinite(reading.limit):
                fusion.hush(scope, "memory_leak", family)
                continue
            evidence = weighed(growth, reading, self._settings.leaks, moment_ns)
            fusion.speak(scope, "memory_leak", family, evidence)

    def _limits(self) -> Floats:
        """Return the level at which each leak-capable series ends, NaN where there is none."""
        rows = self.index.leak_rows
        bounds = np.where(rows != NO_ROW, self.index.bound[rows], NO_ROW)
        return np.where(bounds != NO_ROW, self.value[bounds], np.nan)

    def _reading(self, row: int) -> Reading:
        signal = self.index.signal(row)
        device = self.index.pair(row)[1]
        node = self.index.nodes[self.index.node[row]]
        bound = int(self.index.bound[row])
        pressure = self.index.find(
            node,
            PRESSURE_OF_SCOPE.get(signal.scope, ""),
            device,
        )
        return Reading(
            signal=signal.name,
            device=device,
            value=float(self.value[row]),
            limit=float(self.value[bound]) if bound != NO_ROW else float("nan"),
            pressure_percent=float(self.value[pressure]) if pressure != NO_ROW else 0.0,
        )

    def _scope(self, row: int) -> Scope:
        signal = self.index.signal(row)
        node = self.index.nodes[self.index.node[row]].name
        if signal.scope == "node":
            return Scope("node", self._cell, node)
        return Scope(signal.scope, self._cell, node, self.index.pair(row)[1])

    def _pressure_evidence(
        self,
        rows: IntColumn,
        times_s: Floats,
        moment_ns: int,
        fusion: Fusion,
    ) -> None:
        seen = self._rows_of_metric(rows, "memory_available_bytes")
        if not len(seen):
            return
        places, nodes = seen[:, 0], self.index.node[rows[seen[:, 0]]]
        share = self.value[rows[places]] / self._of_nodes(nodes, "memory_total_bytes")
        full = np.nan_to_num(self._of_nodes(nodes, "memory_pressure_full_percent"))
        hot, calm = self._pressure.advance(nodes, times_s[places], share, full)
        for node in hot:
            self._say_pressure(int(node), moment_ns, fusion)
        for node in calm:
            fusion.hush(self._node_scope(int(node)), "memory_exhaustion", "memory_pressure")

    def _say_pressure(self, node: int, moment_ns: int, fusion: Fusion) -> None:
        share, falling, full = self._pressure.of(node)
        scope = self._node_scope(node)
        known = fusion.voices(scope).get(("memory_exhaustion", "memory_pressure"))
        nats = self._settings.pressure.nats
        text = f"{share:.0%} of memory is available, falling by {falling:.1%} of it a second"
        if full > self._settings.pressure.full_percent:
            text = f"all work waits for memory {full:.0f} % of the time, {share:.0%} is available"
        fusion.speak(
            scope,
            "memory_exhaustion",
            "memory_pressure",
            Evidence(
                nats=nats,
                contributions=(
                    Contribution(signal="memory_pressure", value=share, nats=nats, text=text),
                ),
                since_ns=known.since_ns if known else moment_ns,
            ),
        )

    def _collector_evidence(
        self,
        rows: IntColumn,
        values: Floats,
        moment_ns: int,
        fusion: Fusion,
    ) -> None:
        seen = self._rows_of_metric(rows, "collector_success")
        for place in seen[:, 0][(values[seen[:, 0]] == 0.0)] if len(seen) else ():
            row = int(rows[place])
            self._misses[row] = self._misses.get(row, 0) + 1
            if self._misses[row] == self._settings.watch.collector_misses:
                self._say_collector(row, moment_ns, fusion)
        for row in [row for row in self._misses if self.value[row] == 1.0]:
            del self._misses[row]
            family = f"collector:{self.index.pair(row)[1]}"
            node = int(self.index.node[row])
            fusion.hush(self._node_scope(node), "telemetry", family)

    def _say_collector(self, row: int, moment_ns: int, fusion: Fusion) -> None:
        name = self.index.pair(row)[1]
        nats = self._settings.watch.collector_nats
        fusion.speak(
            self._node_scope(int(self.index.node[row])),
            "telemetry",
            f"collector:{name}",
            Evidence(
                nats=nats,
                contributions=(
                    Contribution(
                        signal="collector_success",
                        device=name,
                        value=0.0,
                        nats=nats,
                        text=f"the collector {name} does not answer",
                    ),
                ),
                since_ns=moment_ns,
            ),
        )

    def _rows_of_metric(self, rows: IntColumn, metric: str) -> IntColumn:
        """Return the places in `rows` that hold this metric, as a column of one."""
        wanted = self.index.metric_numbers.get(metric, NO_ROW)
        return np.argwhere(self.index.metric[rows] == wanted)

    def _of_nodes(self, nodes: IntColumn, metric: str) -> Floats:
        """Return a node-wide value for each node, NaN where it was never sent."""
        rows = np.array(
            [self.index.find(self.index.nodes[node], metric, "") for node in nodes],
            np.int64,
        )
        return np.where(rows != NO_ROW, self.value[rows], np.nan)

    def _node_scope(self, node: int) -> Scope:
        return Scope("node", self._cell, self.index.nodes[node].name)

    def drop_vanished(self, judged_until_s: float, fusion: Fusion) -> None:
        """Suspect nothing that has not been seen for a while: it ended, or we are blind."""
        gone_s = self._settings.leaks.gone_s
        for leak in self._leaks.speaking():
            row = int(self.index.leak_rows[leak])
            if self.index.seen_s[row] < judged_until_s - gone_s:
                self._leaks.drop(int(leak))
                fusion.hush(
                    self._scope(row), "memory_leak", f"memory:{self.index.signal(row).name}"
                )

    def forget_node(self, name: str) -> None:
        """Begin anew with a node: it booted."""
        node = self.index.of_node(name)
        rows, leaks = self.index.forget_node(node)
        self._pressure.forget(node.number)
        self._forget(rows, leaks)

    def retire(self, now_s: float, fusion: Fusion) -> None:
        """Give back the rows of series that ended."""
        old = self.index.expired(now_s)
        for row in old:
            if self.index.leak[row] != NO_ROW:
                family = f"memory:{self.index.signal(int(row)).name}"
                fusion.hush(self._scope(int(row)), "memory_leak", family)
        self._forget(*self.index.free_rows(old))

    def _forget(self, rows: IntColumn, leaks: IntColumn) -> None:
        self.value[rows] = np.nan
        self._rates.forget(rows)
        self._level.forget(rows)
        self._leaks.forget(leaks)
        for row in rows:
            self._misses.pop(int(row), None)

    def save(self) -> dict[str, NDArray[Any]]:
        """Return copies of all columns; the index saves itself."""
        parts = {
            "rates": self._rates.save(),
            "level": self._level.save(),
            "leaks": self._leaks.save(),
            "pressure": self._pressure.save(),
        }
        named = {f"{part}.{name}": c for part, saved in parts.items() for name, c in saved.items()}
        misses = np.array(sorted(self._misses.items()), np.int64).reshape(-1, 2)
        return named | {"value": self.value.copy(), "misses": misses}

    def load(self, index: SavedIndex, arrays: dict[str, NDArray[Any]]) -> None:
        """Become the saved columns."""
        self.index = SeriesIndex.restored(self._catalogue, self._settings.series, index)
        self.value = arrays["value"].copy()
        self._misses = {int(row): int(count) for row, count in arrays["misses"]}
        for part, model in (
            ("rates", self._rates),
            ("level", self._level),
            ("leaks", self._leaks),
            ("pressure", self._pressure),
        ):
            model.load(
                {
                    name.removeprefix(f"{part}."): column
                    for name, column in arrays.items()
                    if name.startswith(f"{part}.")
                },
            )
