"""Rings of floors: what they keep, when they speak, and what they forecast."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.floors import FloorRings, Settings, build
from models.trend import ALL_TESTS, LeakTest
from models.verdicts import Verdicts

Floats = NDArray[np.float64]
START_S = 1.7e9
WIDTHS = (1.0, 5.0, 60.0)
ONE = np.array([0])


def rings(widths_s: tuple[float, ...] = WIDTHS, capacity: int = 1) -> FloorRings:
    return build(Settings(widths_s=widths_s), capacity)


def told(model: FloorRings, times_s: Floats, values: Floats, limit: float) -> list[Verdicts]:
    """Feed one row; all verdicts, block end by block end."""
    limits = np.full(model.capacity, limit)
    answers = []
    for time_s, value in zip(times_s, values, strict=True):
        advanced = model.learn(ONE, float(time_s), np.array([value]))
        answers.append(model.judge(advanced, limits))
    return answers


def kept(model: FloorRings, width_s: float, row: int = 0) -> list[tuple[int, float, bool]]:
    """What a ring holds of a row, oldest first: block, floor, whether it was bridged."""
    state = model.save()
    floors = state[f"{width_s:g}s.floors"][:, row]
    newest = int(state[f"{width_s:g}s.newest"][row])
    bridged = int(state[f"{width_s:g}s.bridged"][row])
    ages = range(int(state[f"{width_s:g}s.filled"][row]) - 1, -1, -1)
    return [
        (newest - age, float(floors[(newest - age) % len(floors)]), bool(bridged >> age & 1))
        for age in ages
    ]


def plainly(
    times_s: list[float], values: list[float], width_s: float
) -> list[tuple[int, float, bool]]:
    """The same by a plain loop over the readings."""
    lowest: dict[int, float] = {}
    last_s = -np.inf
    for time_s, value in zip(times_s, values, strict=True):
        if np.isfinite(value) and time_s > last_s:
            last_s = time_s
            block = int(time_s // width_s)
            lowest[block] = min(lowest.get(block, np.inf), float(np.float32(value)))
    closed = sorted(lowest)[:-1]
    held: list[tuple[int, float, bool]] = []
    for block in closed:
        hole = block - held[-1][0] - 1 if held else 0
        if hole > 2:
            held = []
            hole = 0
        if hole:
            before = np.float32(held[-1][1])
            rise = np.float32(lowest[block]) - before
            for step in range(1, hole + 1):
                share = np.float32(step) / np.float32(hole + 1)
                held.append((held[-1][0] + 1, float(before + rise * share), True))
        held.append((block, lowest[block], False))
    return held[-25:]


pauses = st.lists(
    st.sampled_from([0.4, 0.5, 0.5, 0.9, 1.0, 1.1, 2.0, 3.1, -0.3, 6.0, 21.0]),
    min_size=1,
    max_size=120,
)


@given(pauses, st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_every_width_keeps_what_a_plain_loop_over_the_readings_keeps(
    steps_s: list[float], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    times_s = (START_S + np.cumsum(steps_s)).tolist()
    values = np.where(draw.random(len(steps_s)) < 0.1, np.nan, draw.normal(size=len(steps_s)))
    model = rings()

    told(model, np.array(times_s), values, limit=10.0)

    for width_s in WIDTHS:
        assert kept(model, width_s) == plainly(times_s, values.tolist(), width_s)


def test_a_short_hole_is_bridged_on_a_straight_line() -> None:
    model = rings((1.0,))

    told(model, np.array([0.5, 1.5, 4.5, 5.5]), np.array([10.0, 20.0, 50.0, 60.0]), 100.0)

    assert kept(model, 1.0) == [
        (0, 10.0, False),
        (1, 20.0, False),
        (2, 30.0, True),
        (3, 40.0, True),
        (4, 50.0, False),
    ]


def test_a_longer_hole_begins_the_ring_anew() -> None:
    model = rings((1.0,))

    told(model, np.array([0.5, 1.5, 5.5, 6.5]), np.array([10.0, 20.0, 50.0, 60.0]), 100.0)

    assert kept(model, 1.0) == [(5, 50.0, False)]


def test_readings_from_the_past_are_passed_over() -> None:
    model = rings((1.0,))

    told(model, np.array([5.5, 4.5, 5.5, 5.6, 6.5]), np.array([9.0, 1.0, 1.0, 8.0, 7.0]), 100.0)

    assert kept(model, 1.0) == [(5, 8.0, False)]


def leak(seconds: float, period_s: float = 0.5, slope: float = 4.0) -> tuple[Floats, Floats]:
    """A straight leak from 100 on; its block ends lie between readings."""
    times_s = START_S + 0.25 + np.arange(0.0, seconds, period_s)
    return times_s, 100.0 + slope * (times_s - times_s[0])


def first_pass(answers: list[Verdicts]) -> int:
    return next(k for k, verdicts in enumerate(answers) if verdicts.passed.any())


def test_a_leak_passes_when_its_ring_is_full_and_one_block_later_is_believed() -> None:
    times_s, values = leak(40.0)

    answers = told(rings((1.0,)), times_s, values, limit=300.0)

    now = next(k for k, verdicts in enumerate(answers) if verdicts.passed_now.any())
    assert times_s[now] - START_S == pytest.approx(24.0, abs=0.5)
    assert times_s[first_pass(answers)] - START_S == pytest.approx(25.0, abs=0.5)
    assert not answers[now].passed.any()


def test_the_forecast_of_a_straight_leak_is_exact_and_inside_its_interval() -> None:
    times_s, values = leak(40.0)
    answers = told(rings((1.0,)), times_s, values, limit=300.0)
    verdicts = answers[first_pass(answers)]
    met_s = times_s[0] + 200.0 / 4.0

    assert verdicts.slope[0] == pytest.approx(4.0, rel=1e-4)
    assert verdicts.end_s[0] == START_S + 25.0
    assert verdicts.end_s[0] + verdicts.exhaustion_s[0] == pytest.approx(met_s, abs=0.01)
    assert verdicts.low_s[0] < verdicts.exhaustion_s[0] < verdicts.high_s[0]


def test_the_current_forecast_follows_the_newest_reading() -> None:
    times_s, values = leak(30.0)
    model = rings((1.0,))
    told(model, times_s, values, limit=300.0)

    ahead = model.current(ONE, times_s[-1] + 2.0, values[-1:] + 8.0, np.array([300.0]))

    met_s = times_s[0] + 200.0 / 4.0
    assert times_s[-1] + 2.0 + ahead.exhaustion_s[0] == pytest.approx(met_s, abs=0.01)


def test_a_missing_reading_lets_the_last_forecast_run_on() -> None:
    times_s, values = leak(30.0)
    model = rings((1.0,))
    told(model, times_s, values, limit=300.0)

    ahead = model.current(ONE, times_s[-1] + 2.0, np.array([np.nan]), np.array([300.0]))

    met_s = times_s[0] + 200.0 / 4.0
    assert times_s[-1] + 2.0 + ahead.exhaustion_s[0] == pytest.approx(met_s, abs=0.01)


def test_what_does_not_pass_has_no_exhaustion_in_sight() -> None:
    model = rings((1.0,))
    times_s, values = leak(30.0, slope=0.0)
    told(model, times_s, values, limit=300.0)

    ahead = model.current(ONE, times_s[-1], values[-1:], np.array([300.0]))

    assert [float(part[0]) for part in ahead] == [np.inf, np.inf, np.inf]


def test_a_past_limit_is_exhausted_now() -> None:
    times_s, values = leak(30.0)
    model = rings((1.0,))
    told(model, times_s, values, limit=225.0)

    ahead = model.current(ONE, times_s[-1], np.array([230.0]), np.array([225.0]))

    assert [float(part[0]) for part in ahead] == [0.0, 0.0, 0.0]


def test_teeth_on_top_of_a_leak_bring_the_end_nearer_than_its_floor_says() -> None:
    times_s, values = leak(900.0, slope=0.5)
    teeth = 60.0 * ((times_s % 3.0) / 3.0)

    answers = told(rings((5.0,)), times_s, values + teeth, limit=500.0)

    verdicts = answers[first_pass(answers)]
    met_s = times_s[np.argmax(values + teeth >= 500.0)]
    floor_s = times_s[0] + 400.0 / 0.5
    told_s = verdicts.end_s[0] + verdicts.exhaustion_s[0]
    assert abs(told_s - met_s) < 0.05 * (met_s - verdicts.end_s[0])
    assert verdicts.end_s[0] + verdicts.high_s[0] > floor_s


def test_the_onset_is_where_the_line_leaves_the_level_before() -> None:
    times_s = START_S + 0.25 + np.arange(0.0, 100.0, 0.5)
    onset_s = START_S + 61.0
    values = 100.0 + 4.0 * np.maximum(0.0, times_s - onset_s)

    answers = told(rings(), times_s, values, limit=350.0)

    verdicts = answers[first_pass(answers)]
    assert verdicts.onset_s[0] == pytest.approx(onset_s, abs=2.0)


def test_growth_as_old_as_the_series_began_with_its_oldest_block() -> None:
    times_s, values = leak(40.0)
    answers = told(rings((1.0,)), times_s, values, limit=300.0)

    assert answers[first_pass(answers)].onset_s[0] == pytest.approx(START_S, abs=2.0)


def test_a_ring_that_is_not_full_says_so_and_nothing_else() -> None:
    times_s, values = leak(10.0)
    model = rings((1.0,))
    told(model, times_s, values, limit=300.0)

    verdicts = model.explain(ONE, 1.0, np.array([300.0]))

    assert verdicts.said_yes.tolist() == [0]
    assert not verdicts.passed.any()
    assert np.isnan([verdicts.slope, verdicts.floor, verdicts.exhaustion_s]).all()


def test_a_person_is_told_which_test_said_no() -> None:
    times_s, _ = leak(40.0)
    model = rings((1.0,))
    warm_up = 1000.0 * (1 - np.exp(-(times_s - times_s[0]) / 20.0))
    told(model, times_s, warm_up, limit=1050.0)

    verdicts = model.explain(ONE, 1.0, np.array([1050.0]))

    assert LeakTest(ALL_TESTS) & ~LeakTest(int(verdicts.said_yes[0])) == LeakTest.CONSTANT


def test_too_many_bridged_blocks_are_not_judged() -> None:
    times_s, values = leak(60.0, period_s=2.0)

    answers = told(rings((1.0,)), times_s, values, limit=400.0)

    assert not any(verdicts.passed_now.any() for verdicts in answers)


def test_readings_once_a_block_may_jitter_around_its_edge() -> None:
    draw = np.random.default_rng(4)
    times_s = START_S + np.arange(60.0) + draw.uniform(-0.05, 0.05, 60)
    values = 100.0 + 4.0 * (times_s - times_s[0])

    answers = told(rings((1.0,)), times_s, values, limit=400.0)

    assert times_s[first_pass(answers)] - START_S < 30.0


def test_a_series_without_a_limit_is_never_a_leak() -> None:
    times_s, values = leak(60.0)

    answers = told(rings(), times_s, values, limit=np.nan)

    assert not any(verdicts.passed_now.any() for verdicts in answers)


def test_a_forgotten_row_must_fill_its_ring_again() -> None:
    times_s, values = leak(60.0)
    model = rings((1.0,))
    told(model, times_s[:60], values[:60], limit=400.0)

    model.forget(ONE)
    answers = told(model, times_s[60:], values[60:], limit=400.0)

    assert times_s[60 + first_pass(answers)] - times_s[60] > 24.0


def test_judging_is_the_same_with_and_without_the_cheap_look_first() -> None:
    draw = np.random.default_rng(8)
    count = 300
    model = build(Settings(widths_s=(1.0,)), count)
    slopes = draw.uniform(-1, 3, count)
    limits = draw.uniform(100, 300, count)
    for step in range(70):
        values = 100.0 + slopes * step + draw.normal(size=count)
        advanced = model.learn(slice(None), START_S + step * 0.5, values)
        verdicts = model.judge(advanced, limits)
        if not advanced:
            continue
        everything = model.explain(slice(None), 1.0, limits)
        assert (
            verdicts.rows[verdicts.passed].tolist() == everything.rows[everything.passed].tolist()
        )
        score = model.score(slice(None), limits)[:, 0]
        assert score.tolist() == everything.passed.tolist()
    assert 0 < score.sum() < count


def test_a_row_that_closes_no_block_closes_none_at_wider_widths() -> None:
    model = rings(capacity=2)
    model.learn(slice(None), START_S + 0.1, np.zeros(2))

    same_block = model.learn(slice(None), START_S + 0.2, np.zeros(2))
    one_row = model.learn(slice(None), np.array([START_S + 0.3, START_S + 5.1]), np.zeros(2))

    assert not same_block
    assert [(place, np.arange(2)[rows].tolist()) for place, rows in one_row.closed] == [
        (0, [1]),
        (1, [1]),
    ]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"widths_s": []}, "widths_s"),
        ({"widths_s": [0.0]}, "widths_s"),
        ({"widths_s": [5.0, 1.0]}, "widths_s"),
        ({"widths_s": [2.0, 5.0]}, "widths_s"),
        ({"blocks": 25}, "blocks"),
        ({"blocks": 36}, "blocks"),
        ({"holes_max": 24}, "holes_max"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert(wrong, Settings)


def test_rings_of_other_widths_are_not_loaded() -> None:
    saved = rings((1.0, 10.0)).save()

    with pytest.raises(ValueError, match="10s"):
        rings().load(saved)
