"""Silence: a node that stops is missed in time, a node that is only ragged is not."""

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from models.silence import Settings, Silence, build

ONE = np.array([0])
SUSPECT_PHI = 8.0


def heard(beats_s: NDArray[np.float64]) -> Silence:
    model = build(Settings(), 1)
    for beat_s in beats_s:
        model.learn(ONE, float(beat_s))
    return model


def missed_after_s(model: Silence) -> float:
    """How long after the last beat phi reaches the suspect level."""
    waits_s = np.arange(0.0, 60.0, 0.05)
    phi = [float(model.score(ONE, float(model.last_s[0]) + wait_s)[0]) for wait_s in waits_s]
    return float(waits_s[np.argmax(np.array(phi) >= SUSPECT_PHI)])


def steady(beats: int = 300, period_s: float = 1.0) -> NDArray[np.float64]:
    return np.asarray(1.7e9 + np.arange(beats) * period_s, dtype=np.float64)


def test_a_steady_node_is_missed_about_ten_seconds_after_its_last_beat() -> None:
    assert 8.0 < missed_after_s(heard(steady())) < 10.0


@pytest.mark.parametrize("seed", range(5))
def test_a_ragged_node_is_missed_within_twelve_seconds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    beats_s = steady() + draw.uniform(-0.4, 0.4, 300)
    late = draw.random(300) < 0.1
    beats_s = np.sort(beats_s + late * draw.uniform(0, 4, 300))

    assert 8.0 < missed_after_s(heard(beats_s)) < 12.0


def test_a_node_of_which_one_beat_was_heard_is_missed_in_time() -> None:
    assert 8.0 < missed_after_s(heard(steady(beats=1))) < 12.0


def test_a_stall_of_four_seconds_is_no_silence() -> None:
    model = heard(steady())

    assert model.score(ONE, float(model.last_s[0]) + 4.0)[0] < 1.0


def test_phi_is_about_the_normal_tail() -> None:
    model = heard(steady())
    waits_s = np.array([5.5, 6.0, 6.5, 7.0, 8.0])

    phi = [float(model.score(ONE, float(model.last_s[0]) + wait_s)[0]) for wait_s in waits_s]

    exact = -stats.norm.logsf(waits_s, loc=1.0 + 5.0, scale=0.5) / np.log(10.0)
    np.testing.assert_allclose(phi, exact, rtol=0.06, atol=0.02)


def test_phi_stays_finite_however_long_the_silence() -> None:
    model = heard(steady())

    assert np.isfinite(model.score(ONE, 4e9)[0])
    assert float(model.score(ONE, float(model.last_s[0]) - 1e6)[0]) == 0.0


def test_a_node_that_was_never_heard_has_no_phi() -> None:
    assert np.isnan(build(Settings(), 1).score(ONE, 1.7e9)[0])


def test_a_reboot_does_not_teach_patience() -> None:
    beats_s = steady()
    back_s = np.concatenate([beats_s, beats_s[:20] + 300.0 + 900.0])

    assert missed_after_s(heard(back_s)) == missed_after_s(heard(beats_s))


def test_a_node_that_now_speaks_every_thirty_seconds_is_understood() -> None:
    slower_s = steady()[-1] + 30.0 * np.arange(1, 40)
    model = heard(np.concatenate([steady(), slower_s]))

    assert 30.0 < missed_after_s(model) < 50.0


def test_a_beat_that_is_not_newer_is_no_beat() -> None:
    model, repeated = heard(steady()), heard(np.repeat(steady(), 2))

    assert repeated.save()["mean_s"].tobytes() == model.save()["mean_s"].tobytes()


def test_pauses_are_learned_as_by_a_plain_loop() -> None:
    draw = np.random.default_rng(2)
    pauses_s = draw.uniform(0.5, 2.0, 500)
    model = heard(1.7e9 + np.concatenate([[0.0], np.cumsum(pauses_s)]))

    mean_s, variance = 1.0, 0.0
    for count, pause_s in enumerate(pauses_s):
        share = 1 / min(count + 1, 200)
        step = pause_s - mean_s
        mean_s += share * step
        variance = (1 - share) * (variance + share * step * step)

    assert float(model.mean_s[0]) == pytest.approx(mean_s, rel=1e-6)
    assert float(model.variance[0]) == pytest.approx(variance, rel=1e-5)


@pytest.mark.parametrize(
    "field",
    [
        "window",
        "sd_floor_s",
        "acceptable_pause_s",
        "usual_pause_s",
        "silence_phi",
        "silences_in_a_row",
    ],
)
def test_a_wrong_setting_is_refused_by_name(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: 0}, Settings)
