import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.words import (
    bytes_text,
    duration_text,
    estimate_text,
    interval_text,
    plain_text,
    quantity_text,
    rate_text,
    share_text,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (214e6, "204 MiB"),
        (1010 * 2**20, "1.0 GiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (63.6 * 2**30, "64 GiB"),
        (5e24, "4,336,809 EiB"),
        (-3 * 2**20, "\u22123.0 MiB"),
        (-0.2, "0 B"),
        (math.inf, "no limit"),
        (math.nan, "unknown"),
        (None, "unknown"),
    ],
)
def test_a_size_is_told_in_binary_units(size: float | None, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (3.2e6, "3.1 MiB/s"),
        (-3.2e6, "\u22123.1 MiB/s"),
        (0, "0 B/s"),
        (300, "1.0 MiB/h"),
        (0.2, "17 KiB/day"),
        (math.nan, "unknown"),
    ],
)
def test_a_growth_is_told_per_second_or_in_a_span_in_which_it_matters(
    rate: float, text: str
) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 s"),
        (0.0001, "under 1 ms"),
        (0.004, "4 ms"),
        (0.4, "0.4 s"),
        (1.0, "1 s"),
        (1.5, "1.5 s"),
        (7.3, "7 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (150, "2 min 30 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (100_000, "27 h 47 min"),
        (3.5 * 86_400, "3 d 12 h"),
        (3.999 * 86_400, "4 d"),
        (3650 * 86_400, "10 years"),
        (-90, "\u221290 s"),
        (math.inf, "for ever"),
        (None, "unknown"),
    ],
)
def test_a_duration_is_told_in_at_most_two_units(duration: float | None, text: str) -> None:
    assert duration_text(duration) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (6, 9, "6\u20139 s"),
        (6.2, 6.4, "6 s"),
        (0.5, 1.5, "0.5\u20131.5 s"),
        (50, 150, "50 s \u2013 2 min 30 s"),
        (150, 200, "2 min 30 s \u2013 3 min 20 s"),
        (120, 180, "2\u20133 min"),
        (50, math.inf, "50 s or more"),
        (50, 3650 * 86_400, "50 s or more"),
        (-3, 4, "\u22123\u20134 s"),
    ],
)
def test_a_range_of_durations_names_a_shared_unit_once(low: float, high: float, text: str) -> None:
    assert interval_text(low, high) == text


def test_an_estimate_names_its_range_unless_both_read_the_same() -> None:
    assert estimate_text(7.3, 6.1, 9.4) == "7 s (6\u20139 s)"
    assert estimate_text(3.1, 2.9, 3.3) == "3 s"
    assert estimate_text(-1, -2, 4) == "0 s (0\u20134 s)"


def test_a_share_is_told_in_percent() -> None:
    assert [share_text(share) for share in (0.853, 0.004, 1, 0, math.nan)] == [
        "85 %", "0.4 %", "100 %", "0 %", "unknown",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (214e6, "bytes", "204 MiB"),
        (7.3, "seconds", "7 s"),
        (12.5, "percent", "12 %"),
        (1234.0, "pages", "1,234 pages"),
        (3.0, "count", "3"),
        (0.12345, "count", "0.123"),
        (math.inf, "count", "inf"),
        (None, "count", "unknown"),
    ],
)
def test_a_value_is_told_in_the_unit_of_its_signal(
    value: float | None, unit: str, text: str
) -> None:
    assert quantity_text(value, unit) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python3 -m train", "python3 -m train"),
        ("Zug nach Z\u00fcrich \u2192 \u4e2d", "Zug nach Z\u00fcrich \u2192 \u4e2d"),
        ("\x1b[2J\x07evil\n", "\\x1b[2J\\x07evil\\x0a"),
        ("exe.\u202etxt", "exe.\\u202etxt"),
        ("\udcff\U000e0001", "\\udcff\\U000e0001"),
        ("x" * 5000, "x" * 1999 + "\u2026"),
    ],
)
def test_a_name_from_anybody_can_neither_move_the_cursor_nor_turn_the_writing(
    text: str, shown: str
) -> None:
    assert plain_text(text) == shown


@given(st.floats())
def test_any_number_at_all_has_words(number: float) -> None:
    for words in (bytes_text, rate_text, duration_text, share_text):
        assert words(number)
    assert interval_text(number, number)
    assert quantity_text(number, "count")


@given(st.text())
def test_whatever_a_name_holds_it_is_printable(text: str) -> None:
    assert plain_text(text).isprintable()
