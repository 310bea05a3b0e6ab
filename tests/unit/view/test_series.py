import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farside.view.series import Point, Series, shape_words

S = 1_000_000_000
MB = 1_000_000


def line(values: list[float], step_s: int = 1) -> list[Point]:
    return [(i * step_s * S, value) for i, value in enumerate(values)]


def filled(values: list[float], points_max: int = 1000) -> Series:
    series = Series(points_max)
    for at, value in line(values):
        series.add(at, value)
    return series


def test_growth_is_told_over_the_span_that_was_asked_for() -> None:
    series = filled([0.0] * 30 + [float(i) for i in range(31)])
    assert series.growth(5) == 1.0
    assert series.growth(60) == pytest.approx(0.5)


def test_growth_of_a_series_too_short_for_half_the_span_is_not_known() -> None:
    assert filled([1.0, 2.0]).growth(5) is None
    assert filled([1.0, 2.0, 3.0, 4.0]).growth(5) == 1.0
    assert filled([1.0]).growth(1) is None


def test_a_reading_that_is_late_repeated_or_no_number_is_passed_over() -> None:
    series = filled([1.0, 2.0])
    series.add(1 * S, 9.0)
    series.add(0, 9.0)
    series.add(5 * S, math.nan)
    assert list(series) == [(0, 1.0), (S, 2.0)]


@given(st.lists(st.floats(0, 1e12), min_size=200, max_size=400), st.integers(8, 64))
def test_a_thinned_series_stays_in_bounds_and_keeps_its_lowest_and_highest_point(
    values: list[float], points_max: int
) -> None:
    series = filled(values, points_max)
    kept = [value for _, value in series]
    assert len(series) <= points_max
    assert (min(kept), max(kept)) == (min(values), max(values))
    assert series.newest == ((len(values) - 1) * S, values[-1])


def test_a_series_is_thinned_evenly_over_its_time() -> None:
    series = filled([float(i) for i in range(4000)], 400)
    half = [at for at, _ in series if at < 2000 * S]
    assert 200 < len(series) <= 400
    assert len(half) == pytest.approx(len(series) / 2, rel=0.25)
    assert series.growth(5) == 1.0


def test_what_is_older_than_asked_is_forgotten() -> None:
    series = filled([float(i) for i in range(300)])
    series.drop_before(200 * S)
    assert series.first_ns == 200 * S
    series.drop_before(1000 * S)
    assert len(series) == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([50 * MB] * 60, "steady"),
        ([50 * MB + 0.2 * MB * math.sin(i) for i in range(60)], "steady"),
        ([30 * MB + 200 * MB * (i % 12) / 12 for i in range(60)], "grew and fell back 4 times"),
        ([30 * MB + 3 * MB * i for i in range(60)], "grew by 169 MiB and kept growing"),
        (
            [30 * MB - 200 * MB * math.expm1(-i / 8) for i in range(90)],
            "grew by 191 MiB, then levelled off",
        ),
        ([200 * MB - 2 * MB * i for i in range(3)], "too few readings to describe"),
        ([200.0 * MB] * 30 + [40.0 * MB] * 30, "fell back once, by up to 153 MiB"),
    ],
)
def test_what_memory_did_is_described_from_the_numbers_alone(
    values: list[float], words: str
) -> None:
    assert shape_words(line(values)) == words


def test_growth_in_file_pages_alone_is_told_apart() -> None:
    pages = [9.0 * MB * i for i in range(60)]
    assert (
        shape_words(line([28.0 * MB] * 60), line(pages))
        == "steady; only its file pages grew, by 506 MiB"
    )
    growing = [28.0 * MB + 3 * MB * i for i in range(60)]
    assert shape_words(line(growing), line(pages)).endswith("file pages grew by 506 MiB")
