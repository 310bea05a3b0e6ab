"""What a type of settings accepts, and what was written instead, in words for people."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from msgspec import inspect


class OddNumber(str):
    """A number that no setting means anything by, as text, so that no number's type takes it."""

    __slots__ = ()


def expected(kind: Any) -> str:  # noqa: ANN401
    """Return what a type accepts."""
    return _words(inspect.type_info(kind))


def choices(kind: Any) -> list[str]:  # noqa: ANN401
    """Return the words that a type takes; empty where it takes more than a few."""
    return _choices(inspect.type_info(kind))


def remedy(value: object, kind: Any, error: str = "") -> str:  # noqa: ANN401
    """Say what a type accepts, what was written instead, and what was probably meant."""
    info = inspect.type_info(kind)
    entry, where = value, ""
    inside = re.match(r"\[(\d+)\]", error.partition(" - at `$")[2])
    if inside and isinstance(value, list):
        place = int(inside[1])
        entry, info = value[place], getattr(info, "item_type", info)
        where = f" (entry {place + 1})"
    close = difflib.get_close_matches(str(entry), _choices(info), 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"must be {expected(kind)}, not {shown(entry)}{where}{hint}"


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            words = str((kind.extra_json_schema or {}).get("description", _words(kind.type)))
        case inspect.BoolType():
            words = "true or false"
        case inspect.IntType():
            words = f"a whole number{_range(kind)}"
        case inspect.FloatType():
            words = f"a number{_range(kind)}"
        case inspect.StrType():
            words = "text" + (f" of the form {kind.pattern}" if kind.pattern else _length(kind))
        case inspect.LiteralType() | inspect.EnumType():
            words = "one of " + ", ".join(map(repr, _choices(kind)))
        case (
            inspect.ListType()
            | inspect.VarTupleType()
            | inspect.SetType()
            | inspect.FrozenSetType()
        ):
            words = f"a list{_length(kind)}, each entry {_words(kind.item_type)}"
        case inspect.UnionType():
            words = " or ".join(_words(option) for option in kind.types)
        case inspect.CustomType():
            words = "a path"
        case _:
            words = "a section ([…])"
    return words


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    bounds = [
        f" {words} {bound}"
        for words, bound in [
            ("of at least", kind.ge),
            ("above", kind.gt),
            ("of at most", kind.le),
            ("below", kind.lt),
        ]
        if bound is not None
    ]
    return " and".join(bounds)


def _length(
    kind: inspect.StrType
    | inspect.ListType
    | inspect.VarTupleType
    | inspect.SetType
    | inspect.FrozenSetType,
) -> str:
    unit = "characters" if isinstance(kind, inspect.StrType) else "entries"
    match kind.min_length or 0, kind.max_length:
        case 0, None:
            return ""
        case 0, most:
            return f" of at most {most} {unit}"
        case least, None:
            return f" of at least {least} {unit}"
        case least, most:
            return f" of {least} to {most} {unit}"


def _choices(kind: inspect.Type) -> list[str]:
    if isinstance(kind, inspect.LiteralType):
        return [str(value) for value in kind.values]
    if isinstance(kind, inspect.EnumType):
        return [str(member.value) for member in kind.cls]
    return []


def shown(value: object) -> str:
    """Return a value as it may stand in a sentence."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, OddNumber):
        return str(value)
    if isinstance(value, str):
        return repr(str(value)[:60])
    if isinstance(value, Mapping):
        return "a section"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return str(value)[:60]
