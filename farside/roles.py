"""One role of farside in a process of its own, over Kafka: collect, detect, execute or notify.

The order of starts does not matter: each role waits, with growing pauses and a sentence, until the
brokers answer and its topics are there. The agent does not wait: it keeps what it sees.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
import structlog

from bus.kafka import KafkaBus
from bus.kafka import Settings as KafkaSettings
from bus.topics import (
    AUDIT,
    COMMANDS,
    DELIVERIES,
    DIRECTIVES,
    HEALTH,
    INCIDENTS,
    INVENTORY,
    REJECTS,
    REPORTS,
    SUSPICIONS,
    TELEMETRY,
)
from farside.compose import (
    Site,
    build_collect,
    build_execute,
    build_notify,
    make_folder,
)
from farside.serving import serve
from farside.settings import EXECUTORS, NOTIFIERS, Settings, chosen
from runtime import logs
from runtime.clock import Clock
from runtime.errors import Misconfigured, Unavailable
from runtime.files import take_lock
from runtime.health import Condition, HttpServer
from runtime.retries import lot
from runtime.service import Worker
from runtime.settings import plugin_settings

if TYPE_CHECKING:
    from farside.parts import Parts

log = structlog.get_logger()

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0


@dataclass
class Role:
    """What a process runs: workers in the order of their start, and what it says at its start."""

    name: str
    workers: list[Worker]
    says: str
    notes: list[str] = field(default_factory=list)
    judge: Callable[[Settings], object] = lambda _: None


def open_bus(site: Site, role: str, writes: Iterable[str] = ()) -> KafkaBus:
    """Return the bus between processes that the configuration names; connects nothing yet.

    Errors: `Misconfigured` where it names none.
    """
    bus = site.settings.bus
    if bus.kind != "kafka":
        raise Misconfigured(
            f'farside {role} works over Kafka: set [bus] kind = "kafka" and [bus.kafka] bootstrap '
            "in the file that --config or FARSIDE_CONFIG names "
            "(farside up runs everything in one process, without Kafka)"
        )
    return KafkaBus(
        plugin_settings(bus.kafka, KafkaSettings),
        site.clock,
        cluster=site.settings.farside.cluster,
        role=f"{role}@{site.node}",
        writes=writes,
        jitter=_draws(f"{site.node} {role}", site.clock),
    )


def _draws(name: str, clock: Clock) -> Callable[[], float]:
    """Return draws from 0.5 to 1.5 that differ between processes: they don't all come at once."""
    tries = 0

    def draw() -> float:
        nonlocal tries
        tries += 1
        return 0.5 + lot(name, int(clock.now()), tries)

    return draw


class Awaiting:
    """A worker that begins when the bus is there."""

    def __init__(
        self,
        worker: Worker,
        bus: KafkaBus,
        topics: Iterable[str],
        site: Site,
        beat: Callable[[], None],
    ) -> None:
        """Run `worker` once `topics` are there; `beat` shows life until then."""
        self.name = worker.name
        self._worker = worker
        self._bus = bus
        self._topics = tuple(topics)
        self._clock = site.clock
        self._beat = beat
        self._there: Condition = site.health.condition(
            f"bus of {worker.name}", f"waiting for Kafka at {bus.address}"
        )

    def run(self, stop: threading.Event) -> None:
        """Wait, saying each new reason once, then work."""
        told, pause_s = "", _FIRST_PAUSE_S
        while not stop.is_set():
            self._beat()
            try:
                self._bus.ready(self._topics)
            except Unavailable as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("waiting for the bus", worker=self.name, why=told)
                self._there.unmet(told)
                self._clock.wait(stop, pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                break
        else:
            return
        if told:
            log.info("the bus is there", worker=self.name)
        self._there.met(f"Kafka at {self._bus.address}")
        self._worker.run(stop)


class Closing:
    """The last worker to end: it lets go of what the others shared."""

    name = "bus"

    def __init__(self, close: Callable[[], None]) -> None:
        """Call `close` at the end."""
        self._close = close

    def run(self, stop: threading.Event) -> None:
        """Wait for the end."""
        stop.wait()
        self._close()


def awaiting(
    site: Site, bus: KafkaBus, workers: Mapping[str, Worker], topics: Iterable[str]
) -> list[Worker]:
    """Return the workers, each waiting for the bus; keys are the names of their heartbeats."""
    wanted = tuple(topics)
    return [
        Awaiting(worker, bus, wanted, site, partial(site.health.beat, name))
        for name, worker in workers.items()
    ]


def collect(site: Site) -> Role:
    """Return the agent of a node. It does not wait for the bus: it keeps what it sees."""
    bus = open_bus(site, "collect", [TELEMETRY])
    agent, blind = build_collect(site, bus.sink(), durable=True)
    identity = site.settings.farside
    says = f"node {site.node} of cell {identity.cell} to Kafka at {bus.address}"
    return Role("collect", [Closing(bus.close), agent], says, blind)


def detect(
    site: Site,
    cells: Iterable[str] = (),
    *,
    decides: bool = True,
    group: str = "",
    crash: Callable[[str, str], None] = lambda _worker, _point: None,
) -> Role:
    """Return scorers of `cells` (none: all that the table names) and, if it `decides`, the decider.

    There is one decider in a fleet. `group`: the cells are those that a consumer group of this name
    gives to this process, and change while it runs. `crash(worker, point)` is called at the named
    points of `CoreWorker`, for tests that kill there.
    """
    # numpy comes with these: a node that only collects does without.
    from farside.detecting import Lease, build_decider
    from farside.parts import Parts

    parts = Parts(site.settings)
    table = site.settings.bus.cells
    own = list(cells) or list(table) or [site.settings.farside.cell]
    writes = [TELEMETRY, SUSPICIONS, REJECTS]
    writes += [INCIDENTS, COMMANDS, HEALTH, AUDIT] if decides else []
    bus = open_bus(site, "detect", writes)
    workers: list[Worker] = [Closing(bus.close)]
    if decides:
        take_lock(site.state_dir / "decider")
        reads = [SUSPICIONS, REPORTS, INVENTORY, DIRECTIVES]
        hit = partial(crash, "decider")
        decider = Lease(bus, lambda on: build_decider(site, on, parts, hit, durable=True))
        workers += awaiting(site, bus, {"decider": decider}, [*reads, *writes])
    scorer_of = partial(_scorer, site, bus, parts, partial(crash, "scorer"))
    if group:
        waits = _shared(site, bus, group, scorer_of)
        workers += awaiting(site, bus, {"cells": waits}, writes)
    for cell in () if group else own:
        take_lock(site.state_dir / f"scorer-{cell}")
        workers += awaiting(site, bus, {f"scorer-{cell}": scorer_of(cell)}, writes)
    cells_of = f"cells of group {group}" if group else f"cells {', '.join(own)}"
    what = f"{cells_of}{' and the decider' if decides else ''}"
    says = f"{what} from Kafka at {bus.address}"
    return Role("detect", workers, says, _acting(site), Parts)


def _scorer(
    site: Site, bus: KafkaBus, parts: "Parts", crash: Callable[[str], None], cell: str
) -> Worker:
    from farside.detecting import Lease, build_scorer

    return Lease(bus, lambda on: build_scorer(site, on, parts, cell, crash))


def _shared(site: Site, bus: KafkaBus, group: str, scorer_of: Callable[[str], Worker]) -> Worker:
    from farside.detecting import SharedCells

    def cell_of(partition: int) -> str:
        return site.settings.bus.cell_of(partition, site.settings.farside.cell)

    return SharedCells(
        partial(bus.membership, TELEMETRY, group),
        lambda partition: scorer_of(cell_of(partition)),
        lambda partition: site.health.forget(f"scorer-{cell_of(partition)}"),
        site.clock,
        site.metrics,
        site.health.heartbeat("cells", 30.0).beat,
    )


def execute(site: Site) -> Role:
    """Return the executors of this node or scheduler."""
    bus = open_bus(site, "execute", [REPORTS])
    worker, cannot = build_execute(site, bus)
    waits = awaiting(site, bus, {"executor": worker}, [COMMANDS, REPORTS])
    names = ", ".join(chosen(site.settings.execute, EXECUTORS))
    says = f"{names} on {site.node} from Kafka at {bus.address}"
    return Role("execute", [Closing(bus.close), *waits], says, cannot)


def notify(site: Site, stream: TextIO) -> Role:
    """Return the notifiers; one that prints writes to `stream`."""
    bus = open_bus(site, "notify", [DELIVERIES])
    workers, cannot = build_notify(site, bus, stream, durable=True)
    waits = awaiting(
        site, bus, {one.name: one for one in workers}, [INCIDENTS, COMMANDS, DELIVERIES]
    )
    names = ", ".join(chosen(site.settings.notify, NOTIFIERS))
    return Role("notify", [Closing(bus.close), *waits], f"{names}, Kafka at {bus.address}", cannot)


def _acting(site: Site) -> list[str]:
    told = site.about()
    return [f"acting is {'on: ' + told.acting_on if told.acting else 'off: nothing is touched'}"]


def run(site: Site, config: Path | None, make: Callable[[Site], Role]) -> int:
    """Run a role until it is asked to end; return the exit code."""
    settings = site.settings
    logs.set_up(settings.farside.log_level, settings.farside.log_format)
    make_folder(site.state_dir)
    http = settings.http
    servers: list[Worker] = []
    role = make(site)
    port = None
    if http.enabled:
        server = HttpServer(http.address, http.port, site.metrics, site.health)
        port = server.port
        servers.append(server)
    click.echo(f"farside {role.name}: {role.says}; Ctrl-C ends it")
    if port is not None:
        click.echo(f"metrics and health on http://{http.address}:{port}/metrics")
    for note in role.notes:
        click.echo(f"  {note}")
    serve(site, config, [*servers, *role.workers], role.judge)
    return 0
