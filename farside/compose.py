"""Where concrete parts meet: each `build_…` makes a role, `build_up` all of them in one process."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, TextIO

import structlog

from bus.memory import MemoryBus
from bus.topics import (
    COMMANDS,
    DELIVERIES,
    DIRECTIVES,
    INCIDENTS,
    INVENTORY,
    REPORTS,
    SUSPICIONS,
    TELEMETRY,
    TOPICS,
)
from bus.transport import Sink
from collectors.agent import Agent, boot_id, identify
from collectors.agent import Settings as AgentSettings
from detector.checkpoint import CheckpointFile
from detector.worker import CoreWorker, Edges, Ticker, WorkerSettings
from executors.base import Context
from executors.worker import ExecutorWorker
from farside.explaining import explained, page_of
from farside.local import Ask, LocalServer
from farside.parts import Parts
from farside.recording import Recorder
from farside.settings import COLLECTORS, EXECUTORS, NOTIFIERS, Settings, chosen
from farside.view.snapshot import About
from farside.view.story import Story
from farside.watching import Watcher
from notifiers.base import Context as NotifierContext
from notifiers.worker import NotifierWorker
from runtime import plugins
from runtime.clock import Clock, SystemClock
from runtime.errors import FarsideError, NotPermitted, Rejected
from runtime.files import SysTree
from runtime.health import Health, HttpServer
from runtime.metrics import Metrics
from runtime.service import Worker
from runtime.settings import plugin_settings

log = structlog.get_logger()


@dataclass
class Site:
    """What all roles on one machine share."""

    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    tree: SysTree = field(default_factory=SysTree)
    metrics: Metrics = field(default_factory=lambda: Metrics(process=True))
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def __post_init__(self) -> None:
        """Find out who we are."""
        self.health = Health(self.clock)
        self.node = self.settings.farside.node_name()
        self.boot = boot_id(self.tree)
        self.state_dir = self.settings.farside.state_path()

    def about(self) -> About:
        """Return what a screen says of this farside that no record tells."""
        rules = [
            f"{' and '.join(rule.actions)} for {fault} in pool {pool}"
            for fault, pools in self.settings.act.items()
            for pool, rule in pools.items()
            if rule.actions
        ]
        return About(
            host=self.node,
            watching=", ".join(chosen(self.settings.collect, COLLECTORS)),
            acting=bool(rules),
            acting_on="; ".join(rules),
            started=self.clock.now(),
            version=version("farside"),
        )


@dataclass
class Assembly:
    """Everything that `up` runs, in the order of its start."""

    bus: MemoryBus
    story: Story
    workers: list[Worker]
    notes: list[str]
    port: int | None


def build_collect(site: Site, sink: Sink) -> tuple[Agent, list[str]]:
    """Return the agent with its collectors, and a sentence for each thing that it can't see."""
    collectors = {}
    for name, table in chosen(site.settings.collect, COLLECTORS).items():
        module = plugins.load("collectors", name)
        collectors[name] = module.build(plugin_settings(table, module.Settings), site.tree)
    agent = Agent(
        plugin_settings(site.settings.agent, AgentSettings),
        collectors,
        identify(site.settings.farside.cluster, site.node, site.tree, site.clock.now()),
        sink=sink,
        clock=site.clock,
        metrics=site.metrics,
        beat=site.health.heartbeat("agent", 30.0).beat,
    )
    notes = [
        f"{name}: {sentence}"
        for name, collector in collectors.items()
        for sentence in collector.cannot_see()
    ]
    return agent, notes


def build_detect(site: Site, bus: MemoryBus, parts: Parts) -> list[Worker]:
    """Return the scorer's and the decider's workers."""
    cell = site.settings.farside.cell
    sink = bus.sink()

    def edges(name: str, topics: list[str], fingerprint: str) -> Edges:
        return Edges(
            source=bus.source(topics),
            sink=sink,
            clock=site.clock,
            metrics=site.metrics,
            heartbeat=site.health.heartbeat(name, 30.0),
            checkpoint=CheckpointFile(site.state_dir, name, fingerprint),
        )

    scorer = CoreWorker(
        "scorer",
        parts.scorer(),
        edges(f"scorer-{cell}", [TELEMETRY], parts.fingerprint()),
        WorkerSettings(),
        Ticker(cell, 0, sink, site.clock),
    )
    decider = CoreWorker(
        "decider",
        parts.decider(),
        edges("decider", [SUSPICIONS, REPORTS, INVENTORY, DIRECTIVES], "1"),
        WorkerSettings(),
    )
    return [scorer, decider]


def build_execute(site: Site, bus: MemoryBus) -> tuple[Worker, list[str]]:
    """Return the executors' worker, and a sentence for each thing that they can't do here."""
    context = Context(
        tree=site.tree,
        clock=site.clock,
        node=site.node,
        boot=site.boot,
        state_dir=site.state_dir,
    )
    executors = {}
    for name, table in chosen(site.settings.execute, EXECUTORS).items():
        module = plugins.load("executors", name)
        executors[name] = module.build(plugin_settings(table, module.Settings), context)
    beat = site.health.heartbeat("executor", 30.0)
    worker = ExecutorWorker(
        executors,
        source=bus.source([COMMANDS]),
        sink=bus.sink(),
        clock=site.clock,
        metrics=site.metrics,
        past=bus.source([REPORTS]),
        beat=beat.beat,
    )
    notes = [f"{name}: {s}" for name, executor in executors.items() for s in executor.cannot()]
    return worker, notes


def build_notify(site: Site, bus: MemoryBus, stream: TextIO) -> list[Worker]:
    """Return a worker for each notifier; one that prints writes to `stream`."""
    context = NotifierContext(
        clock=site.clock,
        cluster=site.settings.farside.cluster,
        node=site.node,
        stream=stream,
    )
    workers: list[Worker] = []
    for name, table in chosen(site.settings.notify, NOTIFIERS).items():
        module = plugins.load("notifiers", name)
        notifier = module.build(plugin_settings(table, module.Settings), context)
        beat = site.health.heartbeat(f"notifier-{name}", 30.0)
        workers.append(
            NotifierWorker(
                notifier,
                source=bus.source([INCIDENTS, COMMANDS]),
                sink=bus.sink(),
                clock=site.clock,
                metrics=site.metrics,
                past=bus.source([DELIVERIES]),
                beat=beat.beat,
            ),
        )
    return workers


def build_up(site: Site, stream: TextIO, record: Path | None = None) -> Assembly:
    """Return every role in one process over the in-process bus.

    Errors: `Misconfigured`, `NotPermitted`, each with the sentence that mends it.
    """
    settings = site.settings
    make_folder(site.state_dir)
    bus = MemoryBus(site.clock, settings.bus.records_max, settings.bus.bytes_max)
    parts = Parts(settings)
    # Readers are made before anything writes, so that each sees the log from its beginning.
    story = Story(about=site.about())
    workers: list[Worker] = [Watcher(story, bus.source(list(TOPICS)))]
    if record is not None:
        workers.append(Recorder(record, bus.source(list(TOPICS))))
    workers += build_notify(site, bus, stream)
    executor, cannot = build_execute(site, bus)
    workers += [executor, *build_detect(site, bus, parts)]
    agent, blind = build_collect(site, bus.sink())
    workers.append(agent)
    servers = _servers(site, story)
    workers += servers
    port = next((server.port for server in servers if isinstance(server, HttpServer)), None)
    return Assembly(bus, story, workers, [*blind, *cannot], port)


def _servers(site: Site, story: Story) -> list[HttpServer | LocalServer]:
    """Return what listens; where one can't, the other gives its place back."""
    http = site.settings.http
    servers: list[HttpServer | LocalServer] = []
    if http.enabled:
        servers.append(HttpServer(http.address, http.port, site.metrics, site.health))
    try:
        servers.append(LocalServer(site.state_dir, answers(story, site.clock)))
    except FarsideError:
        for server in servers:
            server.close()
        raise
    return servers


class Answers(Protocol):
    """What a local server asks."""

    def __call__(self, question: Ask) -> str:
        """Answer one question."""


def answers(story: Story, clock: Clock) -> Answers:
    """Return the function that answers `top` and `explain`."""

    def answer(question: Ask) -> str:
        if question.want == "alive":
            return "yes"
        if question.want == "snapshot":
            return story.snapshot(clock.now()).to_json().decode()
        if question.want in {"explain", "explain-json"}:
            return explained(story, question.name, as_json=question.want == "explain-json")
        if question.want == "page":
            return page_of(story, question.name)
        msg = f"no answer to {question.want[:40]!r}"
        raise Rejected(msg)

    return answer


def make_folder(path: Path) -> None:
    """Make the state folder; `NotPermitted` with the remedy where that can't be."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "permission denied")
    except OSError as error:
        msg = (
            f"{path} can't be used as state_dir ({(error.strerror or '').lower()}): "
            f"set [farside] state_dir, or FARSIDE__FARSIDE__STATE_DIR, to a folder of this user"
        )
        raise NotPermitted(msg) from None
