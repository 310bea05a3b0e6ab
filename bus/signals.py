"""The catalogue of signals: the one list that collectors, scorer and dashboards share."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from bus.messages import Fault, ScopeKind

Kind = Literal["gauge", "percent", "duration", "counter", "ladder", "leak", "state"]


class Signal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is measured.

    `bad` is the side on which trouble lies, `capacity` the signal that bounds a leak-capable one
    (same device; `memory_total_bytes` is the node's), `fault` what an unusual value speaks for.
    """

    name: str
    unit: Literal["bytes", "percent", "seconds", "pages", "count", "state"]
    kind: Kind
    family: str
    bad: Literal["high", "low", "none"]
    scope: ScopeKind
    help: str
    capacity: str = ""
    fault: Fault | None = None


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """All signals by name."""

    signals: dict[str, Signal]

    def of_kind(self, kind: Kind) -> tuple[Signal, ...]:
        """Return the signals of one kind."""
        return tuple(signal for signal in self.signals.values() if signal.kind == kind)


@cache
def catalogue() -> Catalogue:
    """Read `bus/signals.toml`."""
    table = tomllib.loads(files("bus").joinpath("signals.toml").read_text("utf-8"))
    signals = {
        name: msgspec.convert({"name": name, **entry}, Signal)
        for name, entry in table["signals"].items()
    }
    for signal in signals.values():
        if signal.capacity and signal.capacity not in signals:
            msg = f"signals.toml: {signal.name} is bounded by {signal.capacity}, which is no signal"
            raise ValueError(msg)
    return Catalogue(signals=signals)
