from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farside.view.markup import el
from farside.view.plots import (
    CHAR_WIDTH,
    Mark,
    Scale,
    byte_ticks,
    marks,
    runs,
    thinned,
    time_ticks,
)
from farside.view.series import Series
from runtime.clock import Instant

S = 1_000_000_000
START = int(Instant.parse("2026-03-14T09:26:03.5Z"))


@pytest.mark.parametrize(
    ("span_s", "labels"),
    [
        (40, ["09:26:05", "09:26:10", "09:26:15", "09:26:20", "09:26:25", "09:26:30", "09:26:35",
              "09:26:40"]),
        (600, ["09:28", "09:30", "09:32", "09:34", "09:36"]),
        (3 * 86_400, ["12:00", "2026-03-15", "12:00", "2026-03-16", "12:00", "2026-03-17"]),
        (20 * 86_400, ["2026-03-17", "2026-03-20", "2026-03-23", "2026-03-26", "2026-03-29",
                       "2026-04-01"]),
    ],
)  # fmt: skip
def test_times_on_an_axis_are_round_in_every_span(span_s: int, labels: list[str]) -> None:
    assert [tick.label for tick in time_ticks(START, START + span_s * S)] == labels


@pytest.mark.parametrize(
    ("high", "labels"),
    [
        (240 * 2**20, ["0", "50 MiB", "100 MiB", "150 MiB", "200 MiB"]),
        (1.6 * 2**30, ["0", "0.5 GiB", "1 GiB", "1.5 GiB"]),
        (0, ["0"]),
        (64 * 2**30, ["0", "20 GiB", "40 GiB", "60 GiB"]),
    ],
)
def test_sizes_on_an_axis_are_round_and_share_a_unit(high: float, labels: list[str]) -> None:
    assert [tick.label for tick in byte_ticks(high)] == labels


@given(st.floats(1e-3, 1e18))
def test_an_axis_of_any_size_has_few_ticks_that_rise(high: float) -> None:
    ticks = [tick.value for tick in byte_ticks(high)]
    assert 2 <= len(ticks) <= 7
    assert all(low < up for low, up in pairwise(ticks))
    assert ticks[-1] <= high * 1.001


@given(st.integers(1, 400 * 86_400 * S))
def test_an_axis_of_any_time_has_few_ticks_inside(span_ns: int) -> None:
    ticks = time_ticks(START, START + span_ns)
    assert len(ticks) <= 9
    assert all(START <= tick.value <= START + span_ns for tick in ticks)


def test_a_gap_in_the_readings_breaks_the_line() -> None:
    points = [(i * S, 1.0) for i in (*range(10), *range(40, 50))]
    assert [len(run) for run in runs(points)] == [10, 10]


def series_of(count: int, points_max: int) -> Series:
    series = Series(points_max)
    for i in range(count):
        series.add(i * S, float(i * 7919 % 1009))
    return series


@given(st.integers(2, 20_000), st.integers(8, 400))
def test_no_point_of_a_thinned_series_is_left_without_a_line(count: int, points_max: int) -> None:
    assert all(len(run) > 1 for run in runs(list(series_of(count, points_max))))


@given(st.integers(64, 400), st.floats(0, 1))
def test_a_series_that_was_thinned_evenly_has_no_gap(points_max: int, share: float) -> None:
    count = 1 + int(share * points_max**2 / 8)
    assert len(runs(list(series_of(count, points_max)))) == 1


def test_thinning_keeps_peaks_and_floors() -> None:
    points = [(i, float(i % 50 == 7) - float(i % 50 == 9)) for i in range(5000)]
    kept = thinned(points, 100)
    assert len(kept) <= 200
    assert sum(value == 1.0 for _, value in kept) == 100
    assert sum(value == -1.0 for _, value in kept) == 100


@given(
    st.lists(st.tuples(st.integers(0, 100), st.sampled_from(["frozen", "incident", "it began"])))
)
def test_words_beside_marks_never_cover_each_other(events: list[tuple[int, str]]) -> None:
    drawn = marks(
        [Mark(at, words, "info") for at, words in events], Scale(0, 100, 0, 700), 90, 300, 4
    )
    boxes: dict[str, list[tuple[float, float]]] = {}
    for piece in drawn.split("<text")[1:]:
        x = float(piece.split('x="')[1].split('"')[0])
        row = piece.split(' y="')[1].split('"')[0]
        width = len(piece.split(">")[1].split("<")[0]) * CHAR_WIDTH
        boxes.setdefault(row, []).append((x, x + width) if "start" in piece else (x - width, x))
    for spans in boxes.values():
        assert all(low[1] <= up[0] for low, up in pairwise(sorted(spans)))


def test_an_element_escapes_what_it_is_given() -> None:
    assert (
        el("p", "<b>&\x1b", el("br"), title='"x', class_="a", data_n=1.50)
        == '<p title="&quot;x" class="a" data-n="1.5">&lt;b&gt;&amp;\\x1b<br/></p>'
    )
