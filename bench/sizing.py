"""What farside costs on the wire and on the broker's disk: the tables of docs/operate/kafka.md.

`python -m bench.sizing` builds the batches of several nodes, encodes them as the agent does, packs
each as a record batch of its own as the producer does (an agent sends one record a period), and
prints bytes a second and a day, with zstd and without. Nodes come from the captured machines of the
tests and from their shapes multiplied; values move by whole pages, as the kernel's do. The same
seed gives the same bytes; another release of zstd may not. Printed, never a gate.
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from kafka.record.memory_records import MemoryRecordsBuilder

from bus.cloudevents import headers
from bus.codec import encode
from bus.messages import Message, SampleBatch, Source, Tick, Watermark
from bus.records import Broken, load
from bus.samples import Sample, Samples
from bus.signals import catalogue
from bus.topics import TOPICS
from collectors import cgroup, memory, process
from collectors.base import Collector
from runtime.clock import Instant
from runtime.files import SysTree

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
REPLAYED = GOLDEN / "records" / "demo-seed-7.replayed.jsonl"
BEGIN = Instant.parse("2026-03-01T12:00:00Z")
SECONDS, SEED, DAY_S = 60, 7, 86_400
FLEETS = (100, 1_000, 10_000)
PAGE_BYTES, NOISE_PAGES = 4096, 300
CODECS = {"none": 0, "zstd": 4}  # the numbers of Kafka's format of records
OWN = tuple(
    Sample(metric, name, value)
    for name in ("memory", "cgroup", "process", "kernel_log")
    for metric, value in (("collector_duration_seconds", 0.0041), ("collector_success", 1.0))
)


class Node(NamedTuple):
    """One kind of node: what it is called, and the samples of one moment."""

    name: str
    samples: list[Sample]


class Cost(NamedTuple):
    """Bytes of one record: the message, and as the broker keeps it without and with zstd."""

    message: float
    plain: float
    packed: float


def captured(machine: str) -> list[Sample]:
    """Return what the collectors see of a captured machine."""
    tree = SysTree(GOLDEN / "machines" / machine / "root")
    collectors: list[Collector] = [
        memory.build(memory.Settings(), tree),
        cgroup.build(cgroup.Settings(), tree),
        process.build(process.Settings(), tree),
    ]
    return [sample for one in collectors for sample in one.collect(BEGIN).samples] + list(OWN)


def composed(name: str, path: str, containers: int, processes: int) -> Node:
    """Return the node of the captured Kubernetes machine with other containers and processes."""
    seen = captured("v2-pods")
    limited = next(one.device for one in seen if one.metric == "container_memory_limit_bytes")
    of_container = [one for one in seen if one.device == limited]
    private = next(one.device for one in seen if one.metric == "process_private_bytes")
    of_process = [one for one in seen if one.device == private]
    samples = [one for one in seen if not one.metric.startswith(("container_", "process_"))]
    for number in range(containers):
        digest = hashlib.sha256(b"%d" % number).hexdigest()
        uid = "_".join(digest[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        place = path.format(number=number, digest=digest[::-1], uid=uid)
        device = f"{place}@{4711 + 13 * number}"
        samples += [one._replace(device=device) for one in of_container]
    for number in range(processes):
        device = f"python3:{20_000 + 7 * number}:{100_000 + 211 * number}"
        samples += [one._replace(device=device) for one in of_process]
    return Node(name, samples)


def nodes() -> list[Node]:
    """Return the kinds of nodes that are measured, from small to the bounds of the defaults."""
    slurm = "/system.slice/slurmstepd.scope/job_{number}/step_0/user/task_0"
    pods = ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/"
            "cri-containerd-{digest}.scope")  # fmt: skip
    return [
        Node("virtual machine, as captured", captured("hybrid")),
        composed("Slurm node: 8 steps, 16 processes", slurm, 8, 16),
        composed("Kubernetes node: 30 pods, 8 processes", pods, 30, 8),
        composed("Kubernetes node: 110 pods, 40 processes", pods, 110, 40),
    ]


def batches(node: Node, seconds: int = SECONDS) -> Iterator[SampleBatch]:
    """Give one batch a second; gauges move by whole pages, limits and states stay."""
    chance = np.random.default_rng(SEED)
    signals = catalogue().signals
    layout = Samples.of(node.samples).layout
    moves = np.array([
        one.metric.endswith("_bytes") and signals[one.metric].kind in {"gauge", "leak"}
        for one in node.samples
    ])  # fmt: skip
    durations = np.array([one.metric == "collector_duration_seconds" for one in node.samples])
    values = np.array([one.value for one in node.samples], "<f8")
    # Those of one kind are not alike: each begins at another size.
    spread = np.exp(chance.normal(0.0, 1.0, len(values)))
    values = np.where(moves, PAGE_BYTES * np.rint(values * spread / PAGE_BYTES), values)
    for number in range(seconds):
        pages = np.rint(chance.normal(0.0, NOISE_PAGES, len(values)))
        values = np.where(moves, np.maximum(values + PAGE_BYTES * pages, 0.0), values)
        values[durations] = chance.uniform(0.002, 0.02, durations.sum())
        yield SampleBatch(
            cluster="main", node="gpu-0421", boot="1f6f6cb2-5c3a-4d6b-9f43-6b2f6f1d2c11",
            start="9f86d081884c7d65", sequence=40_000 + number, time=BEGIN.plus(number + 0.217),
            samples=Samples(layout, values.astype("<f8").tobytes()),
        )  # fmt: skip


def kept(message: Message, key: str, codec: str) -> int:
    """Return the bytes that the broker keeps (and the wire carries) for a record sent alone."""
    record = encode(message)
    builder = MemoryRecordsBuilder(magic=2, compression_type=CODECS[codec], batch_size=1 << 20)
    builder.append(None, key.encode(), record, headers(message, record, "main", "collect@gpu-0421"))
    builder.close()
    return int(builder.size_in_bytes())


def cost(node: Node) -> Cost:
    """Return the mean over the seconds that are measured."""
    found = [
        (len(encode(batch)), kept(batch, batch.node, "none"), kept(batch, batch.node, "zstd"))
        for batch in batches(node)
    ]
    return Cost(*(sum(column) / len(found) for column in zip(*found, strict=True)))


def amount(count: float) -> str:
    """Return bytes as people read them, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def fleet_table() -> None:
    """Print bytes a node and second, and a day of each fleet."""
    heads = ["node", "series", "message", "kept a second, none", "kept a second, zstd"]
    heads += [f"a day, {count:,} nodes (none / zstd)" for count in FLEETS]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for node in nodes():
        found = cost(node)
        days = [
            f"{amount(found.plain * DAY_S * count)} / {amount(found.packed * DAY_S * count)}"
            for count in FLEETS
        ]
        print(f"| {node.name} | {len(node.samples)} | {amount(found.message)} | "
              f"{amount(found.plain)} | {amount(found.packed)} | {' | '.join(days)} |")  # fmt: skip


def cell_table() -> None:
    """Print what a cell writes each second whatever its size."""
    source = Source(partition=0, offset=864_000_000)
    tick = Tick(cell="default", time=BEGIN)
    mark = Watermark(cell="default", time=BEGIN, head_time=BEGIN, source=source)
    print("| each second, for each cell | topic | kept, zstd | a day |\n|---|---|---|---|")
    for message, topic in ((tick, "farside.telemetry"), (mark, "farside.suspicions")):
        size = kept(message, "default", "zstd")
        print(f"| {type(message).__name__} | {topic} | {amount(size)} | {amount(size * DAY_S)} |")


def incident_table() -> None:
    """Print what the recorded demo, a leak that is caught, wrote besides telemetry."""
    with REPLAYED.open("rb") as lines:  # messages alone; as records they are an object's field
        found = list(load(b'{"message":%s}' % line.strip() for line in lines))
    sizes: dict[tuple[str, str], list[int]] = {}
    for one in found:
        if isinstance(one, Broken):
            raise TypeError(f"line {one.line}: {one.reason}")
        where = (one.topic, type(one.message).__name__)
        sizes.setdefault(where, []).append(kept(one.message, "default", "zstd"))
    print("| a leak of the recorded demo | topic | records | kept each, zstd |\n|---|---|---|---|")
    for (topic, name), each in sorted(sizes.items()):
        print(f"| {name} | {topic} | {len(each)} | {amount(sum(each) / len(each))} |")


def retention_table() -> None:
    """Print how long each topic is kept."""
    print("| topic | partitions | kept |\n|---|---|---|")
    for topic in TOPICS.values():
        hours = topic.retention_h
        time = f"{hours} h" if hours < 48 else f"{hours // 24} days"
        print(f"| {topic.name} | {topic.partitions or 'one for each cell'} | "
              f"{time if hours else 'the newest of each key (compacted)'} |")  # fmt: skip


def main() -> None:
    """Print all tables."""
    for table in (fleet_table, cell_table, incident_table, retention_table):
        table()
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
