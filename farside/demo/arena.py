"""Starts a plan's processes, each under a memory limit of its own, and cleans up after them.

The limit comes from the best means that this machine and user allow: a cgroup (v2, or v1 also in
the hybrid layout), else RLIMIT_DATA, which the kernel judges against VmData. `Arena.how` says which
it became and `Arena.why_not` why nothing better.
"""

import contextlib
import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from farside.demo.child import EXIT_AT_LIMIT
from farside.demo.curves import PAGECACHE
from farside.demo.disk import find_folder, usual_folders
from farside.demo.groups import PREFIX, Folders, MemberGroup, RunGroup, clear_leftovers
from farside.demo.layout import places
from farside.demo.plan import Member, Plan
from farside.demo.truth import Child, Ending, Fate, Truth
from runtime.clock import Clock, Instant, SystemClock
from runtime.errors import FarsideError, Misconfigured, NotPermitted, Unavailable
from runtime.files import SysTree
from runtime.process import Running, start
from runtime.wait import wait_until

READY_S = 10.0  # an interpreter starts in 0.05 s; a loaded machine may take its time
GONE_S = 5.0  # what was killed gives gigabytes back in well under a second

_HOW = {
    "v2": "each process runs in a cgroup of its own with a memory limit (cgroup v2), below {path}",
    "hybrid": "each process runs in a cgroup of its own with a memory limit (cgroup v1 memory, a v2"
    " group beside it for freezing), below {path}",
    "v1": "each process runs in a cgroup of its own with a memory limit (cgroup v1 memory), "
    "below {path}",
    "rlimit": "each process has a limit of its own on its private memory "
    "(RLIMIT_DATA, which the kernel judges against VmData)",
}


class Arena:
    """The processes of one demo run and the limits they live under; a context manager.

    Use: `start(plan)`, then `go()`, then `look()` as often as wanted (at least once while what
    farside froze is still frozen), then `close()`, which ends every process and removes every group
    that was made here, and nothing else. Start it from a thread that outlives the run: the
    processes die with the thread that started them.

    containers=False goes straight to RLIMIT_DATA.
    """

    def __init__(
        self,
        tree: SysTree | None = None,
        clock: Clock | None = None,
        *,
        folders: Folders | None = None,
        file_folders: Sequence[Path] = (),
        containers: bool = True,
    ) -> None:
        self._tree = tree or SysTree()
        self._clock = clock or SystemClock()
        self._folders = folders or Folders(self._tree)
        self._file_folders = [*file_folders, *usual_folders()]
        self._containers = containers
        self._run: RunGroup | None = None
        self._groups: dict[str, MemberGroup] = {}
        self._processes: dict[str, Running] = {}
        self._fates: dict[str, Fate] = {}
        self._plan: Plan | None = None
        self._went: Instant | None = None
        self._closed = False
        self.children: list[Child] = []
        self.how = ""
        self.why_not: list[str] = []
        self.notes: list[str] = []

    @property
    def scope_kind(self) -> Literal["container", "process"]:
        """Return the kind of scope that the limits belong to."""
        return "process" if self._run is None else "container"

    @property
    def owned_cgroup(self) -> str:
        """Return the path (as in /proc/PID/cgroup) above all groups made here; "" without any."""
        return "" if self._run is None else self._run.path

    @property
    def owned_unified(self) -> str:
        """Return the same for the v2 hierarchy of the hybrid layout; "" elsewhere."""
        return "" if self._run is None else self._run.unified_path or ""

    def start(self, plan: Plan) -> list[Child]:
        """Start all processes of the plan, waiting for "go", each under its limit.

        A page-cache process without a disk to write to is left out, and `notes` says why.

        Errors: `NotPermitted` or `Unavailable` when a process can't be started or limited; what was
        begun is undone then.
        """
        self._plan = plan
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for member in plan.members:
                self._spawn(member)
            started = [member for member in plan.members if member.name in self._processes]
            if not self._contain(plan.seed, started):
                self.how = _HOW["rlimit"]
            self.children = [self._limit(member) for member in started]
            undo.pop_all()
        return list(self.children)

    def go(self) -> Instant:
        """Let all processes begin at the same moment, a tenth of a second from now; return it."""
        delay_s = 0.1
        self._went = self._clock.now().plus(delay_s)
        line = f"go {self._clock.monotonic() + delay_s!r}\n".encode()
        for running in self._processes.values():
            running.send(line)
        return self._went

    def used(self, child: Child) -> int:
        """Return the bytes that count against the child's limit; 0 once it is gone."""
        group = self._groups.get(child.name)
        try:
            return self._data_bytes(child.pid) if group is None else group.used_bytes()
        except Unavailable:
            return 0

    def hits(self, child: Child) -> int:
        """Return how often the child has met its limit.

        RLIMIT_DATA counts nothing: there the one hit is the one that the child died of.
        """
        group = self._groups.get(child.name)
        if group is None:
            return int(self._processes[child.name].poll() == EXIT_AT_LIMIT)
        return group.hits()

    def alive(self, child: Child) -> bool:
        """Tell whether the child has not ended (it may be frozen)."""
        return self._processes[child.name].poll() is None

    def look(self) -> tuple[Fate, ...]:
        """Return how every process does now; an end is dated by the look that first sees it.

        After `close` it is the last look before it.
        """
        for child in () if self._closed else self.children:
            before = self._fates.get(child.name)
            if before is None or before.ended is None:
                self._fates[child.name] = self._fate(child)
        return tuple(self._fates.values())

    def truth(self) -> Truth:
        """Return the plan's times on the wall clock and the last look at everybody."""
        if self._plan is None or self._went is None:
            raise ValueError("nothing has been started")
        return Truth(
            go=self._went,
            onset=self._went.plus(self._plan.onset_s),
            limit=self._went.plus(self._plan.limit_s),
            fates=tuple(self._fates.values()),
        )

    def close(self) -> None:
        """End every process, remove every group; harmless when repeated.

        Errors: `Unavailable` when a group can't be removed within five seconds; all else is undone.
        """
        self._closed = True
        run, self._run = self._run, None
        if run is not None:
            # a group that can't be emptied (its files are gone) is told by its removal below
            with contextlib.suppress(FarsideError):
                run.kill()
        for running in self._processes.values():
            running.kill()
            running.stop()
        self._groups.clear()
        if run is not None:
            wait_until(lambda: _removed(run), GONE_S, what=f"removing {run.path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, member: Member) -> None:
        params: dict[str, object] = {"name": member.name}
        curve = member.curve._asdict()
        kind = str(curve.pop("kind"))
        params["curve"] = curve
        if kind == PAGECACHE:
            folder, why_not = find_folder(self._tree, member.curve.size_bytes, self._file_folders)
            if not folder:
                self.notes.append("no page-cache neighbour: " + "; ".join(why_not))
                return
            params["folder"] = folder
        argv = [sys.executable, "-m", "farside.demo.child", kind, "--json", json.dumps(params)]
        running = start(argv, errors="discard", own_group=True, env=_environment())
        self._processes[member.name] = running
        wait_until(
            lambda: self._is_dressed(member.name, running),
            READY_S,
            clock=self._clock,
            what=f"the start of {member.name}",
        )

    def _is_dressed(self, name: str, running: Running) -> bool:
        """Tell whether the process has taken its name, which it does just before it waits."""
        code = running.poll()
        if code is not None:
            raise Misconfigured(
                f"the demo's process {name} ended at once with exit code {code}: "
                f"try `{sys.executable} -m farside.demo.child`"
            )
        return self._tree.read_text(f"/proc/{running.pid}/comm").rstrip("\n") == name

    def _contain(self, seed: int, members: Sequence[Member]) -> bool:
        """Put each process into a group of its own at the best place that allows it."""
        if not self._containers:
            self.why_not = ["cgroup: not asked for"]
            return False
        found, reasons = places(self._tree)
        for folder in clear_leftovers(self._folders, found, os.getpid()):
            self.notes.append(f"removed {folder}, left by a run that is gone")
        for place in found:
            run = None
            try:
                run = RunGroup(self._folders, place, f"{PREFIX}{os.getpid()}-{seed}")
                self._fill(run, members[:1])
            except FarsideError as error:
                self._groups.clear()
                if run is not None:
                    run.remove()
                name = "cgroup v2" if place.layout == "v2" else "cgroup v1"
                # the reason at the nearest group is the one that can be acted on
                reasons.setdefault(name, str(error))
                continue
            self._run = run
            self._fill(run, members[1:])
            self.how = _HOW[run.layout].format(path=run.path)
            best = place.layout == "v2"
            self.why_not = [] if best else _lines(reasons, ["cgroup v2"])
            return True
        self.why_not = _lines(reasons, ["cgroup v2", "cgroup v1"])
        return False

    def _fill(self, run: RunGroup, members: Sequence[Member]) -> None:
        for member in members:
            group = run.member(member.name)
            group.take(self._processes[member.name].pid)
            self._groups[member.name] = group

    def _limit(self, member: Member) -> Child:
        pid = self._processes[member.name].pid
        process = f"{member.name}:{pid}:{self._start_ticks(pid)}"
        child = Child(
            name=member.name,
            kind=member.curve.kind,
            pid=pid,
            scope_kind=self.scope_kind,
            device=process,
            limit_bytes=0,
            role=member.role,
            process=process,
        )
        group = self._groups.get(member.name)
        if group is None:
            baseline = self._data_bytes(pid)
            limit = member.limit_bytes(baseline, private_only=True)
            _limit_data(pid, limit)
            return replace(child, limit_bytes=limit, baseline_bytes=baseline)
        baseline = group.used_bytes()
        group.limit(member.limit_bytes(baseline))
        return replace(
            child,
            device=group.device,
            limit_bytes=group.limit_bytes(),
            baseline_bytes=baseline,
        )

    def _fate(self, child: Child) -> Fate:
        code = self._processes[child.name].poll()
        hits = self.hits(child)
        ended = None if code is None else self._clock.now()
        return Fate(child, self._ending(child, code), self.used(child), hits, ended, code)

    def _ending(self, child: Child, code: int | None) -> Ending:
        group = self._groups.get(child.name)
        if code is None:
            frozen = group is not None and group.frozen()
            return "stopped" if frozen or self._state(child.pid) in "Tt" else "alive"
        if code == EXIT_AT_LIMIT or (group is not None and group.oom_kills() > 0):
            return "at its limit"
        return "killed" if code < 0 else "ended"

    def _state(self, pid: int) -> str:
        return self._stat(pid)[0]

    def _start_ticks(self, pid: int) -> str:
        return self._stat(pid)[19]  # field 22; the fields after the name begin with field 3

    def _stat(self, pid: int) -> list[str]:
        return self._tree.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()

    def _data_bytes(self, pid: int) -> int:
        for line in self._tree.read_text(f"/proc/{pid}/status").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
        raise Unavailable(f"process {pid} has no VmData any more")


def _limit_data(pid: int, limit_bytes: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    except PermissionError as error:
        raise NotPermitted(f"RLIMIT_DATA can't be set for process {pid}: {error}") from None
    except OSError as error:
        raise Unavailable(f"RLIMIT_DATA can't be set for process {pid}: {error}") from None


def _removed(run: RunGroup) -> bool:
    """Try to remove the run's groups; a killed process takes a moment to leave its group."""
    try:
        run.remove()
    except Unavailable:
        return False
    return True


def _environment() -> dict[str, str]:
    """Return our environment, with this very farside in front of any other on the module path."""
    root = str(Path(__file__).parents[2])
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{known}" if known else root}


def _lines(reasons: dict[str, str], names: Sequence[str]) -> list[str]:
    return [f"{name}: {reasons[name]}" for name in names if name in reasons]
