"""Processes: the private memory of the large ones, and of those with a limit of their own.

Every `rescan_s` all processes are looked at by one cheap number each; only those chosen then are
read in each period. A process is watched while it holds `private_bytes_min` or more (until it falls
below half of that) or has a finite RLIMIT_DATA; where these are too many, the largest are. What
lives below a container's memory limit is judged with that container and not once more here.

Sources: the kernel's filesystems/proc.rst, getrlimit(2).
"""

import contextlib
import os
from typing import Annotated, NamedTuple

import msgspec

from bus.samples import Sample
from collectors.base import Collector, Reading, device_name
from collectors.cgroups import Host, Layout, Limits, find_layout, memory_group_of, text_of
from collectors.kernel_text import number, sizes
from runtime.clock import Instant, nanoseconds
from runtime.errors import Unavailable
from runtime.files import Absent, SysTree

_LAYOUT_S = 60.0
_YOUNG_S = 10.0  # a new process may yet be given its limit: its limits are read at each look
_STAY = 1.25  # a newcomer must be so much larger than a watched one to take its place
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATUS_BYTES = 8192


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[collect.process]`.

    private_bytes_min: from which size on a process is watched; processes_max: how many at most;
    rescan_s: how often all are looked at; limits_s: how often the limits of one are read again.
    """

    private_bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 16 << 20
    processes_max: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 200
    rescan_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 5.0
    limits_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 10.0


class Known(msgspec.Struct):
    """What is remembered of a process: who it is, and its finite limit on data (None: no limit)."""

    pid: int
    start: int
    met: Instant
    data_limit: int | None = None
    limits_due: int = 0
    device: str = ""


class Candidate(NamedTuple):
    """A process that might be watched, with its size in bytes."""

    process: Known
    size: int


class Watched:
    """A process whose status file is held open: should it end, no other answers in its name."""

    def __init__(self, process: Known, tree: SysTree) -> None:
        """Open its status; `Absent` where it is gone."""
        self.process = process
        try:
            path = tree.path(f"/proc/{process.pid}/status")
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise Absent(f"process {process.pid} is gone") from None

    def sizes(self) -> dict[str, int]:
        """Return its sizes in bytes; `Absent` where it has ended."""
        try:
            text = os.pread(self._descriptor, _STATUS_BYTES, 0).decode("utf-8", "replace")
        except OSError:
            raise Absent(f"process {self.process.pid} is gone") from None
        found = sizes(text)
        if "VmRSS" not in found:
            raise Absent(f"process {self.process.pid} holds no memory any more")
        return found

    def close(self) -> None:
        """Let go of the file."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


class Processes:
    """Watches the processes of one machine."""

    def __init__(self, settings: Settings, tree: SysTree) -> None:
        """Read from `tree`."""
        self._settings = settings
        self._tree = tree
        self._layout: Layout | None = None
        self._looked: Instant | None = None
        self._scanned: Instant | None = None
        self._known: dict[int, Known] = {}
        self._watched: dict[int, Watched] = {}
        self._unreadable = 0
        self._beyond = 0

    def collect(self, now: Instant) -> Reading:
        """Return the samples of the watched processes; those that ended are no error."""
        host = Host.of(sizes(self._tree.read_text("/proc/meminfo")))
        if _due(self._scanned, now, self._settings.rescan_s):
            self._choose(self._scan(host, now), host, now)
            self._scanned = now
        samples: list[Sample] = []
        for watched in list(self._watched.values()):
            try:
                samples += _samples(watched.process, watched.sizes(), host)
            except Absent:
                self._drop(watched.process.pid)
        return Reading(samples, [])

    def cannot_see(self) -> list[str]:
        """Say which processes stay unseen."""
        unseen = []
        hidden = _hidden(text_of(self._tree, "/proc/mounts", 8 << 20))
        if hidden and os.geteuid() != 0:
            unseen.append(
                f"processes of other users: /proc is mounted with {hidden} "
                "(run farside as root, or put its user into the group that gid= names)"
            )
        if self._unreadable:
            unseen.append(
                f"some processes of other users ({self._unreadable} at the last look): this user "
                "may not read their files in /proc (run farside as root)"
            )
        if self._beyond:
            unseen.append(
                f"{self._beyond} more processes: only the {self._settings.processes_max} largest "
                "are watched (raise collect.process.processes_max)"
            )
        return unseen

    def close(self) -> None:
        """Close the files that are held open."""
        for pid in list(self._watched):
            self._drop(pid)

    # --- looking at all ------------------------------------------------------------------------

    def _scan(self, host: Host, now: Instant) -> list[Candidate]:
        """Return those that are large enough or have a limit."""
        pids = {int(name) for name in self._tree.listdir("/proc") if number(name) is not None}
        for pid in self._known.keys() - pids:
            del self._known[pid]
            self._drop(pid)
        self._unreadable = 0
        found = []
        for pid in pids:
            try:
                size = self._private(pid, swapping=host.swap_used > 0)
                known = None if size is None else self._met(pid, now)
            except Absent:
                continue
            except Unavailable:
                self._unreadable += 1
                continue
            if size is None or known is None:
                continue
            least = self._settings.private_bytes_min
            least = least // 2 if pid in self._watched else least
            if size >= least or _limited(known, host):
                found.append(Candidate(known, size))
        return found

    def _private(self, pid: int, *, swapping: bool) -> int | None:
        """Return about how much private memory a process has; None for one of the kernel's own.

        statm is the cheapest file that tells, but it does not know of swap.
        """
        words = self._tree.read_text(f"/proc/{pid}/statm", 256).split()
        if len(words) < 3 or words[0] == "0":
            return None  # threads of the kernel, and what has ended but was not collected yet
        if swapping:
            return private_bytes(sizes(self._tree.read_text(f"/proc/{pid}/status", _STATUS_BYTES)))
        resident, shared = number(words[1]), number(words[2])
        if resident is None or shared is None:
            return None
        return max(resident - shared, 0) * _PAGE_BYTES

    def _met(self, pid: int, now: Instant) -> Known:
        """Return what is known of a process, its limits read again when they are due.

        The number may have gone to another process meanwhile: its start tells.
        """
        known = self._known.get(pid)
        if known is not None and now < known.limits_due:
            return known
        _, start = self._stat(pid)
        if known is None or known.start != start:
            self._drop(pid)
            known = self._known[pid] = Known(pid=pid, start=start, met=now)
        known.data_limit = data_limit(text_of(self._tree, f"/proc/{pid}/limits"))
        young = now.since(known.met) < _YOUNG_S
        known.limits_due = now + (0 if young else nanoseconds(self._settings.limits_s))
        return known

    def _stat(self, pid: int) -> tuple[str, int]:
        """Return (command, start in clock ticks since boot); the command may hold anything."""
        text = self._tree.read_text(f"/proc/{pid}/stat", 4096)
        head, _, rest = text.rpartition(")")
        words = rest.split()
        start = number(words[19]) if len(words) > 19 else None
        if start is None:
            raise Absent(f"process {pid} is gone")
        return head.partition("(")[2], start

    # --- choosing ------------------------------------------------------------------------------

    def _choose(self, found: list[Candidate], host: Host, now: Instant) -> None:
        """Begin and end watching."""
        if self._layout is None or _due(self._looked, now, _LAYOUT_S):
            self._layout = find_layout(self._tree)
            self._looked = now
        limits = Limits(self._tree, self._layout, host)
        own_limit: list[Candidate] = []
        large: list[Candidate] = []
        for one in found:
            if _limited(one.process, host):
                own_limit.append(one)
            elif self._container_limit(one.process.pid, limits) is None:
                large.append(one)
        own_limit.sort(key=self._weight, reverse=True)
        large.sort(key=self._weight, reverse=True)
        wanted = [*own_limit, *large]
        self._beyond = max(len(wanted) - self._settings.processes_max, 0)
        chosen = {one.process.pid: one for one in wanted[: self._settings.processes_max]}
        for pid in self._watched.keys() - chosen.keys():
            self._drop(pid)
        for pid in sorted(chosen.keys() - self._watched.keys()):
            with contextlib.suppress(Unavailable):
                self._begin(chosen[pid].process)

    def _weight(self, one: Candidate) -> float:
        return one.size * (_STAY if one.process.pid in self._watched else 1.0)

    def _container_limit(self, pid: int, limits: Limits) -> int | None:
        if self._layout is None:
            return None
        path = memory_group_of(self._tree, self._layout, pid)
        return None if path is None else limits.of(path)

    def _begin(self, process: Known) -> None:
        watched = Watched(process, self._tree)
        try:
            comm, start = self._stat(process.pid)
            if start != process.start:
                raise Absent(f"process {process.pid} is another one now")
        except Unavailable:
            watched.close()
            raise
        # Its first name stays its name here: a series must not change its own because exec did.
        process.device = process.device or device_name(f"{comm}:{process.pid}:{start}")
        self._watched[process.pid] = watched

    def _drop(self, pid: int) -> None:
        watched = self._watched.pop(pid, None)
        if watched is not None:
            watched.close()


def build(settings: Settings, tree: SysTree) -> Collector:
    """Return the collector."""
    return Processes(settings, tree)


def private_bytes(known: dict[str, int]) -> int:
    """Return private memory, swapped part included, from /proc/PID/status.

    Kernels before 4.5 don't tell anonymous from mapped: there all resident memory counts.
    """
    return known.get("RssAnon", known.get("VmRSS", 0)) + known.get("VmSwap", 0)


def data_limit(text: str) -> int | None:
    """Return the soft RLIMIT_DATA from /proc/PID/limits in bytes; None: no limit, or not told."""
    for line in text.splitlines():
        if line.startswith("Max data size"):
            words = line.split()
            return number(words[3]) if len(words) > 3 else None
    return None


def _samples(process: Known, known: dict[str, int], host: Host) -> list[Sample]:
    values: dict[str, int] = {}
    if "RssFile" in known:
        values["process_file_bytes"] = known["RssFile"] + known.get("RssShmem", 0)
    if _limited(process, host):
        values["process_data_bytes"] = known.get("VmData", 0)
        values["process_data_limit_bytes"] = process.data_limit or 0
    else:
        private = private_bytes(known)
        values["process_private_bytes"] = private
        if host.available is not None:
            values["process_private_limit_bytes"] = private + host.available
    return [Sample(metric, process.device, value) for metric, value in values.items()]


def _limited(process: Known, host: Host) -> bool:
    """Tell whether a process has a limit on its data that can be met on this node."""
    limit = process.data_limit
    return limit is not None and (not host.total or limit < host.total + host.swap)


def _hidden(mounts: str) -> str:
    """Return the mount option that hides other users' processes, "" where none does."""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) >= 4 and fields[1] == "/proc":
            for option in fields[3].split(","):
                if option.startswith("hidepid=") and option not in {"hidepid=0", "hidepid=off"}:
                    return option
    return ""


def _due(last: Instant | None, now: Instant, every_s: float) -> bool:
    return last is None or now < last or now.since(last) >= every_s
