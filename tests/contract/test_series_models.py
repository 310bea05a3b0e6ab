"""Every model of series that is found in models/ keeps these promises.

A new file with `Settings` and `build` is judged without a change here: its methods are fed by the
names of their parameters (the vocabulary of models/base.py).
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import models
from models.base import Indices, Rows, State

ROWS = 7
STEPS = 90
PERIOD_S = 0.7
EVERYTHING = slice(None)


def found() -> list[str]:
    names = (module.name for module in pkgutil.iter_modules(models.__path__))
    return [name for name in names if hasattr(importlib.import_module(f"models.{name}"), "build")]


class Feed:
    """Readings of ROWS series: steady, noisy, growing, stepping, with holes and odd values."""

    def __init__(self, seed: int = 3) -> None:
        draw = np.random.default_rng(seed)
        self.time_s = 1.7e9 + np.arange(STEPS)[:, None] * PERIOD_S + draw.random((STEPS, ROWS)) / 4
        steps = np.arange(STEPS)[:, None]
        slopes = np.array([0.0, 0.0, 3.0, 1.0, 0.0, -1.0, 2.0])
        noise = draw.normal(size=(STEPS, ROWS)) * np.array([0, 1, 0.1, 2, 0, 1, 0.5])
        self.values = 100.0 + slopes * steps + noise
        self.values[40:, 4] += 50.0
        self.values[draw.random((STEPS, ROWS)) < 0.05] = np.nan
        self.limits = np.full(ROWS, 500.0)

    def given(self, step: int, rows: Rows) -> dict[str, Any]:
        numbers = np.arange(ROWS)[rows]
        return {
            "rows": rows,
            "values": self.values[step, numbers].copy(),
            "time_s": self.time_s[step, numbers].copy(),
            "dt_s": np.full(len(numbers), PERIOD_S),
            "frozen": np.zeros(len(numbers), dtype=np.bool_),
            "limits": self.limits.copy(),
            "now_s": float(self.time_s[step].max()) + 20.0,
        }


def call(method: Callable[..., Any], given: dict[str, Any]) -> Any:  # noqa: ANN401
    """Call with what the method asks for by name."""
    return method(**{name: given[name] for name in inspect.signature(method).parameters})


class Judged:
    """One model under test, fed step by step."""

    def __init__(self, name: str, capacity: int = ROWS) -> None:
        module = importlib.import_module(f"models.{name}")
        self.model = module.build(module.Settings(), capacity)

    def learn(self, feed: Feed, steps: range, rows: Rows = EVERYTHING) -> "Judged":
        for step in steps:
            call(self.model.learn, feed.given(step, rows))
        return self

    def score(self, feed: Feed, step: int = STEPS - 1, rows: Rows = EVERYTHING) -> NDArray[Any]:
        return np.asarray(call(self.model.score, feed.given(step, rows)))

    def state(self) -> dict[str, bytes]:
        return {name: column.tobytes() for name, column in self.model.save().items()}

    def rows(self, rows: Indices) -> dict[str, bytes]:
        return {name: column[..., rows].tobytes() for name, column in self.model.save().items()}


@pytest.fixture(params=found())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


ALL = range(STEPS)
HALF = range(STEPS // 2)
REST = range(STEPS // 2, STEPS)


def test_the_models_of_the_first_release_are_found() -> None:
    assert {"floors", "level", "silence"} <= set(found())


def test_scoring_changes_nothing(name: str) -> None:
    judged = Judged(name).learn(Feed(), ALL)
    before = judged.state()

    judged.score(Feed())

    assert judged.state() == before


def test_learning_keeps_no_reference_to_what_it_was_given(name: str) -> None:
    judged, feed = Judged(name), Feed()
    for step in ALL:
        given = feed.given(step, EVERYTHING)
        call(judged.model.learn, given)
        for array in given.values():
            if isinstance(array, np.ndarray):
                array[...] = 0

    assert judged.state() == Judged(name).learn(feed, ALL).state()


def test_what_is_given_is_not_changed(name: str) -> None:
    judged, feed = Judged(name).learn(Feed(), HALF), Feed()
    given, kept = feed.given(50, EVERYTHING), feed.given(50, EVERYTHING)

    call(judged.model.learn, given)
    call(judged.model.score, given)

    for key, value in kept.items():
        np.testing.assert_array_equal(given[key], value)


def test_state_round_trips_and_has_the_same_future(name: str) -> None:
    feed = Feed()
    original = Judged(name).learn(feed, HALF)
    restored = Judged(name, capacity=1)

    restored.model.load(original.model.save())

    assert restored.state() == original.state()
    assert restored.learn(feed, REST).state() == original.learn(feed, REST).state()
    np.testing.assert_array_equal(restored.score(feed), original.score(feed))


def test_what_was_saved_is_a_copy(name: str) -> None:
    feed = Feed()
    judged = Judged(name).learn(feed, HALF)
    saved = judged.model.save()
    before = judged.state()

    judged.learn(feed, REST)
    kept = {key: column.tobytes() for key, column in saved.items()}
    judged.model.load(saved)
    for column in saved.values():
        column[...] = 0

    assert kept == before
    assert judged.state() == before


def test_memory_is_what_it_says_and_does_not_grow(name: str) -> None:
    capacity = 1000
    judged = Judged(name, capacity)
    stated = judged.model.bytes_per_row * capacity

    judged.learn(Feed(), ALL, slice(0, ROWS))

    assert sum(column.nbytes for column in judged.model.save().values()) == stated
    assert stated <= 1024 * capacity


def test_a_fresh_model_scores(name: str) -> None:
    scores = Judged(name).score(Feed())

    assert len(scores) == ROWS
    assert not np.nan_to_num(scores).any()


def test_missing_and_monstrous_readings_are_passed_over(name: str) -> None:
    feed, broken = Feed(), Feed()
    for step, odd in enumerate([np.nan, np.inf, -np.inf, 1e300, -1e300, 3e38], start=30):
        feed.values[step, 2] = np.nan
        broken.values[step, 2] = odd

    assert Judged(name).learn(broken, ALL).state() == Judged(name).learn(feed, ALL).state()


def test_a_long_gap_is_survived(name: str) -> None:
    feed = Feed()
    feed.time_s[STEPS // 2 :] += 86_400.0

    scores = Judged(name).learn(feed, ALL).score(feed)

    assert not np.isinf(scores.astype(np.float64)).any()


def test_the_same_input_gives_the_same_answer(name: str) -> None:
    once, again = Judged(name).learn(Feed(), ALL), Judged(name).learn(Feed(), ALL)

    assert once.state() == again.state()
    assert once.score(Feed()).tobytes() == again.score(Feed()).tobytes()


def test_many_rows_at_once_are_one_row_many_times(name: str) -> None:
    feed = Feed()
    together, apart = Judged(name).learn(feed, ALL), Judged(name)
    for row in range(ROWS):
        apart.learn(feed, ALL, np.array([row]))

    assert apart.state() == together.state()
    each = [apart.score(feed, rows=np.array([row])) for row in range(ROWS)]
    np.testing.assert_array_equal(np.concatenate(each), together.score(feed))


def test_a_slice_and_row_numbers_mean_the_same(name: str) -> None:
    feed = Feed()
    sliced = Judged(name).learn(feed, ALL, slice(1, 6))
    numbered = Judged(name).learn(feed, ALL, np.arange(1, 6))
    shuffled = Judged(name).learn(feed, ALL, np.array([3, 1, 5, 2, 4]))

    assert sliced.state() == numbered.state() == shuffled.state()


def test_a_forgotten_row_is_a_fresh_one_and_the_others_know_what_they_knew(name: str) -> None:
    feed = Feed()
    judged = Judged(name).learn(feed, HALF)
    others = np.array([0, 1, 3, 4, 5, 6])
    before = judged.rows(others)

    judged.model.forget(np.array([2]))

    assert judged.rows(others) == before
    assert judged.rows(np.array([2])) == Judged(name).rows(np.array([2]))
    assert judged.learn(feed, REST).rows(np.array([2])) == Judged(name).learn(feed, REST).rows(
        np.array([2])
    )


def test_room_is_made_without_touching_what_is_known(name: str) -> None:
    feed = Feed()
    judged = Judged(name, capacity=3).learn(feed, HALF, slice(0, 3))

    judged.model.grow(ROWS)
    judged.model.grow(2)

    assert judged.model.capacity == ROWS
    whole = Judged(name).learn(feed, HALF, slice(0, 3))
    assert judged.state() == whole.state()
    assert judged.learn(feed, REST).state() == whole.learn(feed, REST).state()


def without_a_column(state: State) -> None:
    state.popitem()


def with_a_strange_column(state: State) -> None:
    state["strange"] = np.zeros(ROWS)


def with_a_short_column(state: State) -> None:
    name = min(state)
    state[name] = state[name][..., :-1]


def with_another_element_type(state: State) -> None:
    name = min(state)
    state[name] = state[name].astype(np.complex128)


@pytest.mark.parametrize(
    "spoil",
    [without_a_column, with_a_strange_column, with_a_short_column, with_another_element_type],
)
def test_state_that_does_not_fit_is_refused_whole(
    name: str, spoil: Callable[[State], None]
) -> None:
    judged = Judged(name).learn(Feed(), ALL)
    before = judged.state()
    saved = Judged(name).learn(Feed(), HALF).model.save()
    spoil(saved)

    with pytest.raises(ValueError, match="saved"):
        judged.model.load(saved)

    assert judged.state() == before


def test_unknown_settings_are_refused(name: str) -> None:
    settings = importlib.import_module(f"models.{name}").Settings

    with pytest.raises(msgspec.ValidationError, match="nonsense"):
        msgspec.convert({"nonsense": 1}, settings)
