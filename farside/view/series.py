"""One signal of one thing over time, in bounded memory; and in words, what it did.

The words describe the numbers and nothing else: no model's verdict, no name and no configuration
enters, so that a reader may hold them against the verdict.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runtime.clock import NANOSECONDS
from runtime.words import bytes_text

Point = tuple[int, float]  # ns since the epoch, value


class Series:
    """Values by time, oldest first; beyond `points_max` it is thinned, evenly over its time.

    Thinning keeps the lowest and the highest of each few readings, so that floors and peaks stay;
    what comes later is thinned as much, once it is no longer among the newest. From about
    points_max ** 2 / 8 readings on, what is older is thinned more. Not safe for several threads by
    itself.
    """

    __slots__ = ("_piece", "_points_max", "_tail", "_times", "_values")

    def __init__(self, points_max: int) -> None:
        """Start empty; `points_max` is at least 8."""
        self._points_max = max(points_max, 8)
        self._piece = 2  # how many readings become two points; 2 until it was thinned
        self._tail = 0  # where the readings begin that were not thinned yet
        self._times = array("q")
        self._values = array("d")

    def __len__(self) -> int:
        """Return how many points are kept."""
        return len(self._times)

    def __iter__(self) -> Iterator[Point]:
        """Give the points, oldest first."""
        return iter(zip(self._times, self._values, strict=True))

    @property
    def first_ns(self) -> int | None:
        """Return the time of the oldest point."""
        return self._times[0] if self._times else None

    @property
    def newest(self) -> Point | None:
        """Return the newest point."""
        return (self._times[-1], self._values[-1]) if self._times else None

    def add(self, time_ns: int, value: float) -> None:
        """Take a point; one that is not newer than the newest, or no number, is passed over."""
        if not math.isfinite(value) or (self._times and time_ns <= self._times[-1]):
            return
        self._times.append(time_ns)
        self._values.append(value)
        if self._piece > 2 and len(self._times) - self._tail >= 2 * self._piece:
            self._thin(self._tail, self._tail + self._piece, self._piece)
            self._tail += 2
        if len(self._times) > self._points_max:
            if self._piece == 2:
                self._tail = len(self._times) - 1  # nothing was thinned so far; the newest stays
            whole = self._tail // 4 * 4
            self._thin(0, whole, 4)
            self._tail -= whole // 2
            self._piece = min(2 * self._piece, max(self._points_max // 4, 2))

    def drop_before(self, time_ns: int) -> None:
        """Forget what is older; the memory is given back in steps."""
        gone = bisect_left(self._times, time_ns)
        # Moving the whole block for each point would cost more than the points do.
        if gone > 64 or gone == len(self._times):
            del self._times[:gone]
            del self._values[:gone]
            self._tail = max(self._tail - gone, 0)

    def between(self, low_ns: int, high_ns: int) -> list[Point]:
        """Return the points from `low_ns` to `high_ns`, both included."""
        low, high = bisect_left(self._times, low_ns), bisect_right(self._times, high_ns)
        return list(zip(self._times[low:high], self._values[low:high], strict=True))

    def at(self, time_ns: int) -> float | None:
        """Return the newest value that is not newer than `time_ns`."""
        place = bisect_right(self._times, time_ns)
        return self._values[place - 1] if place else None

    def growth(self, span_s: float) -> float | None:
        """Return units per second over the last `span_s` seconds; None where too little is known.

        A series that is shorter is judged by what there is, from half of the span on.
        """
        if len(self._times) < 2:
            return None
        newest_ns, newest = self._times[-1], self._values[-1]
        place = bisect_right(self._times, newest_ns - round(span_s * NANOSECONDS)) - 1
        place = max(place, 0)
        covered_s = (newest_ns - self._times[place]) / NANOSECONDS
        if covered_s < span_s / 2:
            return None
        return (newest - self._values[place]) / covered_s

    def _thin(self, start: int, end: int, piece: int) -> None:
        """Of each `piece` points in this range keep two: the lowest and the highest."""
        kept: list[int] = []
        for first in range(start, end, piece):
            places = range(first, first + piece)
            low = min(places, key=self._values.__getitem__)
            high = max(places, key=self._values.__getitem__)
            # Of equal ones the ends are kept, so that two points always stay.
            kept.extend(sorted((low, high)) if low != high else (first, first + piece - 1))
        self._times[start:end] = array("q", (self._times[i] for i in kept))
        self._values[start:end] = array("d", (self._values[i] for i in kept))


class Shape(NamedTuple):
    """What a series did, in numbers: all are bytes but the count."""

    low: float
    high: float
    first: float
    last: float
    falls: int
    late_growth: float  # over the last third of the time

    @property
    def range(self) -> float:
        """Return from the lowest to the highest."""
        return self.high - self.low

    @property
    def growth(self) -> float:
        """Return from the first to the last value."""
        return self.last - self.first


SMALL_BYTES = 1 << 20  # what moves less than this, or than a fiftieth of its size, holds still


def shape_of(points: Sequence[Point]) -> Shape | None:
    """Return the shape of a series; None where fewer than eight points leave it open."""
    if len(points) < 8:
        return None
    values = [value for _, value in points]
    low, high = min(values), max(values)
    third_ns = points[-1][0] - (points[-1][0] - points[0][0]) // 3
    late = next(value for time_ns, value in points if time_ns >= third_ns)
    # A fall counts when it gives back at least a quarter of the whole range, and a new one begins
    # only after as much has been regained: a jitter is no fall.
    enough = max(0.25 * (high - low), SMALL_BYTES)
    falls, falling, turn = 0, False, values[0]
    for value in values:
        if falling:
            turn = min(turn, value)
            if value >= turn + enough:
                falling, turn = False, value
        else:
            turn = max(turn, value)
            if value <= turn - enough:
                falls, falling, turn = falls + 1, True, value
    return Shape(low, high, values[0], values[-1], falls, values[-1] - late)


def holds_still(shape: Shape) -> bool:
    """Tell whether nothing worth a word moved."""
    return shape.range < max(SMALL_BYTES, 0.02 * shape.high)


def shape_words(held: Sequence[Point], file: Sequence[Point] = ()) -> str:
    """Describe what memory did; `held` can't be taken back by the kernel, `file` pages can.

    Only what the numbers show is said.
    """
    shape = shape_of(held)
    if shape is None:
        return "too few readings to describe"
    pages = shape_of(file)
    grows_pages = pages is not None and not holds_still(pages) and pages.growth > 0.5 * pages.range
    if holds_still(shape):
        if pages is not None and grows_pages:
            return f"steady; only its file pages grew, by {bytes_text(pages.growth)}"
        return "steady"
    words = _moving_words(shape)
    if pages is not None and grows_pages:
        words += f"; file pages grew by {bytes_text(pages.growth)}"
    return words


def _moving_words(shape: Shape) -> str:
    if shape.falls >= 2:
        return f"grew and fell back {shape.falls} times"
    if shape.falls == 1:
        return f"fell back once, by up to {bytes_text(shape.range)}"
    if shape.growth < 0:
        return f"shrank by {bytes_text(-shape.growth)}"
    if shape.late_growth < 0.1 * shape.growth:
        return f"grew by {bytes_text(shape.growth)}, then levelled off"
    if shape.late_growth < 0.2 * shape.growth:
        return f"grew by {bytes_text(shape.growth)}, slower towards the end"
    return f"grew by {bytes_text(shape.growth)} and kept growing"
