"""Leaks: rings of block floors at several widths, and the tests that tell a leak from a habit.

For each series that can leak (memory that nobody can reclaim, not memory "used") and at each width
W the lowest value of every block of W seconds is kept for the last 24 blocks and one. When a block
closes, the window of 24 is judged; a leak is what passes all tests at two consecutive block ends.
Fast widths see a leak of tens of MB/s within half a minute, slow ones see growth over days; a ring
fills only where readings come at least as often as its blocks.

Does not work well if the series is read once a block (then there is no floor: whatever swings
faster than the readings can fold into a slow ramp), or if the growth comes in stairs whose period
is longer than a block (the next width sees those).
"""

from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.base import (
    Columns,
    Flags,
    Floats,
    Indices,
    Kind,
    Rows,
    State,
    chosen,
    numbered,
    singles,
    usable,
)
from models.forecast import Forecast, History, Line, exhaustion, onset, swing_above
from models.ring import NONE, Ring
from models.trend import ALL_TESTS, LeakTest, Trend, examine, material, urgent
from models.verdicts import Advanced, Verdicts, joined

LATEST_S = 2.0**52
"""A moment beyond this is no moment: seconds would no longer be told apart."""


Width = Annotated[float, msgspec.Meta(ge=0.1, le=604_800)]  # up to a week
Widths = Annotated[tuple[Width, ...], msgspec.Meta(min_length=1, max_length=12)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[models.floors]`: how wide blocks are, and how many make a window."""

    widths_s: Widths = (1.0, 5.0, 60.0, 300.0, 1200.0, 3600.0)
    """Block widths, ascending, each a whole multiple of the one before."""
    blocks: Annotated[int, msgspec.Meta(ge=12, le=30)] = 24
    """Blocks in a window; 12 to 30, a multiple of 6, since halves and thirds of it are compared."""
    holes_max: Annotated[int, msgspec.Meta(ge=0, le=29)] = 8
    """Blocks of a window that may be bridged. Readings once a block that jitter around a block's
    edge leave up to a quarter of the blocks without one."""

    def __post_init__(self) -> None:
        if not self.widths_s or not all(0 < width < np.inf for width in self.widths_s):
            raise ValueError("widths_s: needs at least one width, each above 0")
        for narrow, wide in zip(self.widths_s, self.widths_s[1:], strict=False):
            if wide <= narrow or abs(wide / narrow - round(wide / narrow)) > 1e-9:
                raise ValueError(
                    f"widths_s: {wide:g} is no whole multiple of {narrow:g}: name widths in "
                    "ascending order, each a whole multiple of the one before"
                )
        if not 12 <= self.blocks <= 30 or self.blocks % 6:
            raise ValueError(f"blocks: {self.blocks} is not one of 12, 18, 24, 30")
        if not 0 <= self.holes_max < self.blocks:
            raise ValueError(
                f"holes_max: {self.holes_max} is not from 0 to {self.blocks - 1}, what a window of "
                f"{self.blocks} blocks can bridge: lower it"
            )


class FloorRings:
    """Rings at all widths for `capacity` series.

    Rows that belong to one series' successor (a new process, a new container, another boot) must
    be forgotten first: a ring that is full then says that the series was whole for so long (T8).
    """

    def __init__(self, settings: Settings, capacity: int) -> None:
        self.settings = settings
        self._heads = _Heads(capacity)
        self._rings = tuple(Ring(settings.blocks, capacity) for _ in settings.widths_s)
        self._ratios = tuple(
            round(wide / narrow)
            for narrow, wide in zip(settings.widths_s, settings.widths_s[1:], strict=False)
        )

    @property
    def capacity(self) -> int:
        """Number of rows."""
        return self._heads.capacity

    @property
    def bytes_per_row(self) -> int:
        """Bytes that one series costs."""
        return self._heads.bytes_per_row + sum(ring.bytes_per_row for ring in self._rings)

    def grow(self, capacity: int) -> None:
        """Make room. Fresh rows know nothing; a capacity that is smaller changes nothing."""
        for columns in (self._heads, *self._rings):
            columns.grow(capacity)

    def forget(self, rows: Rows) -> None:
        """Make these rows fresh."""
        for columns in (self._heads, *self._rings):
            columns.forget(rows)

    def save(self) -> State:
        """Copies of all columns, a ring's under its width."""
        return {
            f"{name}.{column}": array
            for name, columns in self._named()
            for column, array in columns.save().items()
        }

    def load(self, state: State) -> None:
        """Become the saved rings; ValueError where widths, blocks or lengths differ from ours."""
        parts: dict[str, State] = {name: {} for name, _ in self._named()}
        for key, array in state.items():
            name, _, column = key.rpartition(".")
            if name not in parts:
                raise ValueError(f"saved column {key} belongs to none of {sorted(parts)}")
            parts[name][column] = array
        fresh = FloorRings(self.settings, 0)
        for name, columns in fresh._named():
            columns.load(parts[name])
        if len({columns.capacity for _, columns in fresh._named()}) != 1:
            raise ValueError("saved rings differ in length")
        self._heads, self._rings = fresh._heads, fresh._rings

    def learn(self, rows: Rows, time_s: Floats | float, values: Floats) -> Advanced:
        """Take one reading for each of these rows; say which blocks that closed.

        A reading that is missing (NaN, inf) or not newer than its row's last one is passed over.
        """
        levels = singles(values)
        moments = np.asarray(time_s, dtype=np.float64)
        known = usable(levels) & (np.abs(moments) < LATEST_S)
        taken = known & (moments > self._heads.time_s[rows])
        if not taken.any():
            return Advanced()
        if not taken.all():
            rows = numbered(rows, self.capacity)[taken]
            levels = levels[taken]
            moments = moments[taken] if moments.ndim else moments
        self._heads.time_s[rows] = moments
        self._heads.value[rows] = levels
        index = np.floor(moments / self.settings.widths_s[0]).astype(np.int64)
        advanced = self._close_before(rows, index)
        self._rings[0].absorb(rows, index, levels, levels)
        return advanced

    def _close_before(self, rows: Rows, index: NDArray[np.int64]) -> Advanced:
        """Close, at every width, what is open and older than the block `index` of the narrowest.

        A closed block goes down into the next width's open block, so a wide ring costs nothing
        while a narrow block is open.
        """
        closed: list[tuple[int, Rows]] = []
        for place, ring in enumerate(self._rings):
            due = (ring.open[rows] != index) & (ring.open[rows] != NONE)
            if not due.any():
                break
            rows, index = chosen(rows, due, self.capacity), index[due] if index.ndim else index
            block = ring.close(rows)
            closed.append((place, rows))
            if place < len(self._ratios):
                ratio = self._ratios[place]
                wider = self._rings[place + 1]
                wider.absorb(rows, block.number // ratio, block.low, block.high)
                index = index // ratio
        return Advanced(tuple(closed))

    def judge(self, advanced: Advanced, limits: Floats) -> Verdicts:
        """Judge the windows of the blocks that were just closed; changes nothing.

        `limits` is a column over all rows. A pair that is not in the answer said no at once: its
        ring is not full, or its growth is nothing beside its limit and the headroom left.
        """
        found = []
        for place, rows in advanced.closed:
            worth = self._worth_judging(place, rows, limits)
            if len(worth):
                found.append(self._judged(place, worth, limits))
        return joined(found)

    def explain(self, rows: Rows, width_s: float, limits: Floats) -> Verdicts:
        """Every test's answer for every one of these rows at this width, for a person to read."""
        place = self.settings.widths_s.index(width_s)
        return self._judged(place, numbered(rows, self.capacity), limits)

    def score(self, rows: Rows, limits: Floats) -> Flags:
        """Whether all tests pass now and a block ago: (rows, widths). For state just restored."""
        numbers = numbered(rows, self.capacity)
        passing = np.zeros((self.capacity, len(self._rings)), dtype=np.bool_)
        for place in range(len(self._rings)):
            worth = self._worth_judging(place, numbers, limits)
            if len(worth):
                passing[worth, place] = self._judged(place, worth, limits).passed
        return passing[numbers]

    def current(
        self, rows: Rows, time_s: Floats | float, values: Floats, limits: Floats
    ) -> Forecast:
        """Time to exhaustion of each of these rows as of its newest reading; changes nothing.

        Of the widths at which a row passes, the one that is surest of its slope speaks; inf where
        none passes. Where a value is NaN the row's last reading is carried on.
        """
        numbers = numbered(rows, self.capacity)
        line = self._surest_lines(numbers, limits)
        now = np.broadcast_to(np.asarray(time_s, dtype=np.float64), numbers.shape)
        levels = np.asarray(values, dtype=np.float64)
        missing = ~np.isfinite(levels)
        moments = np.where(missing, self._heads.time_s[numbers], now)
        levels = np.where(missing, self._heads.value[numbers], levels)
        ahead = exhaustion(line, moments, levels, limits[numbers])
        waited = np.where(missing, now - moments, 0.0)
        known = np.isfinite(line.slope)
        return Forecast(
            *(np.where(known, np.maximum(part - waited, 0.0), np.inf) for part in ahead)
        )

    def _surest_lines(self, numbers: Indices, limits: Floats) -> Line:
        """For each row the line of the passing width that is surest of its slope, else NaN."""
        best = Line(*(np.full(len(numbers), np.nan) for _ in Line._fields))
        doubt = np.full(len(numbers), np.inf)
        for place in range(len(self._rings)):
            worth = np.isin(numbers, self._worth_judging(place, numbers, limits))
            here = np.flatnonzero(worth)
            if not len(here):
                continue
            trend, passed, _ = self._tested(place, numbers[here], limits)
            unsure = (trend.slope_high - trend.slope_low) / np.where(passed, trend.slope, 1.0)
            better = passed & (unsure < doubt[here])
            doubt[here[better]] = unsure[better]
            line = self._line(place, numbers[here], trend)
            for kept, found in zip(best, line, strict=True):
                kept[here[better]] = found[better]
        return best

    def _worth_judging(self, place: int, rows: Rows, limits: Floats) -> Indices:
        """The rows whose ring is full and whose growth, from end to end, is worth the tests."""
        ring = self._rings[place]
        first, last = (level.astype(np.float64) for level in ring.ends(rows, 0))
        growth = last - first
        ends = limits[rows]
        worth = (
            urgent(growth, last, ends, self.settings.blocks)
            & material(growth, ends)
            & (ring.filled[rows] >= self.settings.blocks)
        )
        if not worth.any():
            return np.empty(0, dtype=np.intp)
        return numbered(rows, self.capacity)[worth]

    def _tested(self, place: int, rows: Indices, limits: Floats) -> tuple[Trend, Flags, Flags]:
        """The trend at the newest block, whether all pass there and before, and there alone."""
        trend = self._trend(place, rows, limits, 0)
        passed_now = trend.passed == ALL_TESTS
        passed = passed_now.copy()
        before = self._trend(place, rows[passed_now], limits, 1)
        passed[passed_now] = before.passed == ALL_TESTS
        return trend, passed, passed_now

    def _trend(self, place: int, rows: Indices, limits: Floats, back: int) -> Trend:
        ring = self._rings[place]
        trend = examine(ring.windows(rows, back), limits[rows])
        whole = ring.filled[rows] >= self.settings.blocks + back
        seasoned = whole & (ring.holes(rows, back) <= self.settings.holes_max)
        said_yes = np.where(whole, trend.passed, 0)
        said_yes |= np.where(seasoned, int(LeakTest.SEASONED), 0)
        return trend._replace(
            passed=said_yes,
            slope=np.where(whole, trend.slope, np.nan),
            slope_low=np.where(whole, trend.slope_low, np.nan),
            slope_high=np.where(whole, trend.slope_high, np.nan),
            floor=np.where(whole, trend.floor, np.nan),
        )

    def _line(self, place: int, rows: Indices, trend: Trend) -> Line:
        """The window's line in seconds."""
        ring, width_s = self._rings[place], self.settings.widths_s[place]
        slope = trend.slope / width_s
        return Line(
            start_s=np.asarray(ring.newest[rows] * width_s, dtype=np.float64),
            floor=trend.floor,
            slope=slope,
            slope_low=trend.slope_low / width_s,
            slope_high=trend.slope_high / width_s,
            swing=swing_above(ring.usual_swing(rows), slope, width_s),
        )

    def _judged(self, place: int, rows: Indices, limits: Floats) -> Verdicts:
        width_s = self.settings.widths_s[place]
        trend, passed, passed_now = self._tested(place, rows, limits)
        line = self._line(place, rows, trend)
        whole = np.isfinite(line.slope)
        last = self._heads.time_s[rows]
        ahead = exhaustion(line, last, self._heads.value[rows].astype(np.float64), limits[rows])
        end_s = line.start_s + width_s
        exhaustion_s, low_s, high_s = (
            np.where(whole, part + last - end_s, np.nan) for part in ahead
        )
        onset_s = np.full(len(rows), np.nan)
        onset_s[passed_now] = self._onset(place, rows[passed_now], line, passed_now)
        newest = self._rings[place].windows(rows, 0)[:, -1]
        return Verdicts(
            rows=rows,
            width_s=np.full(len(rows), width_s),
            end_s=end_s,
            passed=passed,
            passed_now=passed_now,
            said_yes=trend.passed,
            slope=line.slope,
            slope_low=line.slope_low,
            slope_high=line.slope_high,
            floor=np.where(whole, newest, np.nan),
            exhaustion_s=exhaustion_s,
            low_s=low_s,
            high_s=high_s,
            onset_s=onset_s,
        )

    def _onset(self, place: int, rows: Indices, line: Line, chosen_ones: Flags) -> Floats:
        """When the growth of these rows (the chosen ones of `line`) began."""
        began = self._rings[place].newest[rows] - self.settings.blocks + 1
        wider = zip(self._rings[place + 1 :], self.settings.widths_s[place + 1 :], strict=True)
        return onset(
            Line(*(column[chosen_ones] for column in line)),
            np.asarray(began * self.settings.widths_s[place], dtype=np.float64),
            [_history(ring, width_s, rows) for ring, width_s in wider],
        )

    def _named(self) -> list[tuple[str, Columns]]:
        rings = zip(self.settings.widths_s, self._rings, strict=True)
        return [("heads", self._heads), *((f"{width_s:g}s", ring) for width_s, ring in rings)]


def build(settings: Settings, capacity: int) -> FloorRings:
    """Rings that know nothing yet, for `capacity` series."""
    return FloorRings(settings, capacity)


class _Heads(Columns):
    """Each series' newest reading: later ones must be newer, forecasts start from it."""

    time_s: Floats
    value: NDArray[np.float32]

    def __init__(self, capacity: int) -> None:
        kinds = {"time_s": Kind(np.float64, -np.inf), "value": Kind(np.float32, np.nan)}
        super().__init__(capacity, kinds)


def _history(ring: Ring, width_s: float, rows: Indices) -> History:
    index = ring.newest[rows][:, None] + np.arange(1 - ring.slots, 1)
    known = np.arange(ring.slots, 0, -1) <= ring.filled[rows][:, None]
    floor = ring.floors[index % ring.slots, rows[:, None]].astype(np.float64)
    return History(np.asarray(index * width_s, dtype=np.float64), floor, known, width_s)
