"""Every number that can be set has bounds: all Settings of the product, found by looking.

A class is taken for settings when it refuses unknown fields: no other kind of Struct here does but
what is read from this repository itself.
"""

import importlib
import pkgutil
import tomllib
from collections.abc import Iterator
from types import ModuleType

import msgspec
import pytest
from msgspec import inspect

from runtime.settings import Table, plugin_settings, written

FAMILIES = ("bus", "collectors", "detector", "executors", "farside", "models", "notifiers")
OWN_FILES = ("bus.signals", "farside.local")  # read from this repository, or from our own socket


def settings_classes() -> list[type[msgspec.Struct]]:
    found: dict[str, type[msgspec.Struct]] = {}
    for family in FAMILIES:
        for module in _modules(importlib.import_module(family)):
            for name, thing in vars(module).items():
                if (
                    isinstance(thing, type)
                    and issubclass(thing, msgspec.Struct)
                    and thing.__module__ not in OWN_FILES
                    and thing.__struct_config__.forbid_unknown_fields
                ):
                    found[f"{thing.__module__}.{name}"] = thing
    return [found[name] for name in sorted(found) if name.endswith(found[name].__name__)]


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(info.name)


CLASSES = settings_classes()
# Upper bounds that are still to come; nothing is added here.
WAITING = (
    "detector.deciding.DeciderSettings.",
    "collectors.process.Settings.private_bytes_min",
)


def numbers(kind: inspect.Type) -> Iterator[inspect.IntType | inspect.FloatType]:
    """Yield each kind of number that a field may hold, in lists, tables and unions too."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            yield kind
        case inspect.Metadata():
            yield from numbers(kind.type)
        case inspect.UnionType():
            for option in kind.types:
                yield from numbers(option)
        case inspect.DictType():
            yield from numbers(kind.value_type)
        case (
            inspect.ListType()
            | inspect.VarTupleType()
            | inspect.SetType()
            | inspect.FrozenSetType()
        ):
            yield from numbers(kind.item_type)
        case inspect.TupleType():
            for option in kind.item_types:
                yield from numbers(option)


def unbounded(settings: type[msgspec.Struct]) -> list[str]:
    return [
        f"{settings.__module__}.{settings.__qualname__}.{field.name}"
        for field in msgspec.structs.fields(settings)
        for number in numbers(inspect.type_info(field.type))
        if (number.ge is None and number.gt is None) or (number.le is None and number.lt is None)
    ]


def test_all_settings_are_found() -> None:
    """The walk would pass for nothing if it found nothing."""
    names = {f"{one.__module__}.{one.__name__}" for one in CLASSES}
    assert names >= {
        "collectors.agent.Settings",
        "collectors.cgroup.Settings",
        "models.floors.Settings",
        "detector.deciding.DeciderSettings",
        "detector.frames.FrameSettings",
        "detector.settings.ScorerSettings",
        "executors.process.settings.Settings",
        "executors.worker.Settings",
        "notifiers.webhook.Settings",
        "farside.settings.HttpSettings",
        "farside.settings.Settings",
    }


@pytest.mark.parametrize("settings", CLASSES, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_each_number_that_can_be_set_has_a_lower_and_an_upper_bound(
    settings: type[msgspec.Struct],
) -> None:
    assert [name for name in unbounded(settings) if not name.startswith(WAITING)] == []


@pytest.mark.parametrize(
    "settings",
    [one for one in CLASSES if not any(field.required for field in msgspec.structs.fields(one))],
    ids=lambda one: f"{one.__module__}.{one.__name__}",
)
def test_the_defaults_are_within_their_own_bounds(settings: type[msgspec.Struct]) -> None:
    values = tomllib.loads(written(settings()))
    assert written(plugin_settings(Table(values, "section"), settings)) == written(settings())
