"""Plug-ins by name: the module that a setting names, ours first, then a third party's.

`[notify.webhook]` means the file `notifiers/webhook.py` or the folder `notifiers/webhook/`; else
the entry point `webhook` in the group `farside.notifiers` of any installed distribution. A plug-in
is a module with `Settings` and `build`; the other files of a family are none.
"""

import difflib
import importlib
import importlib.util
import pkgutil
import re
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Literal

from runtime.errors import Misconfigured

Family = Literal["collectors", "executors", "models", "notifiers"]


def load(family: Family, name: str) -> ModuleType:
    """Return the plug-in's module.

    Errors: `Misconfigured` when no such plug-in exists (the text lists those that do), or when
    something that it needs is not installed.
    """
    if name in _ours(family):
        return _imported(family, name)
    if name in (theirs := _theirs(family)):
        return _third_party(family, theirs[name])
    known = available(family)
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise Misconfigured(
        f"{family}: there is no {name!r}; {hint}known: {', '.join(known) or 'none'}"
    )


def available(family: Family) -> list[str]:
    """Return the names of all plug-ins of a family, without importing any of them."""
    return sorted(_ours(family) | set(_theirs(family)))


def _ours(family: Family) -> set[str]:
    found = set()
    for module in pkgutil.iter_modules(importlib.import_module(family).__path__, f"{family}."):
        spec = importlib.util.find_spec(module.name)
        if spec and spec.origin and _BUILD.search(Path(spec.origin).read_text(encoding="utf-8")):
            found.add(module.name.removeprefix(f"{family}."))
    return found


def _theirs(family: Family) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"farside.{family}")}


def _imported(family: Family, name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{family}.{name}")
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"{family}: {name} needs the Python package {error.name}, which is not installed: "
            "install it, or the extra of farside that brings it"
        ) from error


def _third_party(family: Family, point: EntryPoint) -> ModuleType:
    try:
        module = point.load()
    except (ImportError, AttributeError) as error:
        raise Misconfigured(f"{family}: {point.name} ({point.value}): {error}") from error
    if not (
        isinstance(module, ModuleType) and hasattr(module, "Settings") and hasattr(module, "build")
    ):
        raise Misconfigured(
            f"{family}: {point.name} ({point.value}) is no module with Settings and build"
        )
    return module


# Asked of the text, because importing a plug-in may need what is not installed.
_BUILD = re.compile(r"^def build\(", re.MULTILINE)
