"""The figures of a page: the victim against its limit, its forecasts, and what ran beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bus.messages import Suspicion
from farside.view.cases import Case, Moment, Truth, moments
from farside.view.markup import Html, el
from farside.view.plots import (
    Mark,
    Scale,
    Tick,
    area,
    byte_ticks,
    grid,
    label,
    line,
    marks,
    number_ticks,
    svg,
    time_ticks,
)
from farside.view.series import Point
from farside.view.things import Curve
from runtime.clock import Instant, nanoseconds
from runtime.words import bytes_text, estimate_text

MATERIAL = 0.04  # file pages below this share of what is held are not drawn
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
FAR_LIMIT = 3.0  # a limit farther than this many times the peak is told, not drawn


@dataclass(frozen=True)
class Span:
    """The time that all figures of a page share, in ns since the epoch."""

    low_ns: int
    high_ns: int

    def inside(self, points: Iterable[Point]) -> list[Point]:
        """Return the points that lie in it."""
        return [point for point in points if self.low_ns <= point[0] <= self.high_ns]


def span_of(case: Case, truth: Truth | None) -> Span:
    """Return the time that matters: from well before the onset to a little after the last act."""
    held = case.curve.held if case.curve else ()
    times = [int(one.time) for one in moments(case, truth) if one.station != "told"]
    since = [int(one.since) for one in case.suspicions if one.since is not None]
    onset = int(truth.onset) if truth else min(since + times)
    decisive = case.decisive
    if decisive is not None and decisive.exhaustion is not None:
        # A forecast far away must not press the past into a corner: half of the width is its share.
        ahead = int(decisive.time) - onset + nanoseconds(10)
        times.append(min(int(decisive.exhaustion.high), int(decisive.time) + ahead))
    high = max([*times, onset])
    pad = max((high - onset) // 8, nanoseconds(4))
    low = max(held[0][0] if held else onset - pad, onset - (high - onset))
    last = held[-1][0] if held else high
    return Span(low, max(high + pad // 2, min(last, high + pad)))


def sizes_of(curve: Curve, span: Span, *, used: float = 0.0) -> tuple[float, float | None]:
    """Return (top of the axis, limit to draw or None where it is far above everything)."""
    held, file = span.inside(curve.held), _beside(curve, span)
    peak = max([used, *(value for _, value in held)], default=0.0)
    if file:
        peak = max(peak, *(value for _, value in file))
    limit = limit_of(curve, span)
    if limit is not None and limit <= FAR_LIMIT * max(peak, 1.0):
        return 1.14 * max(limit, peak), limit
    return max(1.3 * peak, 1.0), None


def limit_of(curve: Curve, span: Span) -> float | None:
    """Return the newest limit in the span, else the newest at all."""
    there = span.inside(curve.limit) or curve.limit
    return there[-1][1] if there else None


def victim_figure(case: Case, truth: Truth | None, span: Span) -> Html | None:
    """Return the main figure: memory, limit, forecast with its early and late end, events."""
    curve = case.curve
    if curve is None or not span.inside(curve.held):
        return None
    width, height = 1000.0, 450.0
    x = Scale(span.low_ns, span.high_ns, 78.0, width - 150)
    top, limit = sizes_of(curve, span)
    y = Scale(0.0, top, height - 40, 100.0)
    held = span.inside(curve.held)
    parts = [grid(time_ticks(x.low, x.high), byte_ticks(top), x, y)]
    parts += _file_area(curve, span, x, y)
    if limit is not None:
        parts += _limit_line(curve, span, x, y)
    parts += _cones(case, x, y)
    if truth is not None:
        parts += _without_us(case, truth, limit, x, y)
    parts.append(line(held, x, y, "held"))
    parts += _end_label(curve, held, limit, x, y)
    events = moments(case, truth)
    shown = [_mark(one) for one in events if one.mark and x.low <= one.time <= x.high]
    parts.append(marks(shown, x, y.end, y.start, 5))
    parts.append(label("time of day, UTC", x.end, height - 4, "axis", "end"))
    title = f"Memory of {curve.name} against its limit of {bytes_text(limit)}"
    return svg(width, height, title, *parts)


def _mark(moment: Moment) -> Mark:
    return Mark(int(moment.time), moment.mark, f"{moment.station} {moment.level}")


def _beside(curve: Curve, span: Span) -> list[Point]:
    """Return file pages on top of what is held, at the times of the latter; [] if immaterial."""
    file = dict(span.inside(curve.file))
    held = span.inside(curve.held)
    stacked = [(at, value + file[at]) for at, value in held if at in file]
    peak = max((value for _, value in stacked), default=0.0)
    if not stacked or max(file.values()) < MATERIAL * peak:
        return []
    return stacked


def _file_area(curve: Curve, span: Span, x: Scale, y: Scale) -> list[Html]:
    stacked = _beside(curve, span)
    if not stacked:
        return []
    there = dict(stacked)
    lower = [(at, value) for at, value in span.inside(curve.held) if at in there]
    return [area(stacked, lower, x, y, "file")]


def _limit_line(curve: Curve, span: Span, x: Scale, y: Scale) -> list[Html]:
    """Return the limit over the whole width, in steps where it moved."""
    points: list[Point] = []
    for at, value in span.inside(curve.limit):
        if points and points[-1][1] != value:
            points.append((at, points[-1][1]))
        if not points or points[-1][1] != value:
            points.append((at, value))
    last = limit_of(curve, span)
    if last is None:
        return []
    path = "L".join(f"{x(at):.1f} {y.clipped(value):.1f}" for at, value in points)
    start = f"M{x.start:.1f} {y(points[0][1] if points else last):.1f}"
    end = f"L{x.end:.1f} {y(last):.1f}"
    return [
        el("path", d=f"{start}{'L' + path if path else ''}{end}", class_="limit", fill="none"),
        label(f"limit {bytes_text(last)}", x.end + 10, y(last) + 4, "limit"),
    ]


def _cones(case: Case, x: Scale, y: Scale) -> list[Html]:
    """Return the first forecast and the one on which was decided: early, best and late end."""
    made = [one for one in case.suspicions if one.exhaustion is not None]
    shown = [(made[0], "first"), (case.decisive, "decisive")] if made else []
    if len(shown) == 2 and shown[0][0] == shown[1][0]:
        del shown[0]
    return [part for one, class_ in shown if one is not None for part in _cone(one, class_, x, y)]


def _cone(suspicion: Suspicion, class_: str, x: Scale, y: Scale) -> list[Html]:
    end = suspicion.exhaustion
    if end is None or end.limit <= end.used or suspicion.time >= x.high:
        return []
    origin = (int(suspicion.time), end.used)

    def toward(moment: Instant) -> Point:
        """Return where the straight way to the limit leaves the figure."""
        ahead = max(int(moment) - origin[0], 1)
        share = min(1.0, (x.high - origin[0]) / ahead)
        return (round(origin[0] + share * ahead), origin[1] + share * (end.limit - origin[1]))

    early, best, late = toward(end.low), toward(end.time), toward(end.high)
    corners = [origin, early, late]
    if late[1] < early[1]:
        corners = [origin, early, (round(x.high), early[1]), late]
    path = "M" + "L".join(f"{x(at):.1f} {y(size):.1f}" for at, size in corners) + "Z"
    return [
        el("path", d=path, class_=f"cone {class_}"),
        line([origin, best], x, y, f"forecast {class_}"),
        el("circle", cx=x(origin[0]), cy=y(origin[1]), r=3.5, class_="dot forecast"),
    ]


def _without_us(case: Case, truth: Truth, limit: float | None, x: Scale, y: Scale) -> list[Html]:
    """Return the way that the leak would have gone on, where it was stopped before its limit."""
    done, curve = case.done, case.curve
    if done is None or curve is None or limit is None or done.finished >= truth.limit_time:
        return []
    before = [point for point in curve.held if point[0] <= int(done.finished)]
    if not before:
        return []
    target = (int(truth.limit_time), limit)
    return [
        line([before[-1], target], x, y, "without"),
        el("circle", cx=x(target[0]), cy=y(limit), r=4.5, class_="dot limit"),
    ]


def _end_label(
    curve: Curve, held: Sequence[Point], limit: float | None, x: Scale, y: Scale
) -> list[Html]:
    at, size = held[-1]
    left, place = x.end + 10, y(size) + 4
    if x.end - x(at) > 90:
        # Most of the future is a forecast: the words stand below the end of what was seen.
        left, place = x(at) + 8, y(size) + 26
    elif limit is not None and abs(place - y(limit) - 4) < 30:
        place = y(limit) + 34  # beside the limit's own words both would be unreadable
    return [
        el("circle", cx=x(at), cy=y(size), r=3.5, class_="dot held"),
        label(_short(curve.name, 20), left, place - 8, "held strong"),
        label(bytes_text(size), left, place + 8, "held"),
    ]


def beside_figure(curve: Curve, span: Span, act: Instant | None) -> Html:
    """Return a small figure of a neighbour against its own limit, on the time of the main one."""
    width, height = 320.0, 150.0
    x = Scale(span.low_ns, span.high_ns, 8.0, width - 8)
    top, limit = sizes_of(curve, span)
    y = Scale(0.0, top, height - 22, 18.0)
    held = span.inside(curve.held)
    parts = [el("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="grid base")]
    parts += _file_area(curve, span, x, y)
    if limit is not None:
        parts.append(
            el("line", x1=x.start, x2=x.end, y1=y(limit), y2=y(limit), class_="limit"),
        )
        parts.append(label(f"limit {bytes_text(limit)}", x.start, y(limit) - 5, "limit"))
    if act is not None and x.low <= act <= x.high:
        at = x(int(act))
        parts.append(el("line", x1=at, x2=at, y1=y.end, y2=y.start, class_="mark command"))
    if held:
        parts.append(line(held, x, y, "held"))
    ticks = time_ticks(x.low, x.high, 3)
    for tick in ticks:
        at = x(tick.value)
        parts.append(el("line", x1=at, x2=at, y1=y.start, y2=y.start + 4, class_="tick"))
        if 30 < at < width - 30:
            parts.append(label(tick.label, at, y.start + 17, "axis", "middle"))
    return svg(width, height, f"Memory of {curve.name}", *parts)


def countdown_figure(case: Case, truth: Truth | None, span: Span) -> Html | None:
    """Return each forecast at the time it was made: how many seconds it gave, with its range."""
    # What is held grows no more: forecasts made after the act tell nothing.
    until = min(span.high_ns, case.done.finished) if case.done else span.high_ns
    made = [
        one
        for one in case.suspicions
        if one.exhaustion is not None and span.low_ns <= one.time <= until
    ]
    if len(made) < 3:
        return None
    width, height = 1000.0, 240.0
    x = Scale(span.low_ns, span.high_ns, 78.0, width - 150)
    best, low, high = (
        [(int(one.time), _left(one, end)) for one in made] for end in ("time", "low", "high")
    )
    top = max(min(1.15 * max(value for _, value in high), 2.0 * max(best, key=_value)[1]), 1.0)
    y = Scale(0.0, top, height - 40, 16.0)
    unit_s, unit = next(pair for pair in _UNITS if top >= 3 * pair[0] or pair[0] == 1)
    ticks = [Tick(value * unit_s, words) for value, words in number_ticks(top / unit_s, unit)]
    parts = [
        grid(time_ticks(x.low, x.high), ticks, x, y),
        area(high, low, x, y, "cone first"),
        line(best, x, y, "forecast"),
        _said(made[0], x, y.clipped(high[0][1]) - 6, 0.0, "start"),
        _said(made[-1], x, y.clipped(high[-1][1]) - 4, 8.0, "start"),
    ]
    if truth is not None:
        left_s = truth.limit_time.since(made[0].time)
        way = [(int(made[0].time), left_s), (int(truth.limit_time), 0.0)]
        parts.append(line(way, x, y, "without"))
        parts.append(el("circle", cx=x(way[1][0]), cy=y(0.0), r=4.5, class_="dot limit"))
        parts.append(label("its limit", x(way[1][0]) + 9, y(0.0) - 8, "limit"))
    parts.append(label("time of day, UTC", x.end, height - 4, "axis", "end"))
    return svg(width, height, "Time to the limit as forecast over time", *parts)


def _said(suspicion: Suspicion, x: Scale, y: float, shift: float, anchor: str) -> Html:
    """Return a forecast's words beside its place in the countdown."""
    words = estimate_text(*(_left(suspicion, end) for end in ("time", "low", "high")))
    return label(words, x(int(suspicion.time)) + shift, max(y, 12.0), "forecast", anchor)


def _value(point: Point) -> float:
    return point[1]


def _left(suspicion: Suspicion, end: str) -> float:
    moment: Instant = getattr(suspicion.exhaustion, end)
    return max(moment.since(suspicion.time), 0.0)


def node_figure(curve: Curve, span: Span, events: Sequence[Mark]) -> Html | None:
    """Return the node's own memory over the time of the page, with its incidents marked."""
    held = span.inside(curve.held)
    if not held:
        return None
    width, height = 1000.0, 320.0
    x = Scale(span.low_ns, span.high_ns, 78.0, width - 150)
    top, limit = sizes_of(curve, span)
    y = Scale(0.0, top, height - 40, 60.0)
    parts = [grid(time_ticks(x.low, x.high), byte_ticks(top), x, y)]
    parts += _file_area(curve, span, x, y)
    if limit is not None:
        parts += _limit_line(curve, span, x, y)
    parts.append(line(held, x, y, "held"))
    parts += _end_label(curve, held, limit, x, y)
    parts.append(marks(events, x, y.end, y.start, 3))
    parts.append(label("time of day, UTC", x.end, height - 4, "axis", "end"))
    return svg(width, height, f"Memory of {curve.name}", *parts)


def _short(name: str, chars: int) -> str:
    return name if len(name) <= chars else name[: chars - 1] + "\u2026"
