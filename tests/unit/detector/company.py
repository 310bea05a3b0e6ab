"""A scorer, a decider and an executor over one in-process bus, which can be killed at named points.

Composed: two nodes at 1 Hz. On n1 one container leaks 4 MB/s and is frozen, later a GPU falls off
the bus; on n2 another one leaks slower; a person releases what is held on n1.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from bus.codec import encode
from bus.memory import MemoryBus
from bus.messages import (
    Directive,
    ExecutionReport,
    IsolationCommand,
    LogLine,
    Message,
    SampleBatch,
    Scope,
)
from bus.topics import COMMANDS, DIRECTIVES, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Bus, Envelope, Place, Source, Start
from detector.checkpoint import CheckpointFile
from detector.decider import Decider
from detector.deciding import ActRule, DeciderSettings
from detector.journal import Journal, Range
from detector.worker import Core, CoreWorker, Edges, Ticker, WorkerSettings
from runtime.clock import ManualClock
from runtime.health import Health
from runtime.metrics import Metrics
from tests.unit.detector.cells import BEGIN, MB, Node, flat, leak, scorer

ACT = {
    "memory_leak": {"default": ActRule(actions=("freeze",))},
    "gpu_off_bus": {"default": ActRule(actions=("hold",))},
}
DECIDING = DeciderSettings(
    quiet_s=8.0, hold_s=15.0, cooldown_s=3.0, acts_per_hour=600.0, held_max=8, held_percent=100.0
)
DECIDER_READS = (SUSPICIONS, REPORTS, DIRECTIVES)
POINTS = ("after poll", "after journal", "after publish", "before save", "during save")


class Killed(Exception):
    """The end of a worker at a named point."""


class Killer:
    """Lets a worker live until it comes to `point` for the `nth` time."""

    def __init__(self, point: str = "", nth: int = 1) -> None:
        self.point = point
        self.left = nth

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                raise Killed(point)


class Company:
    """All workers, made anew after each kill over the same bus and files."""

    def __init__(
        self, folder: Path, poll_max: int = 2, lot: np.random.Generator | None = None
    ) -> None:
        self.lot = lot
        self.deciding = DECIDING
        self.decider: Callable[[], Decider] = lambda: decider(self.deciding)
        self.folder = folder
        self.clock = ManualClock(BEGIN)
        self.bus = MemoryBus(self.clock)
        self.metrics = Metrics()
        self.killers = {"scorer": Killer(), "decider": Killer()}
        self.kills = 0
        self._settings = WorkerSettings(poll_max=poll_max, save_s=3.0)
        self._health = Health(self.clock)
        self._answered: set[str] = set()
        self._readers: dict[str, Source] = {}
        self._orders = self.bus.source([COMMANDS])
        self.workers: dict[str, CoreWorker] = {}

    def hire(self, name: str) -> CoreWorker:
        """Make a worker, restored."""
        core: Core = scorer() if name == "scorer" else self.decider()
        bus: Bus = self.bus
        if name == "decider" and self.lot is not None:
            bus = ShuffledBus(bus, self.lot)
        reader = bus.source([TELEMETRY] if name == "scorer" else DECIDER_READS)
        self._readers[name] = reader
        edges = Edges(
            source=reader,
            sink=bus.sink(),
            clock=self.clock,
            metrics=self.metrics,
            heartbeat=self._health.heartbeat(name, 30.0),
            checkpoint=CheckpointFile(self.folder, name, "1"),
            journal=Journal(self.folder, name) if name == "decider" else None,
        )
        ticker = Ticker("cell", 0, edges.sink, self.clock) if name == "scorer" else None
        worker = CoreWorker(name, core, edges, self._settings, ticker, self.killers[name])
        self.workers[name] = worker
        worker.restore()
        return worker

    def attempt(self, name: str, work: Callable[[CoreWorker], None]) -> None:
        """Let a worker work; where it is killed, hire another one and let it try again."""
        while True:
            try:
                work(self.workers.get(name) or self.hire(name))
            except Killed:
                self.kills += 1
                del self.workers[name]
            else:
                return

    def second(self, messages: list[tuple[str, Message]]) -> None:
        """Let a second pass in which these messages come."""
        for topic, message in messages:
            self.bus.sink().send(topic, "", message)
        for name in ("scorer", "decider"):
            self.attempt(name, self._catch_up)
        self._answer()
        if int(self.clock.monotonic()) % 3 == 0:
            for name in ("scorer", "decider"):
                self.attempt(name, CoreWorker.save)
        self.clock.advance(1.0)

    def _catch_up(self, worker: CoreWorker) -> None:
        """Turn until everything is read, or by lot."""
        if self.lot is not None and worker.name == "decider":
            for _ in range(self.lot.integers(3, 9)):
                worker.turn()
            return
        worker.turn()
        while any(self._readers[worker.name].lag().values()):
            worker.turn()

    def _answer(self) -> None:
        """Carry out what is new, as an executor that recognises repeats."""
        for envelope in self._orders.poll(1000, 0.0):
            order = envelope.message
            if not isinstance(order, IsolationCommand) or order.id in self._answered:
                continue
            self._answered.add(order.id)
            report = ExecutionReport(
                command=order.id,
                executor=order.executor,
                outcome="done",
                detail="",
                finished=self.clock.now(),
                held_until=order.hold_until,
            )
            self.bus.sink().send(REPORTS, order.id, report)

    def said(self, *topics: str) -> list[Message]:
        """Return what was published on these topics, repeats left out."""
        found: dict[bytes, Message] = {}
        for envelope in self.everything(*topics or (INCIDENTS, COMMANDS)):
            found.setdefault(encode(envelope.message), envelope.message)
        return list(found.values())

    def replayed(self) -> list[Message]:
        """Return what an undisturbed decider says to the same records in the journal's order."""
        pure = self.decider()
        found: dict[bytes, Message] = {}
        for turn, problem in Journal(self.folder, "decider").read():
            assert turn is not None, problem
            for one in turn.ranges:
                for output in pure.step(self.bus.source([one.place]).reread(*_args(one))):
                    if output.topic in {INCIDENTS, COMMANDS}:
                        found.setdefault(encode(output.message), output.message)
        return list(found.values())

    def everything(self, *topics: str) -> list[Envelope]:
        """Return all that is on these topics."""
        return self.bus.source(topics).poll(1_000_000, 0.0)


class Shuffled:
    """A reader that takes from its topics by lot, so that no two runs see the same order."""

    def __init__(self, inner: Source, lot: np.random.Generator) -> None:
        self._inner = inner
        self._lot = lot
        self.reread = inner.reread
        self.seek = inner.seek
        self.positions = inner.positions
        self.lag = inner.lag
        self.skipped = inner.skipped
        self.log = inner.log
        self.close = inner.close

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
        del timeout_s
        taken: list[Envelope] = []
        waiting = [(place, number) for place, number in self.lag().items() if number]
        for which in self._lot.permutation(len(waiting)):
            place, number = waiting[which]
            at = self.positions()[place]
            taken += self.reread(place, at, at + int(self._lot.integers(min(number, limit) + 1)))
        return taken


class ShuffledBus:
    """Gives such readers."""

    def __init__(self, bus: Bus, lot: np.random.Generator) -> None:
        self.sink = bus.sink
        self._bus = bus
        self._lot = lot

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> Source:
        return Shuffled(self._bus.source(places, start), self._lot)


def _args(one: Range) -> tuple[Place, int, int]:
    return one.place, one.first, one.end


def decider(deciding: DeciderSettings = DECIDING) -> Decider:
    return Decider(deciding, ACT, executors=("process", "slurm"))


def script(seconds: int = 75) -> Iterator[list[tuple[str, Message]]]:
    """Give what comes in each second."""
    nodes = [
        Node(
            "n1",
            containers={
                "/jobs/1@11": (leak(40 * MB, 4 * MB, 15.0), 200 * MB),
                "/jobs/2@12": (flat(60 * MB), 250 * MB),
            },
        ),
        Node("n2", containers={"/jobs/3@13": (leak(40 * MB, 5 * MB, 25.0), 260 * MB)}),
    ]
    for second in range(seconds):
        coming: list[tuple[str, Message]] = [(TELEMETRY, _batch(node, second)) for node in nodes]
        if second == 50:
            coming.append((TELEMETRY, _off_the_bus(nodes[0], second)))
        if second == 58:
            coming.append((DIRECTIVES, _release(second)))
        yield coming


def _batch(node: Node, second: int) -> SampleBatch:
    return node.batch(float(second))


def _off_the_bus(node: Node, second: int) -> LogLine:
    return node.line(
        float(second),
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        kind="gpu_off_bus",
        code="79",
        device="0000:3b:00",
        severity="fatal",
    )


def _release(second: int) -> Directive:
    return Directive(
        id="d1",
        who="ada",
        kind="release",
        scope=Scope("node", "cell", "n1"),
        time=BEGIN.plus(second),
    )


def play(company: Company, seconds: int = 75) -> Company:
    """Play the whole script."""
    for coming in script(seconds):
        company.second(coming)
    return company
