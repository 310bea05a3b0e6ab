"""Quantities in words for people: sizes, durations, rates, the same in every sentence and table.

Two or three digits are kept, because nobody reads more at a glance; exact figures are in the
records. What is not known (None or NaN) is called "unknown", never zero.
"""

import math

UNKNOWN = "unknown"
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
_DASH = "\u2013"  # the en dash between the ends of a range
_MINUS = "\u2212"


def bytes_text(size_bytes: float | None) -> str:
    """Return a size in binary units: 214e6 is "204 MiB", 1.5 * 2**30 is "1.5 GiB"."""
    if size_bytes is None or math.isnan(size_bytes):
        return UNKNOWN
    if math.isinf(size_bytes):
        return "no limit" if size_bytes > 0 else UNKNOWN
    sign = _MINUS if size_bytes < 0 else ""
    size, unit = abs(size_bytes), 0
    # 999.5 of one unit would be printed with four digits: it belongs to the next one.
    while size >= 999.5 and unit < len(_SIZES) - 1:
        size /= 1024
        unit += 1
    digits = 1 if unit and size < 9.95 else 0
    number = f"{size:,.{digits}f}"
    return f"{'' if float(number.replace(',', '')) == 0 else sign}{number} {_SIZES[unit]}"


def rate_text(bytes_per_s: float | None) -> str:
    """Return a growth: 3.2e6 is "3.1 MiB/s"; a shrinking one carries a minus sign.

    What is slower than a KiB a second is told per hour, or per day.
    """
    if bytes_per_s is None or not math.isfinite(bytes_per_s):
        return UNKNOWN
    if bytes_per_s == 0 or abs(bytes_per_s) >= 1024:
        return f"{bytes_text(bytes_per_s)}/s"
    per_hour = bytes_per_s * _HOUR_S
    if abs(per_hour) >= 1024:
        return f"{bytes_text(per_hour)}/h"
    return f"{bytes_text(bytes_per_s * _DAY_S)}/day"


def duration_text(duration_s: float | None) -> str:
    """Return a duration: 7.3 is "7 s", 150 is "2 min 30 s", 7,500 is "2 h 5 min".

    One decimal below two seconds; milliseconds below a tenth of one; minutes from two on.
    """
    if duration_s is None or math.isnan(duration_s):
        return UNKNOWN
    if math.isinf(duration_s):
        return "for ever" if duration_s > 0 else UNKNOWN
    text = _duration_text(abs(duration_s))
    return _MINUS + text if duration_s < 0 else text


def interval_text(low_s: float | None, high_s: float | None) -> str:
    """Return a range of durations, the unit once where both share it: (6, 9) is "6\u20139 s"."""
    low, high = duration_text(low_s), duration_text(high_s)
    if high_s is not None and (math.isinf(high_s) or high_s >= 5 * _YEAR_S):
        return f"{low} or more"
    if low == high:
        return low
    (low_number, _, low_unit), (high_number, _, high_unit) = low.partition(" "), high.partition(" ")
    if low_unit == high_unit and low_number.lstrip(_MINUS).replace(".", "").isdigit():
        return f"{low_number}{_DASH}{high_number} {high_unit}"
    return f"{low} {_DASH} {high}"


def estimate_text(best_s: float, low_s: float, high_s: float) -> str:
    """Return an estimate with its range: (7, 6, 9) is "7 s (6\u20139 s)"; alone where they agree.

    What is past counts as now.
    """
    best = duration_text(max(best_s, 0.0))
    between = interval_text(max(low_s, 0.0), max(high_s, 0.0))
    return best if between == best else f"{best} ({between})"


def share_text(share: float | None) -> str:
    """Return a share of one in percent: 0.853 is "85 %"; a small one keeps a decimal."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    percent = 100 * share
    small = 0 < abs(percent) < 9.95 and round(percent, 1) != round(percent)
    return f"{percent:.{1 if small else 0}f} %"


def quantity_text(value: float | None, unit: str) -> str:
    """Return a value of a signal in its unit (the units of `bus/signals.toml`)."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if unit == "bytes":
        return bytes_text(value)
    if unit == "seconds":
        return duration_text(value)
    if unit == "percent":
        return share_text(value / 100)
    number = f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
    return f"{number} {unit}" if unit == "pages" else number


def _duration_text(duration_s: float) -> str:
    if duration_s < 1.95:
        return _short_text(duration_s)
    whole_s = round(duration_s)
    if whole_s < 2 * _MINUTE_S:
        return f"{whole_s} s"
    if whole_s < _HOUR_S:
        return _two(whole_s, _MINUTE_S, "min", 1, "s")
    if duration_s < 2 * _DAY_S:
        return _two(_rounded(duration_s, _MINUTE_S), _HOUR_S, "h", _MINUTE_S, "min")
    if duration_s < _YEAR_S:
        return _two(_rounded(duration_s, _HOUR_S), _DAY_S, "d", _HOUR_S, "h")
    years = duration_s / _YEAR_S
    return "1 year" if years < 1.5 else f"{years:,.0f} years"


def _short_text(duration_s: float) -> str:
    if duration_s == 0:
        return "0 s"
    if duration_s < 0.0005:
        return "under 1 ms"
    if duration_s < 0.0995:
        return f"{duration_s * 1000:.0f} ms"
    return f"{duration_s:.1f}".removesuffix(".0") + " s"


def plain_text(text: str, chars_max: int = 2000) -> str:
    r"""Return text that is safe to print: what moves a cursor or turns the writing is spelled out.

    Names come from anybody on the machine. Escape sequences, line ends, marks that change the
    direction of writing and lone surrogates become their code, as in "\x1b"; a blank stays one.
    Longer text is cut at `chars_max` characters, and shows that it was.
    """
    shown = text if text.isprintable() else "".join(map(_plain_char, text))
    return shown if len(shown) <= chars_max else shown[: chars_max - 1] + "\u2026"


def _rounded(duration_s: float, unit_s: int) -> int:
    return round(duration_s / unit_s) * unit_s


def _two(whole_s: int, large_s: int, large: str, small_s: int, small: str) -> str:
    """Return a duration in two units, the smaller one only where it is not zero."""
    count, rest_s = divmod(whole_s, large_s)
    rest = rest_s // small_s
    return f"{count} {large} {rest} {small}" if rest else f"{count} {large}"


def _plain_char(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
