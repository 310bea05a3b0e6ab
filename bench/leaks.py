"""How well the floor rings tell leaks from habits: `python -m bench.leaks [--series N] [--seed N]`.

Draws series of known truth, feeds them to the production model and prints one table: alarms on
healthy series (none wanted), leaks found before their limit, lead time, error of the forecast and
how often its interval held. Nothing here is a gate; tests/unit/models/test_leaks_simulated.py keeps
a small version as a promise.

Two worlds. FAST is a process under a limit of its own, read every half or whole second with jitter,
one stall of 1 to 2 s and 1 MiB allocations. SLOW is a node of 2,000 GB read every 10 s, with
collector teeth up to 30 GB and checkpoint spikes up to 400 GB every 10 to 60 min on top.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.floors import FloorRings, Settings
from models.verdicts import Advanced, Verdicts

Floats = NDArray[np.float64]
Draw = np.random.Generator
Family = Callable[[Draw, int, int], Floats]
"""A kind of slow growth: (draw, steps, count) to bytes (steps, count)."""
MIB = float(2**20)
GB = 1e9
NODE_BYTES = 2000 * GB


@dataclass(frozen=True)
class World:
    """Readings of n series: (steps, n) moments and values, NaN where a reading is missing."""

    time_s: Floats
    values: Floats
    limits: Floats
    onset_s: Floats
    """When each leak begins; NaN where the series is healthy."""
    death_s: Floats
    """When each leak meets its limit; inf where it does not in what was drawn."""


class Outcome:
    """What the rings say of a world of `count` series, taken down block end by block end."""

    def __init__(self, widths_s: tuple[float, ...], count: int) -> None:
        shape = (count, len(widths_s))
        self.widths_s = np.array(widths_s)
        self.episodes = np.zeros(shape)
        """How often a series began to pass at a width; pauses of under 24 blocks join."""
        self.first_s = np.full(shape, np.inf)
        """When it first passed there; inf where it never did."""
        self.together = np.zeros(count, dtype=np.intp)
        """The most widths at which it passed at the same time."""
        self.alarms = np.full((count, 4), np.nan)
        """At its first alarm: seconds really left; forecast, its early end, its late end."""
        self._last_s = np.full(shape, -np.inf)
        self._passing = np.zeros(shape, dtype=np.bool_)

    def note(self, advanced: Advanced, verdicts: Verdicts, time_s: Floats, death_s: Floats) -> None:
        """Take down the verdicts of one frame."""
        for width, closed in advanced.closed:
            self._passing[closed, width] = False
        said = np.flatnonzero(verdicts.passed)
        if not len(said):
            return
        rows = verdicts.rows[said]
        place = np.searchsorted(self.widths_s, verdicts.width_s[said])
        first = np.isinf(self.first_s[rows].min(axis=1))
        left_s = death_s[rows] - verdicts.end_s[said]
        told = (
            left_s,
            *(part[said] for part in (verdicts.exhaustion_s, verdicts.low_s, verdicts.high_s)),
        )
        self.alarms[rows[first]] = np.stack(told, axis=1)[first]
        self._passing[rows, place] = True
        self.together = np.maximum(self.together, self._passing.sum(axis=1))
        anew = time_s[rows] - self._last_s[rows, place] > 24 * self.widths_s[place]
        self.episodes[rows[anew], place[anew]] += 1
        self.first_s[rows, place] = np.minimum(self.first_s[rows, place], time_s[rows])
        self._last_s[rows, place] = time_s[rows]


def watch(world: World, settings: Settings) -> Outcome:
    """Feed a world to the rings, reading by reading, as the scorer does."""
    count = world.values.shape[1]
    rings = FloorRings(settings, count)
    outcome = Outcome(settings.widths_s, count)
    for time_s, values in zip(world.time_s, world.values, strict=True):
        advanced = rings.learn(slice(None), time_s, values)
        if advanced:
            verdicts = rings.judge(advanced, world.limits)
            outcome.note(advanced, verdicts, time_s, world.death_s)
    return outcome


# --- the fast world -------------------------------------------------------------------------------


def fast_times(draw: Draw, count: int, period_s: float, length_s: float) -> tuple[Floats, Floats]:
    """Moments of readings, (steps, count), and the same with NaN where a stall swallowed one."""
    steps = int(length_s / period_s)
    start_s = 1.7e9 + draw.uniform(0, 3600, count)
    time_s = start_s + np.arange(steps)[:, None] * period_s
    time_s += draw.uniform(-0.05, 0.05, time_s.shape)
    stall_s = start_s + draw.uniform(0.1, 0.9, count) * length_s
    late_s = stall_s + draw.uniform(1, 2, count)
    swallowed = (time_s > stall_s) & (time_s < late_s - period_s)
    late = (time_s > stall_s) & (time_s < late_s) & ~swallowed
    time_s = np.where(late, late_s, time_s)
    return time_s, np.where(swallowed, np.nan, time_s)


def leaking_process(draw: Draw, count: int, period_s: float) -> World:
    """2 to 5 MB/s from an onset at 10 to 40 s, to a limit met 35 to 70 s later.

    Half of them stall themselves for 1 to 2 s on the way.
    """
    time_s, seen_s = fast_times(draw, count, period_s, 120.0)
    onset_s = time_s[0] + draw.uniform(10, 40, count)
    life_s = draw.uniform(35, 70, count)
    rate = draw.uniform(2e6, 5e6, count)
    base = draw.uniform(20e6, 120e6, count)
    pause_at_s = onset_s + draw.uniform(0, 1, count) * life_s
    pause_s = draw.uniform(1, 2, count) * (draw.random(count) < 0.5)
    grown_s = np.maximum(0, seen_s - onset_s - np.clip(seen_s - pause_at_s, 0, pause_s))
    death_s = onset_s + life_s + pause_s
    values = np.where(seen_s < death_s, _quantised(base + rate * grown_s), np.nan)
    return World(time_s, values, base + rate * life_s, onset_s, death_s)


def sawtooth_process(
    draw: Draw, count: int, period_s: float, teeth_s: tuple[float, float]
) -> World:
    """An allocator that fills up and frees all, again and again; its limit 1.2 to 2x its peak."""
    time_s, seen_s = fast_times(draw, count, period_s, 240.0)
    tooth_s = draw.uniform(*teeth_s, count)
    peak = draw.uniform(60e6, 400e6, count)
    low = peak * draw.uniform(0, 0.3, count)
    share = ((seen_s + draw.uniform(0, 60, count)) % tooth_s) / tooth_s
    return _healthy(draw, time_s, _quantised(low + (peak - low) * share), peak)


def warm_up_process(draw: Draw, count: int, period_s: float, taus_s: tuple[float, float]) -> World:
    """L (1 - exp(-t / tau)) from a start at 0 to 40 s; its limit 1.2 to 2x what it ends at."""
    time_s, seen_s = fast_times(draw, count, period_s, 240.0)
    peak = draw.uniform(60e6, 400e6, count)
    base = peak * draw.uniform(0, 0.2, count)
    since_s = np.maximum(0, seen_s - time_s[0] - draw.uniform(0, 40, count))
    filled = 1 - np.exp(-since_s / draw.uniform(*taus_s, count))
    return _healthy(draw, time_s, _quantised(base + (peak - base) * filled), peak)


def busy_process(draw: Draw, count: int, period_s: float) -> World:
    """Requests that come and go: a level that wanders back, with noise and spikes on top."""
    time_s, seen_s = fast_times(draw, count, period_s, 600.0)
    level = _wandering(draw, time_s.shape, draw.uniform(3, 30, count) / period_s)
    spikes = (draw.random(time_s.shape) < 0.01) * draw.uniform(0, 2, time_s.shape)
    values = _quantised(np.maximum(0, 150e6 + 30e6 * level + 50e6 * spikes) + 0 * seen_s)
    return _healthy(draw, time_s, values, np.nanmax(values, axis=0))


def _healthy(draw: Draw, time_s: Floats, values: Floats, peak: Floats) -> World:
    count = values.shape[1]
    limits = peak * draw.uniform(1.2, 2.0, count)
    return World(time_s, values, limits, np.full(count, np.nan), np.full(count, np.inf))


def _quantised(values: Floats) -> Floats:
    return np.asarray(np.floor(values / MIB) * MIB)


def _wandering(draw: Draw, shape: tuple[int, ...], memory_steps: Floats | float) -> Floats:
    """Autoregressive noise of standard deviation 1 that forgets within so many steps."""
    keep = np.exp(-1.0 / np.asarray(memory_steps))
    noise = draw.normal(size=shape)
    noise[1:] *= np.sqrt(1 - keep**2)
    for step in range(1, shape[0]):
        noise[step] += keep * noise[step - 1]
    return noise


# --- the slow world -------------------------------------------------------------------------------

SLOW_PERIOD_S = 10.0


def slow_node(draw: Draw, growth: Floats, leak_onset_s: Floats | None = None) -> World:
    """A node with `growth` (steps, count) bytes under collector teeth, noise and checkpoints.

    With an onset the growth is a leak, and the node dies when its total first meets 2,000 GB.
    """
    steps, count = growth.shape
    start_s = 1.7e9 + draw.uniform(0, 3600, count)
    time_s: Floats = start_s + _hours(steps) * 3600
    base = draw.uniform(200, 600, count) * GB
    tooth_s = draw.uniform(60, 900, count)
    teeth = draw.uniform(0, 30, count) * GB * ((time_s % tooth_s) / tooth_s)
    every_s = draw.uniform(600, 3600, count)
    spike = ((time_s % every_s) < draw.uniform(20, 120, count)) * draw.uniform(50, 400, count) * GB
    noise = 0.5 * GB * _wandering(draw, growth.shape, 30.0)
    values = np.maximum(0, base + growth + teeth + spike + noise)
    limits = np.full(count, NODE_BYTES)
    if leak_onset_s is None:
        return World(time_s, values, limits, np.full(count, np.nan), np.full(count, np.inf))
    dead = values >= NODE_BYTES
    death_s = np.where(dead.any(axis=0), time_s[np.argmax(dead, axis=0), np.arange(count)], np.inf)
    values = np.where(time_s < death_s, np.minimum(values, NODE_BYTES), np.nan)
    return World(time_s, values, limits, time_s[0] + leak_onset_s, death_s)


def _hours(steps: int) -> Floats:
    return (np.arange(steps) * SLOW_PERIOD_S / 3600)[:, None]


def stationary(draw: Draw, steps: int, count: int) -> Floats:
    """Nothing but teeth, noise and checkpoints."""
    return np.zeros((steps, count)) * draw.random()


def random_walk(draw: Draw, steps: int, count: int) -> Floats:
    """5 to 50 GB in an hour's root mean square, without direction."""
    scale = draw.uniform(5, 50, count) * GB * np.sqrt(SLOW_PERIOD_S / 3600)
    return np.asarray(np.cumsum(draw.normal(size=(steps, count)) * scale, axis=0))


def _filling(draw: Draw, steps: int, size_gb: tuple[float, float], taus_h: Floats) -> Floats:
    count = len(taus_h)
    since_h = np.maximum(0, _hours(steps) - draw.uniform(0, 3, count))
    return np.asarray(draw.uniform(*size_gb, count) * GB * (1 - np.exp(-since_h / taus_h)))


def warm_up(draw: Draw, steps: int, count: int) -> Floats:
    """100 to 800 GB, time constant 5 to 60 min."""
    return _filling(draw, steps, (100, 800), draw.uniform(5 / 60, 1, count))


def slow_cache(draw: Draw, steps: int, count: int) -> Floats:
    """300 to 1,000 GB, time constant 2 to 8 h."""
    return _filling(draw, steps, (300, 1000), draw.uniform(2, 8, count))


def model_load(draw: Draw, steps: int, count: int) -> Floats:
    """50 to 600 GB in 30 to 600 s, kept for 1 to 6 h, freed, again."""
    hours = _hours(steps)
    size = draw.uniform(50, 600, count) * GB
    ramp_h = draw.uniform(30, 600, count) / 3600
    keep_h = draw.uniform(1, 6, count)
    phase = (hours + draw.uniform(0, 6, count)) % (keep_h + 0.5)
    return np.where(phase < keep_h, size * np.minimum(1, phase / ramp_h), 0.0)


def epoch_stairs(draw: Draw, steps: int, count: int) -> Floats:
    """3 to 12 stairs of 5 to 50 GB, one every 10 to 60 min, then level."""
    stair_h = draw.uniform(1 / 6, 1, count)
    stairs = draw.integers(3, 13, count)
    climbed = np.floor(np.maximum(0, _hours(steps) - draw.uniform(0, 2, count)) / stair_h)
    return np.minimum(climbed, stairs) * draw.uniform(5, 50, count) * GB


def season(draw: Draw, steps: int, count: int) -> Floats:
    """A day's sine of 50 to 300 GB from trough to peak."""
    return _sine(draw, steps, draw.uniform(25, 150, count) * GB)


def deep_season(draw: Draw, steps: int, count: int) -> Floats:
    """Held out: a day's sine of 300 to 800 GB.

    For the eight hours around its steepest it is a line that meets the limit within a day: not to
    be told from a leak until it levels off.
    """
    return _sine(draw, steps, draw.uniform(150, 400, count) * GB)


def _sine(draw: Draw, steps: int, amplitude: Floats) -> Floats:
    angle = 2 * np.pi * (_hours(steps) / 24 + draw.random(len(amplitude)))
    return np.asarray(amplitude * (1 + np.sin(angle)), dtype=np.float64)


def job_churn(draw: Draw, steps: int, count: int) -> Floats:
    """Three places for jobs: each takes 50 to 400 GB within 30 to 300 s and stays 10 min to 3 h."""
    growth = np.zeros((steps, count))
    hours = _hours(steps)[:, 0]
    for row in range(count):
        for _ in range(3):
            at_h = 0.0
            while at_h < hours[-1]:
                at_h += draw.uniform(0.02, 0.5)
                end_h = at_h + draw.uniform(1 / 6, 3)
                ramp = np.clip((hours - at_h) / (draw.uniform(30, 300) / 3600), 0, 1)
                growth[:, row] += draw.uniform(50, 400) * GB * np.where(hours < end_h, ramp, 0)
                at_h = end_h
    return growth


def logistic_fill(draw: Draw, steps: int, count: int) -> Floats:
    """Held out: slow, fast, slow again (a data set spreading through workers)."""
    middle_h, tau_h = draw.uniform(3, 12, count), draw.uniform(0.1, 2, count)
    spread = 1 + np.exp(-(_hours(steps) - middle_h) / tau_h)
    return np.asarray(draw.uniform(100, 800, count) * GB / spread)


def root_growth(draw: Draw, steps: int, count: int) -> Floats:
    """Held out: a vocabulary that grows with the square root of time, up to 800 GB a day."""
    since_h = np.maximum(0, _hours(steps) - draw.uniform(0, 3, count))
    return np.asarray(draw.uniform(100, 800, count) * GB * np.sqrt(since_h / 24))


def triangle(draw: Draw, steps: int, count: int) -> Floats:
    """Held out: straight up and straight down, 100 to 500 GB with a period of 2 to 16 h."""
    phase = (_hours(steps) / draw.uniform(2, 16, count) + draw.random(count)) % 1
    return np.asarray(draw.uniform(100, 500, count) * GB * (1 - np.abs(2 * phase - 1)))


def buffer_fill(draw: Draw, steps: int, count: int) -> Floats:
    """Held out: 100 to 600 GB on a straight line within 0.5 to 6 h, then level.

    Not to be told from a leak while it lasts; an alarm is right when the limit would be near.
    """
    since_h = np.maximum(0, _hours(steps) - draw.uniform(0, 3, count))
    full = draw.uniform(100, 600, count) * GB
    return np.minimum(full, full * since_h / draw.uniform(0.5, 6, count))


SLOW_HEALTHY: tuple[Family, ...] = (
    stationary,
    random_walk,
    warm_up,
    slow_cache,
    model_load,
    epoch_stairs,
    season,
    job_churn,
    logistic_fill,
    root_growth,
    triangle,
    buffer_fill,
    deep_season,
)
LEAKS_GB_PER_HOUR = (50, 100, 200, 400, 800)


def slow_leak(draw: Draw, count: int, rate_gb_h: float) -> World:
    """A node whose floor rises at one rate from an onset at 1 to 3 h until it dies."""
    steps = int((4.0 + 1900 / rate_gb_h) * 3600 / SLOW_PERIOD_S)
    onset_h = draw.uniform(1, 3, count)
    growth = rate_gb_h * GB * np.maximum(0, _hours(steps) - onset_h)
    return slow_node(draw, growth, onset_h * 3600)


# --- the table ------------------------------------------------------------------------------------


class Quality(NamedTuple):
    """How well the leaks of a world were found."""

    found: float
    """Share that passed at some width before its limit."""
    wait_s: float
    """Median, from onset to the first alarm."""
    lead_s: float
    lead_p5_s: float
    """From the first alarm to the limit, median and 5th percentile."""
    errors: Floats
    """Forecast at the first alarm beside the truth, as a share: 10th, 50th and 90th percentile."""
    held: float
    """Share of first alarms whose interval held the truth."""


def quality(world: World, outcome: Outcome) -> Quality:
    """Judge the leaks of a world."""
    first_s = outcome.first_s.min(axis=1)
    found = first_s < world.death_s
    lead_s = (world.death_s - first_s)[found]
    left_s, told_s, low_s, high_s = outcome.alarms[found & np.isfinite(world.death_s)].T
    return Quality(
        float(found.mean()),
        float(np.median((first_s - world.onset_s)[found])),
        float(np.median(lead_s)),
        float(np.percentile(lead_s, 5)),
        np.percentile(told_s / left_s - 1, (10, 50, 90)),
        float(((low_s <= left_s) & (left_s <= high_s)).mean()),
    )


def _healthy_row(name: str, outcome: Outcome, days: float) -> str:
    rates = outcome.episodes.sum(axis=0) / (len(outcome.together) * days)
    cells = " | ".join(f"{rate:.3g}" for rate in rates)
    return f"| {name} | {cells} | {int((outcome.together >= 2).sum())} |"


def _leak_row(name: str, world: World, outcome: Outcome, unit_s: float) -> str:
    seen = quality(world, outcome)
    low, middle, high = seen.errors * 100
    return (
        f"| {name} | {seen.found:.1%} | {seen.wait_s / unit_s:.3g} | {seen.lead_s / unit_s:.3g} | "
        f"{seen.lead_p5_s / unit_s:.3g} | {middle:+.1f} ({low:+.1f} to {high:+.1f}) | "
        f"{seen.held:.2f} |"
    )


def _print_fast(series: int, seed: int) -> None:
    settings = Settings(widths_s=(1.0, 5.0, 60.0))
    heads = " | ".join(f"{width_s:g} s" for width_s in settings.widths_s)
    print(f"\nFast world, {series} series a row. Healthy: series that ever passed at a width\n")
    print(f"| healthy | {heads} | at two widths |\n|---|" + "---|" * (len(settings.widths_s) + 1))
    families: dict[str, Callable[[Draw, float], World]] = {
        "sawtooth 8-20 s": lambda draw, p: sawtooth_process(draw, series, p, (8, 20)),
        "sawtooth 20-60 s (hard)": lambda draw, p: sawtooth_process(draw, series, p, (20, 60)),
        "warm-up tau 3-15 s": lambda draw, p: warm_up_process(draw, series, p, (3, 15)),
        "warm-up tau 15-120 s (hard)": lambda draw, p: warm_up_process(draw, series, p, (15, 120)),
        "busy, level wanders": lambda draw, p: busy_process(draw, series, p),
    }
    for name, family in families.items():
        for period_s in (0.5, 1.0):
            outcome = watch(family(np.random.default_rng(seed), period_s), settings)
            ever = " | ".join(str(int(n)) for n in (outcome.episodes > 0).sum(axis=0))
            both = int((outcome.together >= 2).sum())
            print(f"| {name}, read every {period_s:g} s | {ever} | {both} |")
    print("\n| leak | found before its limit | wait s | lead s p50 | p5 | error % | held |")
    print("|---|---|---|---|---|---|---|")
    for period_s in (0.5, 0.7, 1.0):
        world = leaking_process(np.random.default_rng(seed), series, period_s)
        outcome = watch(world, settings)
        print(_leak_row(f"2-5 MB/s, read every {period_s:g} s", world, outcome, 1.0))


def _print_slow(series: int, seed: int) -> None:
    settings = Settings()
    heads = " | ".join(f"{width_s:g} s" for width_s in settings.widths_s)
    print(f"\nSlow world, {series} nodes a row. Healthy: alarms per series-day and width\n")
    print(f"| healthy | {heads} | two widths |\n|---|" + "---|" * (len(settings.widths_s) + 1))
    steps = int(24 * 3600 / SLOW_PERIOD_S)
    for family in SLOW_HEALTHY:
        draw = np.random.default_rng(seed)
        outcome = watch(slow_node(draw, family(draw, steps, series)), settings)
        print(_healthy_row(family.__name__.replace("_", " "), outcome, 1.0))
    print("\n| leak | found before its limit | wait h | lead h p50 | p5 | error % | held |")
    print("|---|---|---|---|---|---|---|")
    for rate in LEAKS_GB_PER_HOUR:
        world = slow_leak(np.random.default_rng(seed), series, rate)
        print(_leak_row(f"{rate} GB/h", world, watch(world, settings), 3600.0))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=400)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--world", choices=("fast", "slow", "both"), default="both")
    chosen = parser.parse_args()
    if chosen.world != "slow":
        _print_fast(chosen.series, chosen.seed)
    if chosen.world != "fast":
        _print_slow(chosen.series, chosen.seed)


if __name__ == "__main__":
    main()
