"""One run of the demo: real processes under limits of their own, farside beside them, a verdict."""

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from bus.topics import TOPICS
from bus.transport import Envelope, Source
from farside.compose import Site
from farside.demo.arena import Arena
from farside.demo.draw import draw
from farside.demo.judge import Result, judge
from farside.demo.plan import Plan
from farside.demo.truth import Truth
from farside.settings import read_settings
from farside.view.cases import Truth as PageTruth
from farside.view.page import incident_page
from farside.view.terminal import Screen
from farside.whole import Assembly, build_up
from runtime import logs
from runtime.clock import Clock, SystemClock
from runtime.files import SysTree
from runtime.service import Service
from runtime.wait import wait_until

LOOK_S = 0.25
AFTER_S = 4.0  # what still has to be seen once the leak's limit would have been met
DEATH_S = 15.0  # a leak that nobody stops has died by then
MEMORY_SHARE = 0.5  # of what is available, for all processes of the demo together


@dataclass(frozen=True)
class Wishes:
    """What the person asked for."""

    seed: int
    leak: bool = True
    hard: bool = False
    act: bool = True
    containers: bool = True


class Records:
    """A worker that keeps everything that passed over the bus, for the judge."""

    name = "records"

    def __init__(self, source: Source) -> None:
        """Keep what `source` gives."""
        self._source = source
        self.kept: list[Envelope] = []

    def run(self, stop: threading.Event) -> None:
        """Read until `stop`."""
        while not stop.is_set():
            self.kept += self._source.poll(1000, 0.5)
        self.kept += self._source.poll(10_000, 0.0)


def perform(
    wishes: Wishes,
    folder: Path,
    say: Callable[[str], None],
    screen: Screen | None,
    record: Path | None = None,
) -> tuple[Plan, Result, Assembly]:
    """Perform one run in `folder` and judge it.

    `screen` None shows nothing while it runs; `record` is written as `up --record` does.

    Errors: `NotPermitted`, `Misconfigured`, `Unavailable` where the machine can't carry it.
    """
    clock, tree = SystemClock(), SysTree()
    plan = draw(
        wishes.seed,
        hard=wishes.hard,
        leak=wishes.leak,
        budget_bytes=round(MEMORY_SHARE * _available_bytes(tree)),
    )
    for line in plan.describe():
        say(line)
    with Arena(tree, clock, file_folders=(folder,), containers=wishes.containers) as arena:
        arena.start(plan)
        for line in (arena.how, *arena.why_not, *arena.notes):
            say(line)
        site = Site(read_settings(_configuration(arena, folder, act=wishes.act)), clock, tree)
        logs.set_up("warning", "console")
        assembly = build_up(site, sys.stderr, record)
        for note in assembly.notes:
            say(note)
        records = Records(assembly.bus.source(list(TOPICS)))
        service = Service([records, *assembly.workers], clock, site.metrics)
        service.start()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends in order, like Ctrl-C
        try:
            _await_sight(assembly, clock)
            arena.go()
            _watch(arena, plan, assembly, screen, acting=wishes.act)
            truth = arena.truth()
        finally:
            service.stop()
    if service.failed is not None:
        raise service.failed
    return plan, judge(plan, truth, records.kept, acting=wishes.act), assembly


def _configuration(arena: Arena, folder: Path, *, act: bool) -> Path:
    """Write the run's configuration: the demo's, and what is the run's own."""
    text = files("farside.demo").joinpath("demo.toml").read_text("utf-8")
    groups = [path for path in (arena.owned_cgroup, arena.owned_unified) if path]
    own = f"own_cgroups = {groups!r}" if groups else 'own_descendants_of = ["self"]'
    if not act:
        text = text.replace('actions = ["freeze", "reclaim"]', "actions = []")
    path = folder / "demo.toml"
    path.write_text(
        f'{text}\n[farside]\nstate_dir = "{folder}"\n\n'
        f"[execute.process]\n{own}\n\n"
        # The live view tells what the console would.
        "[notify.console]\nenabled = false\n",
        "utf-8",
    )
    return path


def _await_sight(assembly: Assembly, clock: Clock) -> None:
    """Wait until the first readings have come all the way to the view."""
    wait_until(lambda: assembly.story.snapshot(clock.now()).samples > 0, 20.0, what="first sight")


def _watch(
    arena: Arena,
    plan: Plan,
    assembly: Assembly,
    screen: Screen | None,
    *,
    acting: bool,
) -> None:
    """Look on until all that this run should show has been seen."""
    clock = SystemClock()
    end_s = clock.monotonic() + plan.limit_s + AFTER_S
    never = threading.Event()
    with (screen or Screen()).live() as show:
        while True:
            arena.look()
            if screen is not None:
                show(assembly.story.snapshot(clock.now()))
            now_s = clock.monotonic()
            waiting = not acting and plan.leak is not None and _leak_lives(arena.truth())
            if now_s >= end_s + (DEATH_S if waiting else 0.0):
                return
            clock.wait(never, LOOK_S)


def _leak_lives(truth: Truth) -> bool:
    return truth.leak is not None and truth.leak.running


def _available_bytes(tree: SysTree) -> int:
    for line in tree.read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return 1 << 31


def page_of(result: Result, assembly: Assembly) -> str | None:
    """Return the page of the run's incident, None where none was opened."""
    if result.incident is None:
        return None
    truth = PageTruth(onset=result.truth.onset, limit_time=result.truth.limit)
    return incident_page(assembly.story, result.incident.id, truth)
