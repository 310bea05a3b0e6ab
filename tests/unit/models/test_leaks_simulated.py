"""Drawn processes and nodes of known truth: leaks are found in time, habits are let be.

The worlds are the benchmark's (`python -m bench.leaks` prints the whole table), at a size that fits
a test. The seeds are fixed, so a failure repeats.
"""

import numpy as np
import pytest

from bench import leaks
from models.floors import Settings

FAST = Settings(widths_s=(1.0, 5.0, 60.0))
SLOW = Settings(widths_s=(60.0, 300.0, 1200.0))
COUNT = 150
READ_EVERY_S = (0.5, 0.7, 1.0)


def drawn(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("period_s", READ_EVERY_S)
def test_every_fast_leak_is_found_soon_after_it_fills_a_ring_and_well_before_its_limit(
    period_s: float,
) -> None:
    world = leaks.leaking_process(drawn(21), COUNT, period_s)

    outcome = leaks.watch(world, FAST)

    waits_s = outcome.first_s[:, 0] - world.onset_s
    assert np.isfinite(waits_s).all()
    assert np.percentile(waits_s, 95) <= 26.0
    assert waits_s.max() <= 32.0
    assert (world.death_s - outcome.first_s[:, 0]).min() > 5.0


@pytest.mark.parametrize("period_s", READ_EVERY_S)
def test_the_first_forecast_of_a_fast_leak_is_near_the_truth(period_s: float) -> None:
    world = leaks.leaking_process(drawn(22), COUNT, period_s)

    seen = leaks.quality(world, leaks.watch(world, FAST))

    low, middle, high = seen.errors.tolist()
    assert abs(middle) < 0.05
    assert low > -0.15
    assert high < 0.15
    assert seen.held >= 0.85


@pytest.mark.parametrize("period_s", READ_EVERY_S)
def test_plain_neighbours_never_pass_all_tests_twice(period_s: float) -> None:
    for world in (
        leaks.sawtooth_process(drawn(23), COUNT, period_s, (8, 20)),
        leaks.warm_up_process(drawn(24), COUNT, period_s, (3, 15)),
    ):
        assert leaks.watch(world, FAST).episodes.sum() == 0


@pytest.mark.parametrize("period_s", READ_EVERY_S)
def test_hard_neighbours_never_pass_at_two_widths(period_s: float) -> None:
    for world in (
        leaks.sawtooth_process(drawn(25), COUNT, period_s, (20, 60)),
        leaks.warm_up_process(drawn(26), COUNT, period_s, (15, 120)),
    ):
        assert leaks.watch(world, FAST).together.max() <= 1


@pytest.mark.parametrize(
    "family",
    [leaks.stationary, leaks.season, leaks.root_growth, leaks.model_load],
)
def test_a_node_without_a_leak_raises_no_alarm_in_half_a_day(family: leaks.Family) -> None:
    draw, steps = drawn(27), int(12 * 3600 / leaks.SLOW_PERIOD_S)

    outcome = leaks.watch(leaks.slow_node(draw, family(draw, steps, 40)), SLOW)

    assert outcome.episodes.sum() == 0


def test_a_random_walk_raises_at_most_one_alarm_in_a_hundred_node_days() -> None:
    steps = int(12 * 3600 / leaks.SLOW_PERIOD_S)
    alarms = 0.0
    for seed in (27, 31, 32, 33, 34):
        draw = drawn(seed)
        world = leaks.slow_node(draw, leaks.random_walk(draw, steps, 40))
        alarms += leaks.watch(world, SLOW).episodes.sum()
    assert alarms <= 1


def test_a_leaking_node_is_found_more_than_an_hour_before_it_dies() -> None:
    world = leaks.slow_leak(drawn(28), 40, 400)

    seen = leaks.quality(world, leaks.watch(world, SLOW))

    assert seen.found == 1.0
    assert seen.lead_p5_s > 3600.0
    assert abs(float(seen.errors[1])) < 0.15
