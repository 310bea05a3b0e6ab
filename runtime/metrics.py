"""Our own vital signs for Prometheus: a registry that is passed in, and the rules of its names.

Names begin with `farside_`, hold lower-case words, and end with their unit (counters: the unit,
then `_total`), in base units only: seconds and bytes, not milliseconds and megabytes.
A label's values are bounded (`LabelLimit`), so that no input can make series without end.
"""

import re
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
OTHER = "other"

_NAME = re.compile(r"farside(_[a-z0-9]+)+")
_BASE_UNITS = frozenset({"bytes", "celsius", "joules", "ratio", "seconds", "volts", "watts"})
_WRONG_UNITS = frozenset(
    {"ms", "milliseconds", "us", "microseconds", "ns", "nanoseconds", "secs", "minutes", "hours"}
    | {"kb", "mb", "gb", "kib", "mib", "gib", "kilobytes", "megabytes", "gigabytes", "percent"}
)
# From 1 ms to a minute in steps of about 2.5: a step of the scorer, a read of /proc, a save.
DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60)

_Kind = TypeVar("_Kind", Counter, Gauge, Histogram)


class Metrics:
    """The registry of one process (or of one test); asking twice for a name gives the same metric.

    A name against the rules, or one already taken by another kind, is a mistake in the program:
    `ValueError`.
    """

    def __init__(self, *, process: bool = False) -> None:
        """Begin empty; with `process`, tell this process's CPU time, memory and files as well."""
        # A second series beside each counter, for its birthday, tells an operator nothing.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._known: dict[str, tuple[Counter | Gauge | Histogram, tuple[str, ...]]] = {}
        self._lock = threading.Lock()
        if process:
            prometheus_client.ProcessCollector(registry=self.registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter `name` (ends in `_total`); `text` says what it counts."""
        if not name.endswith("_total"):
            raise ValueError(f"{name}: a counter's name ends in _total")
        _check_name(name, name.removesuffix("_total"))
        return self._once(Counter, name, labels, lambda: Counter(name, text, labels, registry=None))

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge `name`; `text` says what it shows."""
        _check_name(name, name)
        return self._once(Gauge, name, labels, lambda: Gauge(name, text, labels, registry=None))

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = DURATIONS_S,
    ) -> Histogram:
        """Return the histogram `name`; its buckets suit durations unless told otherwise."""
        _check_name(name, name)
        return self._once(
            Histogram,
            name,
            labels,
            lambda: Histogram(name, text, labels, registry=None, buckets=buckets),
        )

    def value(self, name: str, **labels: str) -> float:
        """Return what a series shows now (0 when nothing was counted yet): for views and tests."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)

    def _once(
        self, kind: type[_Kind], name: str, labels: Sequence[str], make: Callable[[], _Kind]
    ) -> _Kind:
        with self._lock:
            if name in self._known:
                metric, its_labels = self._known[name]
                if not isinstance(metric, kind) or its_labels != tuple(labels):
                    raise ValueError(f"{name} is taken by another kind or other labels")
                return metric
            made = make()
            self.registry.register(made)
            self._known[name] = (made, tuple(labels))
            return made


class LabelLimit:
    """Keeps the values of one label bounded: the first `limit` ones stay, later ones are "other".

    For values that come from outside (a fault's name, a reason); `folded` counts what was hidden.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self.folded = 0

    def __call__(self, value: str) -> str:
        """Return the value to use as the label."""
        with self._lock:
            if value in self._seen:
                return value
            if len(self._seen) < self._limit:
                self._seen.add(value)
                return value
            self.folded += 1
            return OTHER


def _check_name(name: str, without_total: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name}: a metric's name is farside_ and lower-case words")
    *body, last = without_total.split("_")
    if wrong := _WRONG_UNITS & {*body, last}:
        raise ValueError(
            f"{name}: {min(wrong)} is no base unit (use {', '.join(sorted(_BASE_UNITS))})"
        )
    if misplaced := _BASE_UNITS & set(body):
        raise ValueError(f"{name}: the unit ({min(misplaced)}) comes last")
