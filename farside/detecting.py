"""The parts of detection, joined: a scorer for each cell, one decider for the fleet."""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from bus.topics import DIRECTIVES, INVENTORY, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Bus, Place, Sink, Source, Start
from detector.checkpoint import CheckpointFile, unharmed
from detector.journal import Journal
from detector.worker import CoreWorker, Edges, Ticker, WorkerSettings
from farside.compose import Site
from farside.parts import Parts
from runtime.clock import Clock
from runtime.errors import Unavailable
from runtime.metrics import Metrics
from runtime.service import Service, Worker

log = structlog.get_logger()

_LOOK_S = 0.5
_RELEASE_S = 10.0
_CLOSE_S = 1.0


def build_scorer(
    site: Site,
    bus: Bus,
    parts: Parts,
    cell: str,
    crash: Callable[[str], None] = unharmed,
) -> Worker:
    """Return the worker of a cell's scorer."""
    partition = site.settings.bus.partition_of(cell)
    sink = bus.sink()
    source = bus.source([(TELEMETRY, partition)])
    edges = _edges(site, f"scorer-{cell}", source, sink, parts.fingerprint())
    name = "scorer" if len(site.settings.bus.cells) < 2 else f"scorer-{cell}"
    ticker = Ticker(cell, partition, sink, site.clock)
    return CoreWorker(name, parts.scorer(partition), edges, WorkerSettings(), ticker, crash)


def build_decider(
    site: Site,
    bus: Bus,
    parts: Parts,
    crash: Callable[[str], None] = unharmed,
    *,
    durable: bool = False,
) -> Worker:
    """Return the decider's worker: one for the fleet; durable: with its journal."""
    source = bus.source([SUSPICIONS, REPORTS, INVENTORY, DIRECTIVES])
    edges = _edges(site, "decider", source, bus.sink(), "1")
    if durable:
        edges = edges._replace(journal=Journal(site.state_dir, "decider"))
    return CoreWorker("decider", parts.decider(), edges, WorkerSettings(), None, crash)


def _edges(site: Site, name: str, source: Source, sink: Sink, fingerprint: str) -> Edges:
    return Edges(
        source=source,
        sink=sink,
        clock=site.clock,
        metrics=site.metrics,
        heartbeat=site.health.heartbeat(name, 30.0),
        checkpoint=CheckpointFile(site.state_dir, name, fingerprint),
    )


class Lease:
    """A bus and a worker on it: when that ends, so do the readers and writers that it was given."""

    def __init__(self, bus: Bus, build: Callable[[Bus], Worker]) -> None:
        """Build the worker on this lease of `bus`."""
        self._bus = bus
        self._given: list[Source] = []
        self._sinks: list[Sink] = []
        self._worker = build(self)
        self.name = self._worker.name

    def sink(self) -> Sink:
        """Return a writer."""
        self._sinks.append(self._bus.sink())
        return self._sinks[-1]

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> Source:
        """Return a reader."""
        self._given.append(self._bus.source(places, start))
        return self._given[-1]

    def run(self, stop: threading.Event) -> None:
        """Run the worker until it is told to stop, then close what it was given."""
        self._worker.run(stop)
        for source in self._given:
            source.close()
        for sink in self._sinks:
            sink.close(_CLOSE_S)


class Member(Protocol):
    """What tells which partitions are ours (`bus.kafka.membership`)."""

    def own(self, timeout_s: float) -> frozenset[int]:
        """Return the partitions that are ours now."""

    def close(self) -> None:
        """Give them back."""


class SharedCells:
    """A worker that scores the cells which a group gives it.

    A cell is restored when it comes and saved when it goes; processes of one group share a state
    folder, so that the next owner finds the state.
    """

    name = "cells"

    def __init__(
        self,
        member: Callable[[Callable[[frozenset[int]], None]], Member],
        build: Callable[[int], Worker],
        gone: Callable[[int], None],
        clock: Clock,
        metrics: Metrics,
        beat: Callable[[], None],
    ) -> None:
        """Join through `member(released)`; `build(partition)` makes the scorer of one cell.

        `gone(partition)` is called when it has ended.
        """
        self._member = member(self._release)
        self._build = build
        self._gone = gone
        self._clock = clock
        self._metrics = metrics
        self._beat = beat
        self._scoring: dict[int, Service] = {}

    def run(self, stop: threading.Event) -> None:
        """Take and give back cells until `stop`; then save all and leave the group."""
        while not stop.is_set():
            self._beat()
            try:
                own = self._member.own(_LOOK_S)
            except Unavailable as error:
                log.warning("the group can't be asked", why=str(error))
                self._clock.wait(stop, error.retry_after_s)
                continue
            self._release(frozenset(self._scoring) - own)
            for partition in sorted(own - self._scoring.keys()):
                self._take(partition)
        self._release(frozenset(self._scoring))
        self._member.close()

    def _take(self, partition: int) -> None:
        scoring = self._scoring[partition] = Service(
            [self._build(partition)], self._clock, self._metrics
        )
        log.info("a cell is ours", partition=partition)
        scoring.start()

    def _release(self, partitions: frozenset[int]) -> None:
        """Stop these scorers and wait until their state is saved."""
        for partition in sorted(partitions & self._scoring.keys()):
            self._scoring.pop(partition).stop(_RELEASE_S)
            self._gone(partition)
            log.info("a cell was given back", partition=partition)
