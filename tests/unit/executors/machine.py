"""Real children and real control groups of this machine, and commands that mean them."""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bus.messages import Action, IsolationCommand, Scope
from executors.base import Context
from executors.ledger import Ledger
from executors.process import ProcessExecutor, Settings, build
from executors.process.groups import Groups
from executors.process.processes import Pidfds, Processes
from runtime.clock import Instant, SystemClock
from runtime.files import SysTree
from runtime.process import Running, start
from runtime.wait import wait_until

NODE = "n1"
TREE = SysTree()
CLOCK = SystemClock()
BOOT = TREE.read_text("/proc/sys/kernel/random/boot_id").strip()
PROCESSES = Processes(TREE, Pidfds())
SOON_S = 20.0  # a bound for a machine under load


def context(folder: Path, **changes: object) -> Context:
    """Return what an executor stands on here, with its disk in `folder`."""
    given: dict[str, object] = {
        "tree": TREE, "clock": CLOCK, "node": NODE, "boot": BOOT, "state_dir": folder, **changes,
    }  # fmt: skip
    return Context(**given)  # type: ignore[arg-type]  # the names are checked by the dataclass


def executor(folder: Path, settings: Settings, **changes: object) -> ProcessExecutor:
    """Return a process executor for this machine."""
    return build(settings, context(folder, **changes))


def own_children(**changes: object) -> Settings:
    """Return settings that declare this process's descendants as ours."""
    given = {"own_descendants_of": ("self",), "confirm_s": 10.0, **changes}
    return Settings(**given)  # type: ignore[arg-type]  # the names are checked by msgspec


class Child:
    """A child that repeats what it is told, so that one can ask whether it runs."""

    def __init__(self, argv: Sequence[str] = ("cat",)) -> None:
        self.running: Running = start(argv, output="pipe")
        self.pid = self.running.pid
        stat = PROCESSES.stat(self.pid)
        assert stat is not None
        self.identity = stat.identity
        self._lines = self.running.lines()

    def answers(self) -> bool:
        """Tell that it runs: waits for its answer, so ask only when it should."""
        self.running.send(b"there?\n")
        return next(self._lines) == "there?"

    def state(self) -> str:
        """Return its state by /proc, "" when it is gone."""
        stat = PROCESSES.stat(self.pid)
        return "" if stat is None else stat.state

    def ended(self) -> bool:
        """Tell whether its end was seen."""
        return self.running.poll() is not None

    def scope(self) -> Scope:
        """Return the scope that a collector would send."""
        return Scope("process", "a", NODE, f"cat:{self.pid}:{self.identity.start}")

    def precondition(self) -> dict[str, str]:
        """Return what the decider would demand."""
        return {"boot": BOOT, "pid": str(self.pid), "start": str(self.identity.start)}


@contextlib.contextmanager
def children(count: int) -> Iterator[list[Child]]:
    """Start children, and end them however they were left."""
    made = [Child() for _ in range(count)]
    try:
        yield made
    finally:
        for child in made:
            child.running.kill()
            child.running.stop()


class Box:
    """A container of this test: groups of one path in every hierarchy that was asked for."""

    def __init__(self, name: str, twins: tuple[str, ...]) -> None:
        self.groups = Groups(TREE)
        self.path = f"/{name}"
        memory = self.groups.memory()
        if memory is None:
            pytest.skip("no cgroup hierarchy that accounts for memory is mounted here")
        self.folders: dict[str, Path] = {}
        known = self.groups.hierarchies()
        for twin in dict.fromkeys((memory.name, *twins)):
            if twin not in known:
                self.remove()
                pytest.skip(f"no cgroup hierarchy {twin} is mounted here")
            folder = Path(known[twin].point + self.path)
            try:
                folder.mkdir()
            except OSError as error:
                self.remove()
                pytest.skip(f"no cgroup can be made here: {folder}: {error.strerror}")
            self.folders[twin] = folder
        self.folder = self.folders[memory.name]

    def take(self, pid: int) -> None:
        """Move a process into all groups of the box."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def scope(self) -> Scope:
        """Return the scope that a collector would send."""
        return Scope("container", "a", NODE, f"{self.path}@{self.folder.stat().st_ino}")

    def precondition(self) -> dict[str, str]:
        """Return what the decider would demand."""
        inode = str(self.folder.stat().st_ino)
        return {"boot": BOOT, "cgroup": self.path, "inode": inode}

    def read(self, hierarchy: str, file: str) -> str:
        """Return what a control file says."""
        return (self.folders[hierarchy] / file).read_text().strip()

    def remove(self) -> None:
        """Thaw, end and remove whatever is there."""
        made = [folder for top in self.folders.values() for folder in (*top.glob("*/"), top)]
        for folder in made:
            for file, text in (
                ("cgroup.freeze", "0"), ("freezer.state", "THAWED"), ("cgroup.kill", "1"),
            ):  # fmt: skip
                if (folder / file).exists():
                    (folder / file).write_text(text)
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
        for folder in made:
            wait_until(lambda folder=folder: _removed(folder), SOON_S, what=f"{folder} is empty")  # type: ignore[misc]


_NUMBERS = itertools.count()


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def boxes(*twins: str, count: int = 1) -> Iterator[list[Box]]:
    """Make boxes with groups in these hierarchies besides memory's, or skip with the reason."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            box = Box(f"farside-test-{os.getpid()}-{next(_NUMBERS)}", twins)
            stack.callback(box.remove)
            made.append(box)
        yield made


def wish(
    action: Action,
    target: Child | Box,
    command: str = "c1",
    *,
    hold_s: float | None = 60.0,
    now: Instant | None = None,
    **precondition: str,
) -> IsolationCommand:
    """Return a command; words beside it replace parts of its precondition."""
    now = now or CLOCK.now()
    return IsolationCommand(
        id=command,
        scope=target.scope(),
        action=action,
        executor="process",
        precondition={**target.precondition(), **precondition},
        generation=1,
        reason="its memory leaks",
        incident="i1",
        issued=now,
        expires=now.plus(30),
        dry_run=False,
        hold_until=None if hold_s is None else now.plus(hold_s),
    )


def memory_ledger() -> Ledger:
    """Return a ledger without a disk."""
    return Ledger(None)
