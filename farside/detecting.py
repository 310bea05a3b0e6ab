"""The parts of detection, joined: a scorer for each cell, one decider for the fleet."""

from collections.abc import Callable, Iterable

from bus.topics import DIRECTIVES, INVENTORY, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Bus, Sink, Source
from detector.checkpoint import CheckpointFile, unharmed
from detector.journal import Journal
from detector.worker import CoreWorker, Edges, Ticker, WorkerSettings
from farside.compose import Site
from farside.parts import Parts
from runtime.service import Worker


def build_scorers(
    site: Site,
    bus: Bus,
    parts: Parts,
    cells: Iterable[str],
    crash: Callable[[str], None] = unharmed,
) -> list[Worker]:
    """Return a scorer's worker for each of these cells."""
    workers: list[Worker] = []
    for cell in cells:
        partition = site.settings.bus.partition_of(cell)
        sink = bus.sink()
        place = (TELEMETRY, partition)
        edges = _edges(site, f"scorer-{cell}", bus.source([place]), sink, parts.fingerprint())
        name = "scorer" if len(site.settings.bus.cells) < 2 else f"scorer-{cell}"
        scorer = parts.scorer(partition)
        ticker = Ticker(cell, partition, sink, site.clock)
        workers.append(CoreWorker(name, scorer, edges, WorkerSettings(), ticker, crash))
    return workers


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
