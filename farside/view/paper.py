"""The sheet that pages are written on: its head, style and foot, and parts that all pages share.

No script and no network: style and figures are inside. It reads in light, in dark and on paper.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from farside.view.figures import Span, beside_figure, limit_of
from farside.view.markup import Child, Html, el
from farside.view.series import shape_words
from farside.view.things import Curve
from runtime.clock import Instant
from runtime.words import bytes_text


def page(title: str, *parts: Child) -> str:
    """Return a whole page as text."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        # Nothing may be fetched and nothing may run, whatever a name on this page holds.
        el(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'",
        ),
        el("title", f"{title} - farside"),
        el("style", Html(_style())),
    )
    return "<!doctype html>\n" + el("html", head, el("body", el("main", *parts)), lang="en") + "\n"


@cache
def _style() -> str:
    return files("farside.view").joinpath("page.css").read_text("utf-8")


def small(curve: Curve, span: Span, act: Instant | None = None) -> Html:
    """Return a small figure with its name and what its numbers did."""
    words = shape_words(span.inside(curve.held), span.inside(curve.file))
    limit = limit_of(curve, span)
    figure = beside_figure(curve, span, act)
    if limit is not None and 'class="limit"' not in figure:
        words += f"; its limit, {bytes_text(limit)}, is far above"
    kind = "the whole node: " if curve.scope.kind == "node" else ""
    return el("figure", el("figcaption", el("b", curve.name), kind + words), figure)


def listed(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Return names and values in two columns."""
    return el("dl", ((el("dt", name), el("dd", value)) for name, value in pairs), class_="pairs")


def foot(versions: Mapping[str, str] | None, *parts: Child) -> Html:
    """Return what made the page, and raw identifiers below."""
    ran = {"farside": _own_version(), **(versions or {})}
    words = ", ".join(f"{name} {number}" for name, number in ran.items() if number)
    return el("footer", f"Made by {words}.", *parts)


def _own_version() -> str:
    try:
        return version("farside")
    except PackageNotFoundError:
        return ""


def clock(moment: Instant) -> str:
    """Return the time of day in UTC."""
    return moment.text()[11:19]
