"""Speed and size of the models over all series, beside river: `python -m bench.models`.

Every model gets the same updates: a value for each of 640,000 series (10,000 nodes x 64). Those of
river are objects for one series each, so a part of the series is enough to know their cost. All
are warm: 128 updates each, beyond river's grace period. Medians of several rounds; never a gate.
"""

import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from river import anomaly, stats

from models import floors, level, silence

SERIES, PART, ROUNDS, WARM, FRAMES = 640_000, 2_000, 9, 128, 8
LEAKS = 80_000  # 10,000 nodes with eight leak-capable series each


class Figure(NamedTuple):
    """One model: updates a second on one core, and bytes for one series."""

    name: str
    updates_per_s: float
    bytes_per_series: float


def median_s(step: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Return the median duration of a step after `WARM` that are not counted."""
    took = []
    for number in range(WARM + rounds):
        began = time.perf_counter()
        step(number)
        took.append(time.perf_counter() - began)
    return statistics.median(took[WARM:])


def values(number: int, count: int) -> NDArray[np.float64]:
    """Return one value for each series."""
    return np.random.default_rng(number).normal(100.0, 5.0, count)


def ours() -> list[Figure]:
    """Measure our models, all series in one call."""
    rows = slice(0, SERIES)
    frames = [values(number, SERIES) for number in range(FRAMES)]
    one = level.build(level.Settings(), SERIES)

    def learn(number: int) -> None:
        one.learn(rows, frames[number % FRAMES], 1.0)

    def score_and_learn(number: int) -> None:
        one.score(rows, frames[number % FRAMES])
        learn(number)

    learn_s, both_s = median_s(learn), median_s(score_and_learn)
    rings = floors.build(floors.Settings(), LEAKS)
    limits = np.full(LEAKS, 1e12)
    begin_s = 1_800_000_000.0

    def ring(number: int) -> None:
        closed = rings.learn(
            slice(0, LEAKS), begin_s + number, 1e9 + frames[number % FRAMES][:LEAKS]
        )
        rings.judge(closed, limits)

    ring_s = median_s(ring, 120)
    nodes = silence.build(silence.Settings(), 10_000)
    beat_s = median_s(lambda number: nodes.learn(slice(0, 10_000), begin_s + number))
    size = one.bytes_per_row
    return [
        Figure("level and scale: learn", SERIES / learn_s, size),
        Figure("level and scale: score and learn", SERIES / both_s, size),
        Figure("floor rings, six widths: learn and judge", LEAKS / ring_s, rings.bytes_per_row),
        Figure("silence: learn", 10_000 / beat_s, nodes.bytes_per_row),
    ]


def rivers() -> list[Figure]:
    """Measure river's models on a part of the series, one object each."""
    frames = [values(number, PART).tolist() for number in range(FRAMES)]
    moments = [(stats.EWMean(0.01), stats.EWVar(0.01)) for _ in range(PART)]
    scorers = [anomaly.GaussianScorer() for _ in range(PART)]  # type: ignore[no-untyped-call]

    def ewm(number: int) -> None:
        for (mean, variance), value in zip(moments, frames[number % FRAMES], strict=True):
            mean.update(value)
            variance.update(value)

    def gaussian(number: int) -> None:
        for scorer, value in zip(scorers, frames[number % FRAMES], strict=True):
            scorer.score_one(None, value)  # type: ignore[no-untyped-call]
            scorer.learn_one(None, value)  # type: ignore[no-untyped-call]

    return [
        Figure("river EWMean + EWVar: update", PART / median_s(ewm), float("nan")),
        Figure("river GaussianScorer: score and learn", PART / median_s(gaussian), float("nan")),
    ]


def main() -> None:
    """Print the table."""
    out = sys.stdout.write
    out(f"Python {platform.python_version()}, numpy {np.__version__}, river {version('river')}, ")
    out(f"{platform.machine()}\n\n| model | updates/s/core | bytes a series | ")
    out("x GaussianScorer |\n|---|---|---|---|\n")
    found = [*ours(), *rivers()]
    yardstick = found[-1].updates_per_s
    for one in found:
        size = "-" if np.isnan(one.bytes_per_series) else f"{one.bytes_per_series:.0f}"
        out(f"| {one.name} | {one.updates_per_s / 1e6:,.2f} M | {size} | ")
        out(f"{one.updates_per_s / yardstick:,.0f} |\n")
    ring = next(one for one in found if one.name.startswith("floor rings"))
    ring_ms = LEAKS / ring.updates_per_s * 1e3
    out(f"\n80,000 leak-capable series at 1 Hz: {ring_ms:.1f} ms a second\n")


if __name__ == "__main__":
    main()
