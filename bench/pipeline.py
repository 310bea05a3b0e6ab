"""From encoded batches on the in-process bus to suspicions: samples a second on one core.

`python -m bench.pipeline [--nodes N] [--seconds S]` prints where the time goes: decoding, arrival
(repeats, times, rows), frames, models and evidence. One node in a thousand leaks. Medians over the
seconds of the run, printed, never a gate.
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from bus.codec import Codec, encode
from bus.memory import opened
from bus.messages import SampleBatch, Suspicion, Tick
from bus.samples import Sample, Samples
from bus.signals import catalogue
from bus.topics import TELEMETRY
from bus.transport import Envelope
from detector.scorer import Scorer
from detector.settings import ModelSettings, ScorerSettings
from runtime.clock import NANOSECONDS, Instant

BEGIN = Instant.parse("2026-11-30T12:00:00Z")
CONTAINERS = 14  # with 4 signals each, 8 of the node: 64 series
NODE_METRICS = (
    "memory_total_bytes",
    "memory_available_bytes",
    "memory_unreclaimable_bytes",
    "memory_file_bytes",
    "memory_anonymous_bytes",
    "memory_pressure_full_percent",
    "memory_oom_kills_total",
    "memory_refaults_total",
)


class Fleet:
    """Batches of many nodes; names are made once, values anew each second."""

    def __init__(self, nodes: int, seed: int) -> None:
        """Draw bases and noise of all series."""
        self._rng = np.random.default_rng(seed)
        self._layouts = []
        for _ in range(nodes):
            pairs = [(metric, "") for metric in NODE_METRICS]
            for number in range(CONTAINERS):
                device = f"/job/step_{number}@{1000 + number}"
                pairs += [
                    ("container_memory_unreclaimable_bytes", device),
                    ("container_memory_limit_bytes", device),
                    ("container_memory_file_bytes", device),
                    ("container_memory_limit_hits_total", device),
                ]
            self._layouts.append(Samples.of([Sample(m, d, 0.0) for m, d in pairs]).layout)
        self.width = len(self._layouts[0])
        self._nodes = nodes
        self._base = self._rng.uniform(1e8, 1e9, (nodes, self.width))
        self._limit = np.array([m == "container_memory_limit_bytes" for m, _ in pairs])
        self._base[:, self._limit] = 2e9
        self._base[:, 0] = 64e9
        self._base[:, 1] = 40e9
        self._base[:, 5] = 0.0

    def second(self, number: int) -> list[bytes]:
        """Return the encoded batches of one second."""
        values = self._base + self._rng.normal(0.0, 1e6, self._base.shape)
        values[:, self._limit] = 2e9
        values[:, 5] = 0.0
        values[::1000, 8] += 2e7 * number
        time_ns = BEGIN.plus(number)
        return [
            encode(
                SampleBatch(
                    cluster="bench",
                    node=f"n{node:05d}",
                    boot="b",
                    start="s",
                    sequence=number,
                    time=time_ns,
                    samples=Samples(self._layouts[node], values[node].tobytes()),
                ),
            )
            for node in range(self._nodes)
        ]


class Stopwatch:
    """Sums the time spent in functions, less that of watched functions which they call."""

    def __init__(self) -> None:
        """Start with nothing spent."""
        self.spent_s: dict[str, float] = {}
        self._inner_s = [0.0]

    def watch(self, owner: Any, method: str, name: str) -> None:  # noqa: ANN401  # any object
        """Measure a method of an object."""
        call: Callable[..., Any] = getattr(owner, method)

        def measured(*given: Any) -> Any:  # noqa: ANN401  # passes through what it is given
            self._inner_s.append(0.0)
            began = time.perf_counter()
            try:
                return call(*given)
            finally:
                took = time.perf_counter() - began
                self.spent_s[name] = self.spent_s.get(name, 0.0) + took - self._inner_s.pop()
                self._inner_s[-1] += took

        setattr(owner, method, measured)


def run(nodes: int, seconds: int, stopwatch: Stopwatch | None = None) -> tuple[list[float], int]:
    """Return the seconds of work for each second of telemetry, and the suspicions told."""
    fleet, codec = Fleet(nodes, 7), Codec()
    scorer = Scorer(ScorerSettings(), ModelSettings(), catalogue(), "bench")
    if stopwatch is not None:
        columns = scorer._columns  # noqa: SLF001  # a benchmark looks inside
        stopwatch.watch(codec, "decode", "decode")
        stopwatch.watch(scorer, "_arrive", "arrival: repeats and times")
        stopwatch.watch(scorer, "_part", "rows and checks of values")
        stopwatch.watch(scorer._frames, "close", "frames: joining a second")  # noqa: SLF001
        stopwatch.watch(columns._level, "learn", "model: level and scale")  # noqa: SLF001
        stopwatch.watch(columns._leaks, "advance", "model: floor rings")  # noqa: SLF001
        stopwatch.watch(columns, "advance", "evidence and bookkeeping")
        stopwatch.watch(scorer, "step", "the rest of the step")
    took, told, offset = [], 0, 0
    for number in range(seconds):
        records = fleet.second(number)
        appended = Instant(BEGIN + number * NANOSECONDS + 20_000_000)
        began = time.perf_counter()
        envelopes = [
            opened(codec, (TELEMETRY, 0), offset + place, appended, "", record)
            for place, record in enumerate(records)
        ]
        offset += len(records)
        tick = Tick(cell="bench", time=appended)
        envelopes.append(Envelope(TELEMETRY, 0, offset, appended, "", tick))
        outputs = scorer.step(envelopes)
        took.append(time.perf_counter() - began)
        told += sum(isinstance(output.message, Suspicion) for output in outputs)
    return took, told


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=10_000)
    options.add_argument("--seconds", type=int, default=40)
    given = options.parse_args()
    out = sys.stdout.write
    out(f"Python {platform.python_version()}, numpy {np.__version__}, ")
    out(f"msgspec {msgspec.__version__}, {platform.machine()}, one process\n\n")
    took, told = run(given.nodes, given.seconds)
    usual_s = statistics.median(took[2:])
    samples = given.nodes * 64
    out("| figure | value |\n|---|---|\n")
    out(f"| nodes x series at 1 Hz | {given.nodes:,} x 64 |\n")
    out(f"| work for one second of telemetry, median | {usual_s * 1e3:,.0f} ms |\n")
    out(f"| samples a second and core | {samples / usual_s / 1e6:.2f} M |\n")
    out(f"| slowest second (first two left out) | {max(took[2:]) * 1e3:,.0f} ms |\n")
    out(f"| suspicions told in {given.seconds} s | {told} |\n\n")
    stopwatch = Stopwatch()
    run(given.nodes, given.seconds, stopwatch)
    whole = sum(stopwatch.spent_s.values())
    out(
        "| where the time goes (measured apart; measuring costs time itself) | share |\n|---|---|\n"
    )
    for name, spent in sorted(stopwatch.spent_s.items(), key=lambda one: -one[1]):
        out(f"| {name} | {spent / whole:.0%} |\n")


if __name__ == "__main__":
    main()
