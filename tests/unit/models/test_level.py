"""Level and scale beside a plain loop, and what outliers, holes and frozen readings do to them."""

import math

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from models.level import Level, Settings, build, clipped_variance

Floats = NDArray[np.float64]
EVERYTHING = slice(None)


def taught(values: Floats, dt_s: float = 10.0, **given: float) -> Level:
    """A model that has learned (steps, rows) of readings."""
    model = build(msgspec.convert(given, Settings), values.shape[1])
    for step in values:
        model.learn(EVERYTHING, step, dt_s)
    return model


def noise(steps: int, rows: int = 50, seed: int = 1) -> Floats:
    return 100.0 + 5.0 * np.random.default_rng(seed).normal(size=(steps, rows))


def test_it_settles_at_the_mean_and_standard_deviation_of_clean_readings() -> None:
    model = taught(noise(3000))

    assert float(model.level.mean()) == pytest.approx(100.0, abs=0.2)
    assert float(model.scale.mean()) == pytest.approx(5.0, rel=0.03)


def test_it_agrees_with_a_plain_loop() -> None:
    values = noise(200, rows=3) + np.array([0.0, 1000.0, -300.0])
    settings = Settings(tau_s=900.0, young_tau_s=200.0, young_s=500.0)
    model = taught(values, tau_s=900.0, young_tau_s=200.0, young_s=500.0)

    for row in range(3):
        level, scale = plainly(values[:, row].tolist(), settings, dt_s=10.0)
        assert float(model.level[row]) == pytest.approx(level, rel=1e-4)
        assert float(model.scale[row]) == pytest.approx(scale, rel=1e-3)


def plainly(values: list[float], settings: Settings, dt_s: float) -> tuple[float, float]:
    kappa = clipped_variance(settings.clip)
    level, scale, age_s = values[0], 0.0, 0.0
    for count, value in enumerate(values[1:], start=1):
        floor = settings.scale_floor_share * abs(level)
        if count < 8:
            apart = abs(value - level) * math.sqrt(math.pi / 2)
            scale += (apart - scale) / count
            level += (value - level) / (count + 1)
        else:
            share = dt_s / (settings.young_tau_s if age_s < settings.young_s else settings.tau_s)
            psi = min(max((value - level) / scale, -settings.clip), settings.clip)
            level += share * scale * psi
            scale *= 1 + share / 2 * (psi * psi / kappa - 1)
        scale = max(scale, floor)
        age_s += dt_s
    return level, scale


@pytest.mark.parametrize(("clip", "known"), [(2.0, 0.9205), (2.5, 0.97756), (3.0, 0.9950)])
def test_the_variance_of_a_clipped_normal_is_the_integral(clip: float, known: float) -> None:
    inside, _ = integrate.quad(lambda x: x * x * stats.norm.pdf(x), -clip, clip)
    expected = inside + 2 * clip * clip * stats.norm.sf(clip)

    assert clipped_variance(clip) == pytest.approx(expected, abs=1e-9)
    assert clipped_variance(clip) == pytest.approx(known, abs=1e-4)


def test_a_reading_is_scored_in_scales_above_the_level() -> None:
    model = taught(noise(3000))

    z = model.score(EVERYTHING, model.level + 3.0 * model.scale)

    np.testing.assert_allclose(z, 3.0, rtol=1e-3)


def test_what_is_missing_or_hardly_known_has_no_score() -> None:
    model = taught(noise(7, rows=2))
    assert np.isnan(model.score(EVERYTHING, np.full(2, 100.0))).all()

    model.learn(EVERYTHING, np.full(2, 100.0), 10.0)

    assert np.isnan(model.score(EVERYTHING, np.array([100.0, np.nan]))).tolist() == [False, True]


def test_a_monstrous_reading_moves_the_level_by_a_share_of_its_scale_only() -> None:
    model = taught(noise(3000))
    before, scale = model.level.copy(), model.scale.copy()

    model.learn(EVERYTHING, np.full(50, 1e6), 10.0)

    share = 10.0 / 3600.0
    np.testing.assert_allclose(model.level - before, 2.5 * share * scale, rtol=0.01)


def test_frozen_rows_are_not_learned_from() -> None:
    model = taught(noise(100))
    before = model.save()
    frozen = np.arange(50) < 20

    model.learn(EVERYTHING, np.full(50, 200.0), 10.0, frozen)

    after = model.save()
    unchanged = np.logical_and.reduce([after[name] == before[name] for name in before])
    assert unchanged.tolist() == frozen.tolist()


def test_a_young_series_learns_faster() -> None:
    old, young = taught(noise(3000)), taught(noise(30))
    shift = 110.0

    for model in (old, young):
        for _ in range(30):
            model.learn(EVERYTHING, np.full(50, shift), 10.0)

    assert float(young.level.mean()) > float(old.level.mean()) + 1.0


def test_a_constant_series_keeps_a_scale_and_never_scores() -> None:
    model = taught(np.full((500, 2), 64.0))

    assert model.scale.tolist() == pytest.approx([0.064, 0.064])
    assert model.score(EVERYTHING, np.full(2, 64.0)).tolist() == [0.0, 0.0]


def test_a_long_pause_does_not_let_one_reading_decide() -> None:
    model = taught(noise(3000))
    before, scale = model.level.copy(), model.scale.copy()

    model.learn(EVERYTHING, np.full(50, 1e6), 1e9)

    np.testing.assert_allclose(model.level - before, 2.5 * 0.25 * scale, rtol=0.01)


@pytest.mark.parametrize(
    "field", ["tau_s", "young_tau_s", "young_s", "clip", "scale_floor_share", "scale_floor"]
)
def test_a_wrong_setting_is_refused_by_name(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: -1.0}, Settings)
