"""A thing that holds memory: its series, and what was suspected of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bus.messages import Scope, Suspicion, process_name
from bus.signals import catalogue
from farside.view.series import Point, Series
from runtime.words import plain_text

_SIGNALS = catalogue().signals
LEAKS = {signal.name: signal.capacity for signal in catalogue().of_kind("leak")}
FILES = frozenset(
    signal.name
    for signal in _SIGNALS.values()
    if signal.family == "page_cache" and signal.unit == "bytes"
)
FROZEN = "container_frozen"
# What of all readings is kept; the rest is the scorer's business.
KEPT = {
    name: _SIGNALS[name].scope
    for name in (*LEAKS, *filter(None, LEAKS.values()), *FILES, FROZEN)
    if name in _SIGNALS
}
SUSPICIONS_MAX = 400


class Key(NamedTuple):
    """What makes a thing the same thing: the cell is left out, readings don't carry it."""

    kind: str
    node: str
    name: str

    @classmethod
    def of(cls, scope: Scope) -> "Key":
        """Return the key of a scope."""
        return cls(scope.kind, scope.node, scope.name)


@dataclass(frozen=True)
class Curve:
    """What a page draws of one thing. `signal` names what `held` is; limit may be empty."""

    scope: Scope
    name: str
    signal: str
    held: tuple[Point, ...]
    file: tuple[Point, ...]
    limit: tuple[Point, ...]

    @property
    def size(self) -> float:
        """Return the newest size, file pages left out."""
        return self.held[-1][1] if self.held else 0.0


class Thing:
    """One node, container, process (or other scope): readings and suspicions in bounded memory."""

    __slots__ = ("key", "peak", "peak_share", "scope", "seen_ns", "series", "suspicions")

    def __init__(self, scope: Scope) -> None:
        """Start with nothing known."""
        self.key = Key.of(scope)
        self.scope = scope
        self.series: dict[str, Series] = {}
        self.suspicions: list[Suspicion] = []
        self.seen_ns = 0
        self.peak = 0.0
        self.peak_share = 0.0

    def read(self, metric: str, time_ns: int, value: float, points_max: int) -> None:
        """Take a reading of a kept signal."""
        series = self.series.get(metric)
        if series is None:
            series = self.series[metric] = Series(points_max)
        series.add(time_ns, value)
        if metric in LEAKS and value > self.peak:
            self.peak = value

    def suspect(self, suspicion: Suspicion) -> bool:
        """Take a suspicion; tell whether it is a new one (a crash may have it said twice)."""
        last = self.latest
        if last is not None and suspicion.time <= last.time:
            same = suspicion.source.partition == last.source.partition
            if not same or suspicion.source.offset <= last.source.offset:
                return False
        self.scope = suspicion.scope
        self.suspicions.append(suspicion)
        if len(self.suspicions) > SUSPICIONS_MAX:
            # The first and the newest are what a page shows; between them every second one will do.
            edge = SUSPICIONS_MAX // 4
            middle = self.suspicions[edge:-edge:2]
            self.suspicions = self.suspicions[:edge] + middle + self.suspicions[-edge:]
        return True

    @property
    def latest(self) -> Suspicion | None:
        """Return the newest suspicion."""
        return self.suspicions[-1] if self.suspicions else None

    @property
    def suspected(self) -> bool:
        """Tell whether something is wrong with it as far as the scorer knows."""
        return self.latest is not None and self.latest.state != "healthy"

    def forget_before(self, time_ns: int, *, keep_suspicions: bool) -> None:
        """Drop readings older than this, and suspicions that were taken back before it."""
        for series in self.series.values():
            series.drop_before(time_ns)
        if keep_suspicions or self.latest is None or self.suspected:
            return
        if self.latest.time < time_ns:
            self.suspicions.clear()

    def signal(self) -> str | None:
        """Return the leak-capable signal that tells most: the one nearest to its limit."""
        best, nearest = None, -1.0
        for metric, capacity in LEAKS.items():
            newest = self._newest(metric)
            if newest is None:
                continue
            limit = self._newest(capacity)
            share = newest / limit if limit else 0.0
            if share > nearest:
                best, nearest = metric, share
        return best

    def used(self) -> float | None:
        """Return what it holds now that can't be taken back, in bytes."""
        return self._newest(self.signal() or "")

    def limit(self) -> float | None:
        """Return the capacity of what `used` tells, in bytes."""
        return self._newest(LEAKS.get(self.signal() or "", ""))

    def file(self) -> float | None:
        """Return its page cache in bytes."""
        found = [value for name in FILES if (value := self._newest(name)) is not None]
        return max(found, default=None)

    def growth(self, span_s: float) -> float | None:
        """Return the growth of what `used` tells over the last seconds, in bytes per second."""
        series = self.series.get(self.signal() or "")
        return series.growth(span_s) if series else None

    def frozen(self) -> bool:
        """Tell whether the kernel says that it is frozen."""
        return bool(self._newest(FROZEN))

    def note_share(self) -> None:
        """Follow how near it ever came to its limit: a ranking by that does not jump about."""
        used, limit = self.used(), self.limit()
        if used is not None and limit:
            self.peak_share = max(self.peak_share, used / limit)

    def curve(self, name: str, signal: str | None = None) -> Curve:
        """Return what a page draws; `signal` where it is known which one the case is about."""
        held = signal if signal in self.series else self.signal()
        files = [self.series[name] for name in sorted(FILES) if name in self.series]
        return Curve(
            scope=self.scope,
            name=name,
            signal=held or "",
            held=tuple(self.series[held]) if held else (),
            file=tuple(files[0]) if files else (),
            limit=tuple(self.series.get(LEAKS.get(held or "", ""), ())),
        )

    def extend(self, other: "Thing", points_max: int, until_ns: int | None = None) -> None:
        """Take over what `other` has read since, up to a time."""
        for metric, series in other.series.items():
            mine = self.series.get(metric)
            if mine is None:
                mine = self.series[metric] = Series(points_max)
            after = mine.newest[0] + 1 if mine.newest else 0
            newest = series.newest
            if newest is None:
                continue
            for time_ns, value in series.between(after, until_ns or newest[0]):
                mine.add(time_ns, value)

    def _newest(self, metric: str) -> float | None:
        series = self.series.get(metric)
        newest = series.newest if series else None
        return newest[1] if newest else None


def short_names(scopes: Iterable[Scope]) -> dict[Scope, str]:
    """Return names that fit a table and tell these scopes apart; safe to print.

    A container is called by as many last parts of its path as it takes, a process by its command
    and number, a node by its name.
    """
    kept = list(scopes)
    names = {scope: _short(scope, 1) for scope in kept}
    for parts in (2, 3, 99):
        seen: dict[str, int] = {}
        for name in names.values():
            seen[name] = seen.get(name, 0) + 1
        for scope, name in names.items():
            if seen[name] > 1 and scope.kind == "container":
                names[scope] = _short(scope, parts)
    return {scope: plain_text(name, 200) for scope, name in names.items()}


def _short(scope: Scope, parts: int) -> str:
    if scope.kind == "container":
        path = scope.name.rsplit("@", 1)[0]
        last = [part for part in path.split("/") if part][-parts:]
        return "/".join(last) or "/"
    if scope.kind == "process":
        command, pid = process_name(scope.name)
        return f"{command} ({pid})"
    if scope.kind == "node":
        return scope.node
    return scope.name or scope.node or scope.cell or scope.kind


def encloses(outer: Key, inner: Key) -> bool:
    """Tell whether one container lies on the other's path."""
    if outer.kind != "container" or inner.kind != "container" or outer.node != inner.node:
        return False
    above = outer.name.rsplit("@", 1)[0].rstrip("/") + "/"
    return inner.name.startswith(above)


def siblings(one: Key, other: Key) -> bool:
    """Tell whether two containers have the same parent (what has no place in a tree has none)."""
    if one.kind != "container" or other.kind != "container" or one.node != other.node:
        return False
    return _parent(one.name) == _parent(other.name)


def _parent(name: str) -> str:
    return name.rsplit("@", 1)[0].rpartition("/")[0]
