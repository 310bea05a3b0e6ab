"""Where concrete parts meet: each `build_…` makes a role, over whichever bus it is given."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import structlog

from bus.topics import (
    COMMANDS,
    DELIVERIES,
    INCIDENTS,
    REPORTS,
)
from bus.transport import Bus, Sink
from collectors.agent import Agent, boot_id, identify
from collectors.agent import Settings as AgentSettings
from executors.base import Context
from executors.worker import ExecutorWorker
from executors.worker import Settings as ExecutorSettings
from farside.settings import COLLECTORS, EXECUTORS, NOTIFIERS, Settings, chosen
from farside.view.snapshot import About
from notifiers.base import Context as NotifierContext
from notifiers.worker import NotifierWorker
from notifiers.worker import Settings as NotifierSettings
from runtime import plugins
from runtime.clock import Clock, SystemClock
from runtime.errors import NotPermitted
from runtime.files import SysTree
from runtime.health import Health
from runtime.metrics import Metrics
from runtime.service import Worker
from runtime.settings import plugin_settings

log = structlog.get_logger()


@dataclass
class Site:
    """What all roles on one machine share; `machine` is given where it is not the settings' own."""

    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    machine: SysTree | None = None
    metrics: Metrics = field(default_factory=lambda: Metrics(process=True))
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def __post_init__(self) -> None:
        """Find out who we are."""
        self.tree = self.machine or SysTree(self.settings.farside.root or "/")
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


def build_collect(site: Site, sink: Sink, *, durable: bool = False) -> tuple[Agent, list[str]]:
    """Return the agent with its collectors, and a sentence for each thing that it can't see.

    durable: what the bus does not take is kept on disk, too.
    """
    collectors = {}
    for name, table in chosen(site.settings.collect, COLLECTORS).items():
        module = plugins.load("collectors", name)
        collectors[name] = module.build(plugin_settings(table, module.Settings), site.tree)
    identity = site.settings.farside
    agent = Agent(
        plugin_settings(site.settings.agent, AgentSettings),
        collectors,
        identify(identity.cluster, site.node, site.tree, site.clock.now()),
        sink=sink,
        clock=site.clock,
        metrics=site.metrics,
        partition=site.settings.bus.partition_of(identity.cell),
        beat=site.health.heartbeat("agent", 30.0).beat,
        folder=site.state_dir / "spool" if durable else None,
    )
    notes = [
        f"{name}: {sentence}"
        for name, collector in collectors.items()
        for sentence in collector.cannot_see()
    ]
    return agent, notes


def build_execute(site: Site, bus: Bus) -> tuple[Worker, list[str]]:
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
    settings = plugin_settings(site.settings.executor, ExecutorSettings)
    beat = site.health.heartbeat("executor", 30.0)
    worker = ExecutorWorker(
        executors,
        source=bus.source([COMMANDS], site.clock.now().plus(-settings.look_back_s)),
        sink=bus.sink(),
        clock=site.clock,
        settings=settings,
        metrics=site.metrics,
        past=bus.source([REPORTS]),
        beat=beat.beat,
    )
    notes = [f"{name}: {s}" for name, executor in executors.items() for s in executor.cannot()]
    return worker, notes


def build_notify(
    site: Site, bus: Bus, stream: TextIO, *, durable: bool = False
) -> tuple[list[Worker], list[str]]:
    """Return a worker for each notifier, and a sentence for each thing that one can't do.

    A notifier that prints writes to `stream`; durable: the bus outlives this process.
    """
    context = NotifierContext(
        clock=site.clock,
        cluster=site.settings.farside.cluster,
        node=site.node,
        stream=stream,
    )
    settings = plugin_settings(site.settings.notifier, NotifierSettings)
    workers: list[Worker] = []
    notes: list[str] = []
    for name, table in chosen(site.settings.notify, NOTIFIERS).items():
        module = plugins.load("notifiers", name)
        notifier = module.build(plugin_settings(table, module.Settings), context)
        notes += [f"{name}: {sentence}" for sentence in notifier.cannot()]
        beat = site.health.heartbeat(f"notifier-{name}", 30.0)
        begin = site.clock.now().plus(-settings.look_back_s)
        workers.append(
            NotifierWorker(
                notifier,
                source=bus.source([INCIDENTS, COMMANDS], begin),
                sink=bus.sink(),
                clock=site.clock,
                settings=settings,
                metrics=site.metrics,
                past=bus.source([DELIVERIES]),
                dead_letters=site.state_dir / f"dead-letters-{name}.jsonl",
                durable=durable,
                beat=beat.beat,
            ),
        )
    return workers, notes


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
