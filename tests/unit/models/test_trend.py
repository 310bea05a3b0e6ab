"""The leak tests beside other people's code and plain loops, and on shapes with known answers."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from models import trend
from models.trend import ALL_TESTS, SAID_NO, LeakTest

Floats = NDArray[np.float64]
BLOCKS = 24
STEPS = np.arange(BLOCKS, dtype=np.float64)


@pytest.fixture
def windows() -> Floats:
    draw = np.random.default_rng(11)
    walks = np.cumsum(draw.normal(size=(20, BLOCKS)), axis=1)
    ramps = STEPS * draw.uniform(0.1, 3, (20, 1)) + draw.normal(size=(20, BLOCKS))
    return np.concatenate([walks, ramps, np.round(ramps)])


def _between_levels() -> Floats:
    """Level stretches with a little growth, and two jobs' ramps of three blocks between them."""
    steps = np.full(BLOCKS - 1, 2.0)
    steps[[6, 7, 8, 17, 18, 19]] = 80.0
    return np.asarray(np.concatenate([[0.0], np.cumsum(steps)]))


def examined(values: Floats, limit: float) -> LeakTest:
    """The tests that say yes to one window."""
    return LeakTest(int(trend.examine(values[None, :], np.array([limit])).passed[0]))


def refused(values: Floats, limit: float) -> LeakTest:
    return LeakTest(ALL_TESTS) & ~LeakTest.SEASONED & ~examined(values, limit)


def test_mann_kendall_agrees_with_kendalls_tau(windows: Floats) -> None:
    pairs = BLOCKS * (BLOCKS - 1) / 2
    deviation = math.sqrt(BLOCKS * (BLOCKS - 1) * (2 * BLOCKS + 5) / 18)
    untied = windows[:40]
    rising = np.array([stats.kendalltau(STEPS, row).statistic * pairs for row in untied])

    scores = trend.mann_kendall_z(untied)

    np.testing.assert_allclose(scores, (rising - np.sign(rising)) / deviation, atol=1e-9)


def test_mann_kendall_agrees_with_counting_pairs_when_there_are_ties(windows: Floats) -> None:
    deviation = math.sqrt(BLOCKS * (BLOCKS - 1) * (2 * BLOCKS + 5) / 18)

    def plainly(row: Floats) -> float:
        rising = sum(
            (later > earlier) - (later < earlier)
            for earlier, later in itertools.combinations(row.tolist(), 2)
        )
        return float(rising - np.sign(rising)) / deviation

    np.testing.assert_allclose(trend.mann_kendall_z(windows), [plainly(row) for row in windows])


def test_the_score_of_a_window_without_trend_is_a_standard_normal() -> None:
    scores = trend.mann_kendall_z(np.random.default_rng(1).normal(size=(4000, BLOCKS)))

    assert abs(float(scores.mean())) < 0.05
    assert abs(float(scores.std()) - 1.0) < 0.05


def test_theil_sen_agrees_with_scipy(windows: Floats) -> None:
    expected = [stats.theilslopes(row, STEPS).slope for row in windows]

    np.testing.assert_allclose(trend.theil_sen(windows), expected, atol=1e-12)


def test_the_winsorised_t_agrees_with_a_plain_one_sample_t(windows: Floats) -> None:
    def plainly(row: Floats) -> float:
        steps = np.diff(row)
        centre = np.median(steps)
        reach = 3 * stats.median_abs_deviation(steps)
        clipped = np.array([min(max(step, centre - reach), centre + reach) for step in steps])
        return float(stats.ttest_1samp(clipped, 0.0).statistic)

    steps = np.diff(windows, axis=1)
    centre = np.median(steps, axis=1)
    mad = np.median(np.abs(steps - centre[:, None]), axis=1)

    np.testing.assert_allclose(
        trend.winsorised_t(steps, centre, mad), [plainly(row) for row in windows]
    )


@pytest.mark.parametrize(("step", "expected"), [(2.0, np.inf), (-2.0, -np.inf), (0.0, 0.0)])
def test_steps_that_never_vary_are_certain(step: float, expected: float) -> None:
    steps = np.full((1, BLOCKS - 1), step)

    score = trend.winsorised_t(steps, steps[:, 0], np.zeros(1))

    assert score.tolist() == [expected]


def test_a_leak_passes_every_test() -> None:
    assert refused(1000 + 10 * STEPS, limit=1500) == LeakTest(0)


def test_a_leak_that_pauses_for_a_block_still_passes() -> None:
    grown = np.concatenate([STEPS[:18], [17], STEPS[18:23]])

    assert refused(1000 + 10 * grown, limit=1400) == LeakTest(0)


@pytest.mark.parametrize(
    ("name", "values", "limit", "test"),
    [
        ("a warm-up", 1000 * (1 - np.exp(-STEPS / 30)), 1200.0, LeakTest.CONSTANT),
        ("growth that began a third ago", 10 * np.maximum(0, STEPS - 8), 250.0, LeakTest.CONSTANT),
        ("two jobs that start", _between_levels(), 700.0, LeakTest.CONSTANT),
        ("a model load", np.where(STEPS < 12, STEPS, 500 + STEPS), 900.0, LeakTest.GRADUAL),
        ("a sawtooth", 100 * ((STEPS + 6) % 20), 2500.0, LeakTest.UPWARD),
        ("a stair of 8", 100.0 * (STEPS // 8), 400.0, LeakTest.UPWARD),
        ("a trickle", 1000 + 0.1 * STEPS, 1005.0, LeakTest.MATERIAL),
        ("a far limit", 1000 + 10 * STEPS, 1230 + 10 * 73.0, LeakTest.URGENT),
        ("a level", np.full(BLOCKS, 7.0), 8.0, LeakTest.MONOTONE),
    ],
)
def test_a_healthy_shape_is_refused_by_the_test_made_for_it(
    name: str, values: Floats, limit: float, test: LeakTest
) -> None:
    assert test in refused(values, limit), name


def test_a_drop_that_a_bridged_gap_has_spread_out_still_counts_whole() -> None:
    tooth = np.concatenate([10 * STEPS[:10], [70, 45, 20], 20 + 10 * STEPS[:11]])

    assert LeakTest.UPWARD in refused(tooth, limit=300)


def test_a_random_walk_is_refused_by_all_tests_together() -> None:
    walks = np.cumsum(np.random.default_rng(2).normal(size=(3000, BLOCKS)), axis=1)

    found = trend.examine(walks, walks[:, -1] + 1.0)

    monotone = ((found.passed & int(LeakTest.MONOTONE)) > 0).mean()
    everything = ALL_TESTS & ~int(LeakTest.SEASONED)
    assert monotone > 0.15
    assert (found.passed == everything).mean() < 0.002


def test_without_a_limit_nothing_is_urgent_or_material() -> None:
    assert refused(1000 + 10 * STEPS, math.nan) == LeakTest.URGENT | LeakTest.MATERIAL


def test_a_reached_limit_is_urgent() -> None:
    assert LeakTest.URGENT in examined(1000 + 10 * STEPS, limit=1100)


def test_a_ramps_slope_and_level_are_exact_and_its_interval_holds_them() -> None:
    found = trend.examine((1000 + 10 * STEPS)[None, :], np.array([1500.0]))

    assert found.slope.tolist() == [10.0]
    assert found.floor.tolist() == [1230.0]
    assert found.slope_low.tolist() == [9.0]
    assert found.slope_high.tolist() == [11.0]


def test_one_odd_block_hardly_moves_the_line() -> None:
    values = 1000 + 10 * STEPS
    values[-1] += 400

    found = trend.examine(values[None, :], np.array([3000.0]))

    assert found.slope[0] == pytest.approx(10.0, abs=0.5)
    assert found.floor[0] == pytest.approx(1230.0, abs=5)


def test_every_test_has_words_for_its_no() -> None:
    assert set(SAID_NO) == set(LeakTest)
