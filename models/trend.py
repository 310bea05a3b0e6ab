"""Does this window of floors grow like a leak? Seven tests, each with a reason to say no.

A window is B block minima at one width, oldest first. Units: values as the series has them, block
steps as time (callers divide by the width). The tests and their constants are explained one by one
below; docs/decisions/0004-leak-tests.md tells where they come from and what they were measured on.

All functions take windows as an array (n, B) of float64 without NaN, and return one answer for each
of the n windows. None keeps state, so a window judged twice gives the same answer twice.
"""

import enum
import functools
from typing import NamedTuple

import numpy as np

from models.base import Flags, Floats, Indices


class LeakTest(enum.IntFlag):
    """The tests, one bit each; a leak is what passes all of them."""

    MONOTONE = 1
    INCREMENTS = 2
    CONSTANT = 4
    GRADUAL = 8
    UPWARD = 16
    MATERIAL = 32
    URGENT = 64
    SEASONED = 128


ALL_TESTS = int(sum(LeakTest))

SAID_NO = {
    LeakTest.MONOTONE: "its floor goes up and down without a direction",
    LeakTest.INCREMENTS: "its steps up are no larger than a random walk's",
    LeakTest.CONSTANT: "its growth is slowing down, or began only lately",
    LeakTest.GRADUAL: "most of its growth came in one step",
    LeakTest.UPWARD: "its floor fell back, or rose too seldom",
    LeakTest.MATERIAL: "its growth is small beside its noise or its limit",
    LeakTest.URGENT: "its limit is further away than three times what was observed",
    LeakTest.SEASONED: "it has not been observed for long enough without a gap",
}
"""What a person is told when a test says no."""

# T1. One-sided p = 2e-4 for exchangeable floors. Not enough alone: a random walk passes one time
# in five (its steps are what T2 looks at).
MONOTONE_Z = 3.5
# T2. Student's t of the steps, clipped so that one restart or spike does not decide.
INCREMENTS_T = 3.0
CLIP_MADS = 3.0
# T3. A filling cache or a warm-up L(1 - exp(-t/tau)) slows down; a leak does not. The slopes of
# both halves lie B/2 steps apart, so their ratio is exp(-B/2/tau): 0.806 says no up to
# tau = B/2 / -ln 0.806 = 55.6 steps. Together with T7 this is a closed door: with a limit at 1.2
# times its peak a warm-up of that tau has 1.2 tau = 67 steps left when it starts and 73 when it has
# filled the ring, and T7 wants fewer than 72.
HALVES_RATIO = 0.806
# The slopes of the thirds, of the whole and from end to end must agree within a factor of 2: else
# growth began inside the ring, or had two speeds, or came in jumps between level stretches (which
# a median of slopes does not see).
SLOPES_RATIO = 0.5
# T4. A model load or a new batch size is one jump.
STEP_SHARE = 0.4
# T5. Most steps go up, and the floor never gives much back (measured from its highest point, so
# that a drop seen through a bridged gap still counts whole).
UPWARD_SHARE = 0.65
DRAWDOWN_SHARE = 0.25
DRAWDOWN_MADS = 6.0
# T6. Against the noise of the steps, and against the limit.
NOISE_MADS = 8.0
MATERIAL_SHARE = 0.01
# T7. Nobody may extrapolate further than three times what was observed.
HORIZON_SPANS = 3.0
# The forecast's interval: 90 % of the noise of a mean of B steps, and what the halves disagree
# about; never narrower than a tenth of the slope.
NOISE_QUANTILE = 1.64
SLOPE_SHARE_MIN = 0.1


class Trend(NamedTuple):
    """The answers for n windows; slopes in values per block step."""

    passed: Indices
    """Bits of `LeakTest` that said yes."""
    slope: Floats
    slope_low: Floats
    slope_high: Floats
    """The interval that holds the slope to come nine times in ten."""
    floor: Floats
    """The floor's level at the start of the last block, from its last third: one odd block moves
    it little."""


def examine(windows: Floats, limits: Floats) -> Trend:
    """Judge each window by T1 to T7 (T8 is about the ring, not about its numbers).

    `limits` holds the level at which each series ends; where it is NaN neither T6 nor T7 can say
    yes.
    """
    blocks = windows.shape[1]
    steps = np.diff(windows, axis=1)
    centre = np.median(steps, axis=1)
    mad = np.median(np.abs(steps - centre[:, None]), axis=1)
    growth = windows[:, -1] - windows[:, 0]
    slope = theil_sen(windows)
    halves = _part_slopes(windows, 2)
    answers = {
        LeakTest.MONOTONE: mann_kendall_z(windows) > MONOTONE_Z,
        LeakTest.INCREMENTS: winsorised_t(steps, centre, mad) > INCREMENTS_T,
        LeakTest.CONSTANT: _constant(
            halves, slope, growth / (blocks - 1), _part_slopes(windows, 3)
        ),
        LeakTest.GRADUAL: np.abs(steps).max(axis=1) < STEP_SHARE * growth,
        LeakTest.UPWARD: _upward(windows, steps, mad),
        LeakTest.MATERIAL: material(growth, limits) & (growth > NOISE_MADS / np.sqrt(2.0) * mad),
        LeakTest.URGENT: (
            urgent(growth, windows[:, -1], limits, blocks)
            & (limits - windows[:, -1] < HORIZON_SPANS * blocks * slope)
        ),
    }
    passed = np.zeros(len(windows), dtype=np.intp)
    for test, said_yes in answers.items():
        passed |= np.where(said_yes, np.intp(test), np.intp(0))
    spread = np.maximum(
        NOISE_QUANTILE * mad / np.sqrt(blocks),
        0.5 * np.abs(halves[1] - halves[0]) + SLOPE_SHARE_MIN * np.abs(slope),
    )
    return Trend(passed, slope, slope - spread, slope + spread, _last_level(windows, slope))


def material(growth: Floats, limits: Floats) -> Flags:
    """The cheap half of T6: growth over the window is worth a look beside the limit."""
    return np.asarray(growth > MATERIAL_SHARE * limits)


def urgent(growth: Floats, last: Floats, limits: Floats, blocks: int) -> Flags:
    """The cheap half of T7: from end to end, within twice the horizon.

    It needs two numbers of a window, so nearly all rings are done after it.
    """
    horizon = 2.0 * HORIZON_SPANS * blocks / (blocks - 1)
    return np.asarray(limits - last < horizon * growth)


def mann_kendall_z(windows: Floats) -> Floats:
    """Mann and Kendall's test for a monotone trend, normal score with continuity correction.

    S counts pairs that rise less pairs that fall. The variance is the one without ties, which
    makes the score of a series with ties smaller, never larger. (Mann 1945, Kendall 1975.)
    """
    blocks = windows.shape[1]
    earlier, later, _ = _pairs(blocks)
    rising = np.sign(windows[:, later] - windows[:, earlier]).sum(axis=1)
    deviation = np.sqrt(blocks * (blocks - 1) * (2 * blocks + 5) / 18)
    return np.asarray((rising - np.sign(rising)) / deviation)


def theil_sen(windows: Floats) -> Floats:
    """The median of the slopes of all pairs, values per step (Theil 1950, Sen 1968).

    29 % of the blocks may be arbitrarily wrong before the answer is.
    """
    earlier, later, distance = _pairs(windows.shape[1])
    slopes = windows[:, later]
    slopes -= windows[:, earlier]
    slopes /= distance
    return np.asarray(np.median(slopes, axis=1, overwrite_input=True))


def winsorised_t(steps: Floats, centre: Floats, mad: Floats) -> Floats:
    """Student's t of the mean step against none, steps clipped to the median +- 3 MAD.

    Steps that do not vary at all give +-inf by the sign of their mean, and 0 when it is 0.
    """
    reach = CLIP_MADS * mad
    clipped = np.clip(steps, (centre - reach)[:, None], (centre + reach)[:, None])
    mean = clipped.mean(axis=1)
    deviation = clipped.std(axis=1, ddof=1)
    varying = deviation > 0
    certain = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
    score = mean / np.where(varying, deviation, 1.0) * np.sqrt(steps.shape[1])
    return np.where(varying, score, certain)


def _constant(halves: Floats, slope: Floats, end_to_end: Floats, thirds: Floats) -> Flags:
    slopes = np.stack([slope, end_to_end, *thirds])
    agreed = slopes.min(axis=0) > SLOPES_RATIO * slopes.max(axis=0)
    return np.asarray(agreed & (halves[0] > 0) & (halves[1] > HALVES_RATIO * halves[0]))


def _upward(windows: Floats, steps: Floats, mad: Floats) -> Flags:
    drawdown = (np.maximum.accumulate(windows, axis=1) - windows).max(axis=1)
    spread = windows.max(axis=1) - windows.min(axis=1)
    allowed = np.maximum(DRAWDOWN_SHARE * spread, DRAWDOWN_MADS * mad)
    return np.asarray(((steps > 0).mean(axis=1) >= UPWARD_SHARE) & (drawdown <= allowed))


def _part_slopes(windows: Floats, parts: int) -> Floats:
    """Theil-Sen slopes of equal parts, oldest first: (parts, n)."""
    size = windows.shape[1] // parts
    return np.stack([theil_sen(windows[:, k * size : (k + 1) * size]) for k in range(parts)])


def _last_level(windows: Floats, slope: Floats) -> Floats:
    """The line's level at the last block: the median of what each of the last third says."""
    blocks = windows.shape[1]
    tail = blocks // 3
    ahead = np.arange(tail - 1, -1, -1)
    return np.asarray(np.median(windows[:, blocks - tail :] + slope[:, None] * ahead, axis=1))


@functools.cache
def _pairs(blocks: int) -> tuple[Indices, Indices, Floats]:
    """All pairs of blocks: the earlier one, the later one, and how many steps lie between."""
    earlier, later = np.triu_indices(blocks, 1)
    return earlier, later, (later - earlier).astype(np.float64)
