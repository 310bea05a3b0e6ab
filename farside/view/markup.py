"""HTML and SVG that is escaped by construction: only `Html` goes into a page as it is.

Names on a page come from anybody on the machine, so a text that was not made here is never markup.
"""

import html
from collections.abc import Iterable

from runtime.words import plain_text

_VOID = frozenset({"meta", "br", "hr", "line", "rect", "circle", "path", "polyline", "polygon"})


class Html(str):
    """Markup that was made by this module."""

    __slots__ = ()


Child = str | Html | None | Iterable["Child"]


def text(value: str) -> Html:
    """Return text as markup: printable, with nothing in it that a browser would obey."""
    return value if isinstance(value, Html) else Html(html.escape(plain_text(value), quote=True))


def el(tag: str, *children: Child, **attributes: str | float | None) -> Html:
    """Return an element.

    A name that is a word of Python carries an underscore at its end (`class_`), other underscores
    become hyphens; None leaves an attribute out. Numbers are written with at most two decimals.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = join(*children)
    if tag in _VOID and not inner:
        return Html(f"<{tag}{written}/>")
    return Html(f"<{tag}{written}>{inner}</{tag}>")


def join(*children: Child) -> Html:
    """Return pieces one after the other."""
    return Html("".join(_pieces(children)))


def _pieces(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, str):
            yield text(child)
        else:
            yield from _pieces(child)


def _value(value: str | float) -> str:
    if isinstance(value, str):
        # A path of a figure is long; what is cut short elsewhere must not be cut here.
        return html.escape(plain_text(value, max(len(value), 1) * 10), quote=True)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
