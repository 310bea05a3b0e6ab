"""From a line in the kernel log to the command on its topic, over a real Kafka, hop by hop.

`python -m bench.latency [--events N]` starts a broker and `farside detect` as a process of its own.
The agents are the product's, with the kernel log as their only collector (a pipe that holds records
of /dev/kmsg), and run in this process; so does the reader of commands. Each event falls on another
node, so that neither budgets nor pauses stand against it, at a random moment of the second. Acting
is a dry run: there is no executor. p50 and p99, printed, never a gate.

Stamps: the moment before the line is written and the moment at which the command was read are this
machine's clock; those between are the log's (LogAppendTime, the same clock, whole milliseconds
rounded down, so a single hop is true to a millisecond).
"""

import argparse
import itertools
import math
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from bench.kafka_pipeline import broker, open_bus
from bus.kafka import KafkaBus
from bus.messages import IsolationCommand, LogLine, SampleBatch, Suspicion, Watermark
from bus.topics import COMMANDS, SUSPICIONS, TELEMETRY
from bus.transport import Envelope, Source
from deploy.kafka.cluster import Cluster
from deploy.kafka.jars import kafka_version
from farside.compose import Site, build_collect
from farside.settings import read_settings
from runtime import logs
from runtime.clock import Instant, SystemClock
from runtime.errors import Unavailable
from runtime.files import SysTree
from runtime.process import start
from runtime.wait import wait_until

GROUP = 10  # nodes that are there at the same time; the first group warms up and is not counted
WAIT_S = 60.0
COMMON = """
[farside]
cluster = "bench"
node = "{node}"
state_dir = "{folder}/state"
log_level = "error"
[bus]
kind = "kafka"
[bus.kafka]
bootstrap = {bootstrap}
[http]
enabled = false
"""
AGENT = """
[collect.memory]
enabled = false
[collect.cgroup]
enabled = false
[collect.process]
enabled = false
"""
DETECT = """
[act.gpu_off_bus.default]
actions = ["hold"]
dry_run = true
[decide]
acts_per_hour = 1e9
burst = 1000000
held_max = 1000000
held_percent = 100.0
cooldown_s = 0.0
veto_percent = 100.0
veto_nodes_min = 1000000
answer_s = 100000.0
"""
CLOCK = SystemClock()


class Event(NamedTuple):
    """One fall: the node, when its line was written, when its command was read."""

    node: str
    written: Instant
    received: Instant


class Hops(NamedTuple):
    """Milliseconds from stamp to stamp, and the whole; acts are decided on watermarks."""

    line: float
    suspicion: float
    watermark: float
    command: float
    read: float
    whole: float


NAMES = (
    "line written → line on the topic",
    "→ suspicion on its topic",
    "→ watermark on its topic (decisions wait for one)",
    "→ command on its topic",
    "→ command read",
    "line written → command read",
)


class Node:
    """A node whose kernel log we write, with the product's agent."""

    def __init__(self, name: str, folder: Path, cluster: Cluster) -> None:
        """Make the machine's files and start the agent."""
        self.name = name
        root = folder / "root"
        for path, text in (
            ("proc/uptime", Path("/proc/uptime").read_text("ascii")),
            ("proc/sys/kernel/random/boot_id", f"boot-{name}\n"),
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, "ascii")
        (root / "dev").mkdir()
        os.mkfifo(root / "dev/kmsg")
        # Both ends are held open, so that the agent never sees a pipe without a writer.
        self._kmsg = os.open(root / "dev/kmsg", os.O_RDWR)
        config = folder / "farside.toml"
        config.write_text(common(name, folder, cluster) + AGENT, "utf-8")
        self._bus = open_bus(cluster, f"collect@{name}", (TELEMETRY,))
        site = Site(read_settings(config), machine=SysTree(root))
        agent, _ = build_collect(site, self._bus.sink(), durable=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=agent.run, args=(self._stop,), daemon=True)
        self._thread.start()

    def fall(self) -> Instant:
        """Let a GPU fall off the bus; return the moment before the line was written."""
        up_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        line = f"2,1,{up_us},-;NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.\n"
        now = CLOCK.now()
        os.write(self._kmsg, line.encode())
        return now

    def close(self) -> None:
        """End the agent."""
        self._stop.set()
        self._thread.join(WAIT_S)
        self._bus.close()
        os.close(self._kmsg)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def common(node: str, folder: Path, cluster: Cluster) -> str:
    """Return what is the same in all configurations."""
    folder.mkdir(exist_ok=True)
    bootstrap = msgspec.json.encode(cluster.bootstrap).decode()
    return COMMON.format(node=node, folder=folder, bootstrap=bootstrap)


class Record:
    """What the topics of telemetry and suspicions hold, read on whenever it is asked for."""

    def __init__(self, bus: KafkaBus) -> None:
        """Read from the start."""
        self._source = bus.source([TELEMETRY, SUSPICIONS])
        self.envelopes: list[Envelope] = []

    def read(self) -> list[Envelope]:
        """Read what is there, and return all."""
        while found := self._source.poll(2000, 0.05):
            self.envelopes += found
        return self.envelopes

    def nodes(self) -> set[str]:
        """Return the nodes of which a batch has arrived."""
        return {one.message.node for one in self.read() if isinstance(one.message, SampleBatch)}

    def marked(self) -> bool:
        """Tell whether the scorer is there."""
        return any(isinstance(one.message, Watermark) for one in self.read())


@contextmanager
def detection(folder: Path, cluster: Cluster) -> Iterator[None]:
    """Run `farside detect` meanwhile."""
    config = folder / "detect.toml"
    config.write_text(common("d1", folder / "d1", cluster) + DETECT, "utf-8")
    argv = [sys.executable, "-m", "farside.main", "detect", "--config", str(config)]
    with start(argv, stdin=False, errors="inherit"):
        yield


def happen(
    events: int, folder: Path, cluster: Cluster, bus: KafkaBus
) -> tuple[list[Event], list[Envelope], list[Envelope]]:
    """Let nodes fail one after another; return the events, what topics hold, and the commands."""
    chance = random.Random(7)  # noqa: S311  # not for secrets
    record, source = Record(bus), bus.source([COMMANDS])
    told: list[Event] = []
    commands: list[Envelope] = []
    never = threading.Event()
    wait_until(record.marked, WAIT_S, what="farside detect tells how far it is")
    for first in range(0, events + GROUP, GROUP):
        with ExitStack() as group:
            names = [f"n{number:04d}" for number in range(first, first + GROUP)]
            nodes = [group.enter_context(Node(one, folder / one, cluster)) for one in names]
            wait_until(lambda: record.nodes().issuperset(names), WAIT_S, what="agents send")  # noqa: B023
            for node in nodes:
                CLOCK.wait(never, chance.uniform(0.2, 1.2))
                written = node.fall()
                found = next_command(node.name, source)
                told.append(Event(node.name, written, CLOCK.now()))
                commands.append(found)
    return told[GROUP:], record.read(), commands[GROUP:]


def next_command(node: str, source: Source) -> Envelope:
    """Wait for the command about a node."""
    end_s = CLOCK.monotonic() + WAIT_S
    while CLOCK.monotonic() < end_s:
        for one in source.poll(100, 1.0):
            if isinstance(one.message, IsolationCommand) and one.message.scope.node == node:
                return one
    raise Unavailable(f"no command about {node} within {WAIT_S:g} s")


def split(event: Event, command: Envelope, record: Sequence[Envelope]) -> Hops:
    """Return the hops of one event."""
    line = next(
        one for one in record if isinstance(one.message, LogLine) and one.message.node == event.node
    )
    place, suspicion = next(
        (place, one)
        for place, one in enumerate(record)
        if isinstance(one.message, Suspicion) and one.message.scope.node == event.node
    )
    mark = next(
        one
        for one in record[place:]
        if isinstance(one.message, Watermark) and one.offset > suspicion.offset
    )
    stamps = (
        event.written,
        line.appended,
        suspicion.appended,
        mark.appended,
        command.appended,
        event.received,
    )
    pairs = (*itertools.pairwise(stamps), (event.written, event.received))
    return Hops._make(later.since(earlier) * 1e3 for earlier, later in pairs)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--events", type=int, default=100)
    events: int = options.parse_args().events
    logs.set_up("error", "console")
    versions = f"Kafka {kafka_version()}, Python {sys.version.split()[0]}"
    print(f"{versions}, kafka-python {version('kafka-python')}, {os.cpu_count()} processors\n")
    with tempfile.TemporaryDirectory() as folder, broker() as cluster:
        bus = open_bus(cluster, "bench")
        with detection(Path(folder), cluster):
            told, record, commands = happen(events, Path(folder), cluster, bus)
        bus.close()
    hops = [split(*pair, record) for pair in zip(told, commands, strict=True)]
    print(f"| hop, {len(hops)} events | p50 ms | p99 ms | highest ms |\n|---|---|---|---|")
    for name, values in zip(NAMES, zip(*hops, strict=True), strict=True):
        row = (percentile(values, 0.5), percentile(values, 0.99), max(values))
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in row)} |")
    print("\naims on a quiet machine: p50 at most 10 ms, p99 at most 50 ms")


if __name__ == "__main__":
    main()
