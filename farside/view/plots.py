"""What every figure is made of: scales, ticks with labels for people, lines, words beside marks.

Sizes are in the units of the figure's own view box; colours are classes of page.css, so that light,
dark and printed pages share one figure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from farside.view.markup import Html, el
from farside.view.series import Point
from runtime.clock import NANOSECONDS, Instant

CHAR_WIDTH = 6.7  # of the figures' 12-unit letters, on the wide side
ROW_HEIGHT = 17.0
_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
    3600, 7200, 10_800, 21_600, 43_200, 86_400,
)  # fmt: skip
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` to positions between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value (outside of the ends for one outside)."""
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.0
        return self.start + share * (self.end - self.start)

    def clipped(self, value: float) -> float:
        """Return the position of a value, at the nearer end for one outside."""
        return self(min(max(value, self.low), self.high))


class Tick(NamedTuple):
    """A value on an axis and its label."""

    value: float
    label: str


def time_ticks(low_ns: float, high_ns: float, count_max: int = 8) -> list[Tick]:
    """Return round moments, labelled with the time of day (UTC), or the date for long spans."""
    span_s = max((high_ns - low_ns) / NANOSECONDS, 1e-9)
    step_s = next((step for step in _STEPS_S if span_s / step <= count_max), 0)
    if not step_s:
        step_s = math.ceil(span_s / count_max / 86_400) * 86_400
    step_ns = step_s * NANOSECONDS
    first = math.ceil(low_ns / step_ns) * step_ns
    return [Tick(at, _moment(at, step_s)) for at in range(first, math.floor(high_ns) + 1, step_ns)]


def _moment(at_ns: int, step_s: int) -> str:
    whole = Instant(at_ns).text()
    if step_s >= 86_400 or (step_s >= 3600 and whole[11:16] == "00:00"):
        return whole[:10]
    return whole[11:16] if step_s >= 60 else whole[11:19]


def byte_ticks(high: float, count_max: int = 5) -> list[Tick]:
    """Return round sizes from zero to `high`, all in one unit."""
    if high <= 0:
        return [Tick(0.0, "0")]
    power = min(int(math.log(high, 1024)), len(_SIZES) - 1) if high >= 1 else 0
    unit = 1024**power
    step = _round_step(high / unit / count_max) * unit
    count = math.floor(high / step + 1e-9)
    return [
        Tick(i * step, f"{i * step / unit:g} {_SIZES[power]}" if i else "0")
        for i in range(count + 1)
    ]


def number_ticks(high: float, unit: str, count_max: int = 4) -> list[Tick]:
    """Return round numbers from zero to `high` with their unit."""
    if high <= 0:
        return [Tick(0.0, "0")]
    step = _round_step(high / count_max)
    count = math.floor(high / step + 1e-9)
    return [Tick(i * step, f"{i * step:g} {unit}".strip()) for i in range(count + 1)]


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(
        (factor * power for factor in (1, 2, 2.5, 5) if factor * power >= least * 0.999999),
        10 * power,
    )


def thinned(points: Sequence[Point], pieces_max: int) -> list[Point]:
    """Return at most twice `pieces_max` points: of each piece the lowest and the highest."""
    if len(points) <= 2 * pieces_max:
        return list(points)
    found: list[Point] = []
    for i in range(pieces_max):
        piece = points[i * len(points) // pieces_max : (i + 1) * len(points) // pieces_max]
        ends = {min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1])}
        found.extend(sorted(ends))
    return found


def runs(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points in runs without a gap.

    A gap is eight times as long as the mean of what lies around it: in a thinned series two points
    may lie close together and the next two far away. No point is left alone, since a line needs two
    to be seen.
    """
    if len(points) < 3:
        return [list(points)] if points else []
    steps = [right[0] - left[0] for left, right in pairwise(points)]
    found = [[points[0]]]
    for i, right in enumerate(points[1:]):
        first = max(min(i - 8, len(steps) - 17), 0)
        around = steps[first : first + 17]
        gap = steps[i] * len(around) > 8 * sum(around)
        if gap and len(found[-1]) > 1 and i + 1 < len(steps):
            found.append([])
        found[-1].append(right)
    return found


def line(points: Sequence[Point], x: Scale, y: Scale, class_: str) -> Html:
    """Return a line through the points, broken where there is a gap."""
    path = "".join(
        "M" + "L".join(f"{x(at):.1f} {y.clipped(value):.1f}" for at, value in thinned(run, 700))
        for run in runs(points)
    )
    return el("path", d=path, class_=class_, fill="none")


def area(upper: Sequence[Point], lower: Sequence[Point], x: Scale, y: Scale, class_: str) -> Html:
    """Return the filled space between two lines that share their times."""
    there = [f"{x(at):.1f} {y.clipped(value):.1f}" for at, value in upper]
    back = [f"{x(at):.1f} {y.clipped(value):.1f}" for at, value in reversed(lower)]
    return el("path", d="M" + "L".join(there + back) + "Z", class_=class_)


def label(words: str, x: float, y: float, class_: str = "", anchor: str = "start") -> Html:
    """Return words at a place."""
    return el("text", words, x=x, y=y, class_=f"t {class_}".strip(), text_anchor=anchor)


def grid(
    ticks_x: Sequence[Tick],
    ticks_y: Sequence[Tick],
    x: Scale,
    y: Scale,
) -> Html:
    """Return light lines at the sizes, ticks at the times, and the labels of both."""
    parts = []
    for tick in ticks_y:
        at = y(tick.value)
        parts.append(el("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid"))
        parts.append(label(tick.label, x.start - 9, at + 4, "axis", "end"))
    for tick in ticks_x:
        at = x(tick.value)
        parts.append(el("line", x1=at, x2=at, y1=y.start, y2=y.start + 5, class_="tick"))
        parts.append(label(tick.label, at, y.start + 20, "axis", "middle"))
    return Html("".join(parts))


class Mark(NamedTuple):
    """An event in a plot: where, the words beside it, and the class of its line."""

    at: float
    words: str
    class_: str


def marks(events: Sequence[Mark], x: Scale, top: float, bottom: float, rows: int) -> Html:
    """Return a thin line for each event with its words above the plot, where they do not collide.

    `top` is the plot's upper edge; the words stand in up to `rows` rows above it. Words that find
    no place are left out: the line stays, and the list of events tells the rest.
    """
    # From right to left: a line that stands further right then never cuts words placed before.
    taken: list[list[tuple[float, float]]] = [[] for _ in range(rows)]
    places = [x(event.at) for event in events]
    parts = []
    for event in sorted(events, reverse=True):
        at = x(event.at)
        width = len(event.words) * CHAR_WIDTH + 10
        # To the left stand lines that are still to be drawn.
        sides = [at]
        if not any(at - width < place < at for place in places):
            sides.append(at - width)
        inside = [left for left in sides if x.start - 60 <= left and left + width <= x.end + 140]
        row, left = _place(at, width, inside, taken)
        head = top - 6 - (row or 0) * ROW_HEIGHT
        parts.append(
            el("line", x1=at, x2=at, y1=head - 8, y2=bottom, class_=f"mark {event.class_}")
        )
        for below in range((row or 0) + 1):
            taken[below].append((at, at + 1))
        if row is None:
            continue
        taken[row].append((left, left + width))
        beside, anchor = (at + 5, "start") if left >= at else (at - 5, "end")
        parts.append(label(event.words, beside, head, f"word {event.class_}", anchor))
    return Html("".join(parts))


def _place(
    at: float,
    width: float,
    sides: Sequence[float],
    taken: Sequence[Sequence[tuple[float, float]]],
) -> tuple[int | None, float]:
    """Return (row, left edge) for words beside a line: the first side with room, the lowest row."""
    for left in sides:
        for row, spans in enumerate(taken):
            # The line itself goes down through the rows below, and must not cut words there.
            if any(low < at < high for under in taken[:row] for low, high in under):
                break
            ends = (left + 4, left + width) if left == at else (left, left + width - 4)
            if all(ends[1] <= low or ends[0] >= high for low, high in spans):
                return row, left
    return None, at


def svg(width: float, height: float, title: str, *parts: Html) -> Html:
    """Return a figure that fills its column; `title` is what a screen reader says."""
    return el(
        "svg",
        el("title", title),
        parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
    )
