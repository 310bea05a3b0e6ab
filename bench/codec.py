"""Which form telemetry should travel in: the measurement behind decision 0002.

`python -m bench.codec` prints a table: for one batch of a node with 64 and with 200 series, bytes
(raw and compressed alone, as an agent's record is), encodes and decodes a second, and decodes with
the values put into rows. Median of several runs; printed, never a gate.
"""

import platform
import statistics
import sys
import timeit
import zlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from bus.codec import Codec
from bus.messages import SampleBatch
from bus.samples import Layouts, Sample, Samples
from runtime.clock import Instant

RUNS, CALLS = 7, 2000


class Named(msgspec.Struct, array_like=True):
    """Form a: every sample with its names, each record whole in itself."""

    node: str
    sequence: int
    time: int
    samples: list[tuple[str, str, float]]


class Registered(msgspec.Struct, array_like=True):
    """Form c: the number of a layout that was sent earlier, and one block of values."""

    node: str
    sequence: int
    time: int
    layout: int
    values: bytes


class Form(NamedTuple):
    """One candidate: what it is called, one record, and what to do with it."""

    name: str
    record: bytes
    encode: Callable[[], object]
    decode: Callable[[], object]
    fill: Callable[[], object]


def samples(count: int) -> list[Sample]:
    """Return a node's samples: metrics of eight devices, with the names that are usual."""
    metrics = ("container_memory_unreclaimable_bytes", "gpu_temperature_celsius",
               "port_symbol_errors_total", "process_private_bytes")  # fmt: skip
    return [
        Sample(metrics[n % 4], f"/slurm/job_7{n // 32}/step_0@47{n // 4:02d}", 1e9 + 7919.0 * n)
        for n in range(count)
    ]


def forms(count: int) -> list[Form]:
    """Return the three candidates for a batch of `count` samples."""
    readings = samples(count)
    target = np.zeros(count)
    rows = np.arange(count)
    index = {(one.metric, one.device): n for n, one in enumerate(readings)}
    named = Named("gpu-0421", 17, 1, [(one.metric, one.device, one.value) for one in readings])
    packer, unpack = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Named).decode
    by_name = packer.encode(named)

    def fill_named() -> None:
        for metric, device, value in unpack(by_name).samples:
            target[index[metric, device]] = value

    codec = Codec(Layouts())
    batch = SampleBatch(
        cluster="main", node="gpu-0421", boot="b", start="s", sequence=17, time=Instant(1),
        samples=Samples.of(readings),
    )  # fmt: skip
    block = codec.encode(batch)

    def fill_block() -> None:
        found = codec.decode(block)
        target[rows] = np.frombuffer(found.samples.values, "<f8")  # type: ignore[union-attr]

    registered = Registered("gpu-0421", 17, 1, 3, batch.samples.values)
    number = packer.encode(registered)
    unpack_number = msgspec.msgpack.Decoder(Registered).decode

    def fill_registered() -> None:
        target[rows] = np.frombuffer(unpack_number(number).values, "<f8")

    return [
        Form("a: named samples", by_name, lambda: packer.encode(named),
             lambda: unpack(by_name), fill_named),
        Form("b: names as one block, values as one block", block, lambda: codec.encode(batch),
             lambda: codec.decode(block), fill_block),
        Form("c: number of a layout sent earlier, values", number,
             lambda: packer.encode(registered), lambda: unpack_number(number), fill_registered),
    ]  # fmt: skip


def per_second(call: Callable[[], object]) -> float:
    """Return calls a second, the median of several runs."""
    return CALLS / statistics.median(timeit.repeat(call, number=CALLS, repeat=RUNS))


def main() -> None:
    """Print the table."""
    out = sys.stdout.write
    out(f"Python {platform.python_version()}, msgspec {msgspec.__version__}, ")
    out(f"numpy {np.__version__}, {platform.processor() or platform.machine()}\n\n")
    out("| samples | form | bytes | deflated | encodes/s | decodes/s | decode + rows/s |\n")
    out("|---|---|---|---|---|---|---|\n")
    for count in (64, 200):
        for form in forms(count):
            out(
                f"| {count} | {form.name} | {len(form.record)} | "
                f"{len(zlib.compress(form.record, 1))} | {per_second(form.encode):,.0f} | "
                f"{per_second(form.decode):,.0f} | {per_second(form.fill):,.0f} |\n",
            )


if __name__ == "__main__":
    main()
