"""Settings: one TOML file, an overlay from the environment, secrets from files.

A settings type is a frozen, keyword-only `msgspec.Struct`; its defaults, `Literal`s and
`msgspec.Meta(ge=…, le=…)` are what is accepted; a `description` says it in words of its own.
Sections are Structs, or `dict[str, X]` where the keys are names that the operator chooses, or
`dict[Literal[…], X]` where they are not. `dict[str, Table]` keeps plug-ins' sections as they were
written, for `plugin_settings` to read once the plug-in is known. No text may hold control
characters, no list the same entry twice.

`FARSIDE__HTTP__PORT=9000` overlays `port` in `[http]`. A field of type `Secret` is never written in
the file: `token_file = "path"` names the file that holds `token`.

Every mistake is a `Misconfigured` whose one sentence names the file (or variable), the key and the
remedy.
"""

import contextlib
import difflib
import json
import math
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from runtime.errors import Misconfigured
from runtime.expected import OddNumber, choices, expected, remedy, shown

PREFIX = "FARSIDE__"
_SECRET_LIMIT_BYTES = 64 * 1024
_FILE_LIMIT_BYTES = 4 << 20
_INTEGER_BITS = 63  # what TOML promises; Python would take more
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
T = TypeVar("T", bound=msgspec.Struct)


class Secret:
    """A word that must not be shown: printing it gives stars; `reveal` where it is used."""

    __slots__ = ("_word",)

    def __init__(self, word: str) -> None:
        self._word = word

    def reveal(self) -> str:
        """Return the word itself."""
        return self._word

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._word == other._word

    def __hash__(self) -> int:
        return hash(self._word)

    def __repr__(self) -> str:
        return "***"


@dataclass(frozen=True)
class Table:
    """A plug-in's section as it was written, with its place for messages ("notify.webhook")."""

    values: Mapping[str, object] = field(default_factory=dict)
    place: str = ""
    file: Path | None = None


class _FromEnvironment(str):
    """A value of the overlay: what it means depends on the type of its key."""

    __slots__ = ("variable",)
    variable: str


def read(path: Path | None, type: type[T], environ: Mapping[str, str]) -> T:  # noqa: A002
    """Read the file (none: defaults only) under the overlay of `environ` into a `type`.

    Errors: `Misconfigured`, see this module's text.
    """
    values = {} if path is None else _parsed(path)
    for variable in sorted(environ):
        if variable.startswith(PREFIX):
            _overlay(values, variable, environ[variable])
    return _Reader(path).section(values, type, ())


def plugin_settings(table: Table, type: type[T]) -> T:  # noqa: A002
    """Read a plug-in's section into the plug-in's own `Settings`; errors as of `read`."""
    return _Reader(table.file).section(
        table.values, type, tuple(filter(None, table.place.split(".")))
    )


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8-sig") as stream:  # some editors begin with a mark
            text = stream.read(_FILE_LIMIT_BYTES + 1)
        if len(text) > _FILE_LIMIT_BYTES:
            raise Misconfigured(
                f"{path} is longer than {_FILE_LIMIT_BYTES >> 20} MiB: name a configuration"
            )
        return tomllib.loads(text)
    except FileNotFoundError:
        raise Misconfigured(f"{path}: there is no such file") from None
    except OSError as error:
        raise Misconfigured(f"{path} can't be read: {(error.strerror or '').lower()}") from None
    except UnicodeDecodeError:
        raise Misconfigured(f"{path} is no text in UTF-8: save it as such") from None
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{path} is no TOML: {error}") from None
    except RecursionError:
        raise Misconfigured(f"{path}: its lists or tables lie too deep in each other") from None


def _overlay(values: dict[str, Any], variable: str, text: str) -> None:
    *sections, key = variable.removeprefix(PREFIX).split("__")
    for name in sections:
        values = values.setdefault(_as_written(values, name), {})
        if not isinstance(values, dict):
            raise Misconfigured(f"{variable}: {name.lower()} is no section of the file")
    value = _FromEnvironment(text)
    value.variable = variable
    values[_as_written(values, key)] = value


def _as_written(values: Mapping[str, object], name: str) -> str:
    """Variables are written in capitals, keys mostly not: an existing key wins, else lower case."""
    same = (key for key in values if key.lower() == name.lower())
    return next(same, name.lower())


class _Reader:
    """Turns tables into settings, one value at a time, so that every message knows its key."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def section(self, values: object, kind: type[T], place: tuple[str, ...]) -> T:
        """Read one section into a Struct type."""
        if not isinstance(values, Mapping):
            raise self._wrong(place, values, "must be a section ([…]), not a value")
        fields = {info.encode_name: info for info in structs.fields(kind)}
        given: dict[str, object] = {}
        for key, value in values.items():
            at = (*place, key)
            secret = key.removesuffix("_file")
            if key not in fields and secret != key and _is_secret(fields.get(secret)):
                given[fields[secret].name] = self._secret(value, at)
            elif key not in fields:
                raise self._unknown(at, value, _spellings(fields))
            elif _is_secret(fields[key]):
                words = f"is a secret and not written here: put it into a file and set {key}_file"
                raise self._wrong(at, None, words)
            else:
                given[fields[key].name] = self._value(value, fields[key].type, at)
        for key, info in fields.items():
            if info.required and info.name not in given:
                name = f"{key}_file" if _is_secret(info) else key
                words = f"is missing: set it to {expected(info.type)}"
                raise self._wrong((*place, name), None, words)
        try:
            return kind(**given)
        except (TypeError, ValueError) as error:  # a check of the type's own __post_init__
            raise self._wrong(place, values, str(error)) from None

    def _value(self, value: object, kind: Any, at: tuple[str, ...]) -> object:  # noqa: ANN401
        kind = _without_none(kind)
        if kind is Table:
            if not isinstance(value, Mapping):
                raise self._wrong(at, value, "must be a section ([…]), not a value")
            return Table(value, ".".join(at), self._file)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.section(value, kind, at)
        if typing.get_origin(kind) is dict and isinstance(value, Mapping):
            names, inner = typing.get_args(kind)
            for key, entry in value.items():
                self._judge_name(key, names, entry, at)
            return {key: self._value(entry, inner, (*at, key)) for key, entry in value.items()}
        meant = _countable(_meant(value, kind))
        self._judge_plain(meant, value, kind, at)
        try:
            return msgspec.convert(meant, kind, dec_hook=_custom)
        except msgspec.ValidationError as error:
            raise self._wrong(at, value, remedy(meant, kind, str(error))) from None

    def _judge_name(self, key: str, kind: Any, entry: object, at: tuple[str, ...]) -> None:  # noqa: ANN401
        """Refuse a key of a dict that its type does not take."""
        known = choices(kind)
        if known and key not in known:
            raise self._unknown((*at, key), entry, known)
        if not key.strip() or _CONTROL.search(key):
            raise self._wrong((*at, _toml_key(key)), entry, "is no name: write one in letters")
        try:
            msgspec.convert(key, kind)
        except msgspec.ValidationError:
            words = f"is no name that fits: use {expected(kind)}"
            raise self._wrong((*at, key), entry, words) from None

    def _judge_plain(
        self,
        meant: object,
        value: object,
        kind: Any,  # noqa: ANN401
        at: tuple[str, ...],
    ) -> None:
        """Refuse what no setting of ours means anything by, whatever its type."""
        entries = meant if isinstance(meant, list) else [meant]
        for place, entry in enumerate(entries):
            if isinstance(entry, OddNumber):
                raise self._wrong(at, value, remedy(meant, kind))
            if isinstance(entry, str) and _CONTROL.search(entry):
                words = f"has a control character in {shown(entry)}: leave it out"
                raise self._wrong(at, value, words)
            if entry in entries[:place]:
                raise self._wrong(at, value, f"names {shown(entry)} twice: leave one out")

    def _secret(self, value: object, at: tuple[str, ...]) -> Secret:
        if not isinstance(value, str) or not value:
            raise self._wrong(at, value, f"must be the path of a file, not {shown(value)}")
        here = (
            Path() if isinstance(value, _FromEnvironment) or not self._file else self._file.parent
        )
        try:
            with (here / str(value)).open(encoding="utf-8") as stream:
                word = stream.read(_SECRET_LIMIT_BYTES).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = (getattr(error, "strerror", None) or "no text in UTF-8").lower()
            raise self._wrong(at, value, f"names {value}, which can't be read: {why}") from None
        if not word:
            raise self._wrong(at, value, f"names {value}, which is empty: put the secret into it")
        return Secret(word)

    def _unknown(self, at: tuple[str, ...], value: object, known: Sequence[str]) -> Misconfigured:
        close = difflib.get_close_matches(at[-1], known, 1)
        there = ", ".join(known) or "none"
        hint = f"did you mean {'.'.join((*at[:-1], close[0]))}? " if close else ""
        return self._wrong(at, value, f"is no known key: {hint}(known here: {there})")

    def _wrong(self, at: tuple[str, ...], value: object, words: str) -> Misconfigured:
        key = ".".join(at)
        variable = _variable(value)
        source = f"{variable} (environment)" if variable else self._file or "configuration"
        return Misconfigured(f"{source}: {key} {words}" if key else f"{source}: {words}")


def written(settings: msgspec.Struct, plugins: Mapping[str, msgspec.Struct] | None = None) -> str:
    """Return settings as the TOML text that would give them, defaults included, secrets as stars.

    `plugins` gives the effective settings of plug-ins by their place ("notify.webhook"), to be
    shown instead of their sections as written.
    """
    lines: list[str] = []
    _write(_plain(settings, plugins or {}), (), lines)
    return "\n".join(lines).strip() + "\n"


def _write(values: Mapping[str, object], place: tuple[str, ...], lines: list[str]) -> None:
    sections = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    if place and len(sections) < max(len(values), 1):
        lines.extend(["", f"[{'.'.join(map(_toml_key, place))}]"])
    lines.extend(
        f"{_toml_key(key)} = {_toml(value)}" for key, value in values.items() if key not in sections
    )
    for key, section in sections.items():
        _write(section, (*place, key), lines)


def _plain(value: object, plugins: Mapping[str, msgspec.Struct]) -> Any:  # noqa: ANN401
    """Turn settings into plain tables, lists, texts and numbers; what is not set is left out."""
    match value:
        case Table():
            return _plain(plugins.get(value.place, value.values), plugins)
        case msgspec.Struct():
            shown = {info.encode_name: getattr(value, info.name) for info in structs.fields(value)}
            return _plain(shown, plugins)
        case Mapping():
            return {
                str(key): _plain(entry, plugins)
                for key, entry in value.items()
                if entry is not None
            }
        case list() | tuple() | set() | frozenset():
            return [_plain(entry, plugins) for entry in value]
        case Secret() | Path():
            return str(value)
        case _:
            return msgspec.to_builtins(value)


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(f'{_toml_key(key)} = {_toml(entry)}' for key, entry in value.items())}}}"
        )
    if isinstance(value, str):  # JSON's escapes are TOML's, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _meant(value: object, kind: Any) -> object:  # noqa: ANN401
    """Return what a value of the environment means for its type; others mean themselves."""
    if not isinstance(value, _FromEnvironment):
        return value
    text = str(value)
    if kind is str or kind is Path or typing.get_origin(kind) is typing.Literal or "\n" in text:
        return text
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    return text


def _countable(value: object) -> object:
    """Numbers that no setting of ours means anything by become text, which no number's type takes.

    TOML can write inf and nan, and Python reads integers of any length.
    """
    if isinstance(value, list):
        return [_countable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return OddNumber(value)
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        return OddNumber(f"an integer of {value.bit_length()} bits")
    return value


def _variable(value: object) -> str | None:
    """Return the variable that a value comes from, None for the file's own."""
    if isinstance(value, Mapping) and value:
        variables = [_variable(entry) for entry in value.values()]
        return variables[0] if all(variables) else None
    return value.variable if isinstance(value, _FromEnvironment) else None


def _custom(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str) and value:
        return Path(value).expanduser()
    raise ValueError(f"no {kind.__name__}")


def _without_none(kind: Any) -> Any:  # noqa: ANN401
    """Return X for `X | None`: TOML has no word for nothing, a key that is absent says it."""
    if typing.get_origin(kind) in {typing.Union, UnionType}:
        others = [option for option in typing.get_args(kind) if option is not NoneType]
        return others[0] if len(others) == 1 else kind
    return kind


def _is_secret(info: structs.FieldInfo | None) -> bool:
    return info is not None and _without_none(info.type) is Secret


def _spellings(fields: Mapping[str, structs.FieldInfo]) -> list[str]:
    return [f"{key}_file" if _is_secret(info) else key for key, info in fields.items()]
