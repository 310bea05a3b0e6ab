"""Composes records of a small cell: nodes, containers and processes that behave as told."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bus.messages import LogLine, Message, SampleBatch, Tick
from bus.samples import Sample, Samples
from bus.signals import catalogue
from bus.topics import TELEMETRY
from bus.transport import Envelope
from detector.frames import FrameSettings
from detector.scorer import Scorer
from detector.settings import ModelSettings, ScorerSettings
from runtime.clock import Instant

BEGIN = Instant.parse("2026-11-30T12:00:00Z")
MB = 1e6
TOTAL = 24e9

Curve = Callable[[float], float]


def flat(level: float) -> Curve:
    return lambda _: level


def leak(base: float, rate: float, onset_s: float) -> Curve:
    return lambda at: base + max(at - onset_s, 0.0) * rate


def sawtooth(base: float, height: float, period_s: float) -> Curve:
    return lambda at: base + height * (at % period_s) / period_s


@dataclass
class Node:
    """One node's agent: what it has and the records that it sends."""

    name: str = "n1"
    boot: str = "boot-1"
    start: str = "start-1"
    containers: dict[str, tuple[Curve, float]] = field(default_factory=dict)
    available: Curve = field(default_factory=lambda: flat(20e9))
    more: Callable[[float], list[Sample]] = lambda _: []
    sequence: int = 0

    def batch(self, at_s: float) -> SampleBatch:
        samples = [
            Sample("memory_total_bytes", "", TOTAL),
            Sample("memory_available_bytes", "", self.available(at_s)),
            *self.more(at_s),
        ]
        for device, (curve, limit) in self.containers.items():
            samples += [
                Sample("container_memory_unreclaimable_bytes", device, curve(at_s)),
                Sample("container_memory_limit_bytes", device, limit),
            ]
        return self.send(at_s, samples)

    def send(self, at_s: float, samples: Iterable[Sample]) -> SampleBatch:
        self.sequence += 1
        return SampleBatch(
            cluster="c",
            node=self.name,
            boot=self.boot,
            start=self.start,
            sequence=self.sequence,
            time=BEGIN.plus(at_s),
            samples=Samples.of(samples),
        )

    def line(self, at_s: float, text: str, **fields: str) -> LogLine:
        self.sequence += 1
        return LogLine(
            cluster="c",
            node=self.name,
            boot=self.boot,
            start=self.start,
            sequence=self.sequence,
            time=BEGIN.plus(at_s),
            source="kernel",
            text=text,
            fields=fields,
        )


def run_of(
    nodes: Sequence[Node],
    duration_s: float,
    *,
    period_s: float = 1.0,
    ticks: bool = True,
    silent: Callable[[Node, float], bool] = lambda _node, _at: False,
    also: Callable[[float], list[tuple[float, Message]]] = lambda _at: [],
) -> list[tuple[float, Message]]:
    """Return (time of appending in s, message) for a run of these nodes."""
    found: list[tuple[float, Message]] = []
    for turn in range(round(duration_s / period_s)):
        at = turn * period_s
        found += [(at + 0.01, node.batch(at)) for node in nodes if not silent(node, at)]
        found += also(at)
        if ticks and turn and at % 1.0 < period_s:
            found.append((at + 0.02, Tick(cell="cell", time=BEGIN.plus(at + 0.02))))
    return found


def envelopes(records: Iterable[tuple[float, Message]]) -> list[Envelope]:
    """Put records into a log: offsets count up, appended times never go back."""
    kept = []
    newest = 0.0
    for offset, (at, message) in enumerate(records):
        newest = max(newest, at)
        kept.append(Envelope(TELEMETRY, 0, offset, BEGIN.plus(newest), "n", message))
    return kept


def scorer(*, period_s: float = 1.0, lateness_s: float = 5.0) -> Scorer:
    """Return a fresh scorer of the cell."""
    frames = FrameSettings(period_s=period_s, lateness_s=lateness_s)
    return Scorer(ScorerSettings(frames=frames), ModelSettings(), catalogue(), "cell")
