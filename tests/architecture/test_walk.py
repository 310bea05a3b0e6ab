"""docs/walk.md stays true: its names exist, and a real run calls them in that order."""

import importlib
import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from bus.memory import MemoryBus
from bus.topics import COMMANDS, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from collectors import cgroup
from collectors.agent import Agent, Identity, boot_id
from collectors.agent import Settings as AgentSettings
from detector.deciding import ActRule
from detector.worker import Core, CoreWorker, Edges, Ticker, WorkerSettings
from executors import process
from executors.base import Context
from executors.worker import ExecutorWorker
from farside.parts import Parts
from farside.settings import Settings
from notifiers import console
from notifiers.base import Context as NotifierContext
from notifiers.worker import NotifierWorker
from runtime.clock import ManualClock
from runtime.files import SysTree
from runtime.health import Health
from runtime.metrics import Metrics
from runtime.settings import Table

ROOT = Path(__file__).parents[2]
WALK = ROOT / "docs" / "walk.md"
NAME = re.compile(r"`((?:bus|collectors|detector|executors|models|notifiers)\.[\w.]+)`")
LEAK_BYTES_S = 4_000_000


def names() -> list[str]:
    return NAME.findall(WALK.read_text("utf-8"))


def resolved(name: str) -> Callable[..., Any]:
    """Return the function of a dotted name; the longest part that is a module is the module."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        assert callable(found), name
        return found  # type: ignore[no-any-return]
    raise AssertionError(name)


def test_every_name_of_the_walk_is_a_function_that_exists() -> None:
    assert len(names()) >= 20
    for name in names():
        resolved(name)


def test_a_leak_is_walked_through_in_the_order_of_the_page(tmp_path: Path) -> None:
    wanted = {resolved(name).__code__: name for name in names()}
    called: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = wanted.get(frame.f_code) if event == "call" else None
        if name is not None:
            called.append(name)

    steps = leak(tmp_path)
    threading.setprofile(note)  # the collectors run in threads of their own
    sys.setprofile(note)
    try:
        for _ in steps:
            pass
    finally:
        sys.setprofile(None)
        threading.setprofile(lambda *_: None)
    calls = iter(called)
    walked = [name for name in names() if name in calls]
    assert walked == names()


def leak(folder: Path) -> Iterator[None]:
    """Run one leaking container of a composed machine through the real parts, turn by turn.

    Only the machine that is read is composed (a v2 tree in a folder). The executor acts on the real
    one, finds no such group there, and refuses.
    """
    machine = composed_machine(folder / "machine")
    clock = ManualClock()
    bus = MemoryBus(clock)
    sink, tree = bus.sink(), SysTree(machine)
    settings = Settings(
        act={"memory_leak": {"default": ActRule(actions=("freeze",))}},
        execute={"process": Table({"own_cgroups": ["/job"]}, "execute.process")},
    )
    parts = Parts(settings)
    boot = boot_id(SysTree())
    health, metrics = Health(clock), Metrics()
    agent = Agent(
        AgentSettings(),
        {"cgroup": cgroup.build(cgroup.Settings(rescan_s=1.0), tree)},
        Identity("c", "n1", boot, "s"),
        sink=sink,
        clock=clock,
        metrics=metrics,
    )

    def core(name: str, pure: Core, topics: list[str], ticker: Ticker | None) -> CoreWorker:
        edges = Edges(bus.source(topics), sink, clock, metrics, health.heartbeat(name, 60.0))
        return CoreWorker(name, pure, edges, WorkerSettings(), ticker)

    scorer = core("scorer", parts.scorer(), [TELEMETRY], Ticker("default", 0, sink, clock))
    decider = core("decider", parts.decider(), [SUSPICIONS, REPORTS], None)
    context = Context(tree=SysTree(), clock=clock, node="n1", boot=boot, state_dir=folder)
    executor = ExecutorWorker(
        {"process": process.build(process.Settings(own_cgroups=("/job",)), context)},
        source=bus.source([COMMANDS]),
        sink=sink,
        clock=clock,
    )
    notifier = NotifierWorker(
        console.build(console.Settings(), NotifierContext(clock, stream=io.StringIO())),
        source=bus.source([INCIDENTS]),
        sink=sink,
        clock=clock,
    )
    commands, incidents = bus.source([COMMANDS]), bus.source([INCIDENTS])
    for second in range(70):
        grow(machine, 40_000_000 + LEAK_BYTES_S * max(second - 20, 0))
        agent.gather(clock.now())
        scorer.turn()
        decider.turn()
        if orders := commands.poll(100, 0.0):
            executor.turn(orders, clock.now())
        clock.advance(1.0)
        yield
    notifier.turn(incidents.poll(1000, 0.0), clock.now())
    yield


def composed_machine(root: Path) -> Path:
    """Compose a cgroup v2 machine with one container (composed from the kernel's cgroup-v2.rst)."""
    group = root / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/\n")
    (root / "proc/self/mountinfo").write_text(
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
    )
    (root / "proc/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n")
    (root / "proc/meminfo").write_text("MemTotal: 24000000 kB\nMemAvailable: 20000000 kB\n")
    (root / "sys/fs/cgroup/cgroup.controllers").write_text("memory pids\n")
    (group / "cgroup.controllers").write_text("memory pids\n")
    (group / "cgroup.procs").write_text("4242\n")
    (group / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    (group / "memory.max").write_text("240000000\n")
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
    grow(root, 40_000_000)
    return root


def grow(root: Path, anon: int) -> None:
    group = root / "sys/fs/cgroup/job"
    (group / "memory.current").write_text(f"{anon}\n")
    (group / "memory.stat").write_text(
        f"anon {anon}\nfile 0\nkernel 0\nshmem 0\nsock 0\nslab_reclaimable 0\n",
    )
