"""Containers: the memory of every control group, its limit, pressure and freezing.

What a group can't give back, with all groups below it:
- v2: anonymous + shared + kernel (its reclaimable slab taken off) + socket buffers + swap;
- v1: anonymous + shared + swap. Its kernel memory is left out, because v1 does not tell how much of
  that are caches of the file system, which grow by reading and are given back.

Sources: the kernel's admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, cgroup-v1/freezer.rst.
"""

from typing import Annotated, NamedTuple

import msgspec

from bus.samples import Sample
from collectors.base import Collector, Reading, device_name
from collectors.cgroups import (
    Host,
    Limits,
    find_layout,
    frozen,
    group_of,
    links,
    text_of,
)
from collectors.kernel_text import keyed, number, pressure_full_percent, sizes
from runtime.clock import Instant
from runtime.errors import Unavailable
from runtime.files import Absent, SysTree

_LAYOUT_S = 60.0  # mounts hardly ever change, and reading them is dear on a node with many
_PIDS_BYTES = 1 << 16  # a twin is looked for by processes, as long as the list of them is short
# Before 5.18 a v2 group tells no sum of its kernel memory, only these parts of it.
_KERNEL_PARTS = (
    "kernel_stack",
    "pagetables",
    "sec_pagetables",
    "percpu",
    "vmalloc",
    "slab_unreclaimable",
)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[collect.cgroup]`.

    groups_max: how many groups are watched, those nearer to the root first; depth_max: how deep
    below it; rescan_s: how often new groups are looked for (known ones are read each time).
    """

    groups_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    depth_max: Annotated[int, msgspec.Meta(ge=1, le=64)] = 16
    rescan_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 2.0


class Group(NamedTuple):
    """A group that is watched: its name for the bus, its folders, what bounds it."""

    path: str
    folder: str
    inode: int
    device: str
    limit: int | None
    unified: str | None  # its folder in the v2 tree
    freezer: str | None  # its folder in the v1 freezer


class Cgroup:
    """Watches all groups of the hierarchy that accounts for memory."""

    def __init__(self, settings: Settings, tree: SysTree) -> None:
        """Read from `tree`."""
        self._settings = settings
        self._tree = tree
        self._layout = find_layout(tree)
        self._looked: Instant | None = None
        self._scanned: Instant | None = None
        self._groups: list[Group] = []
        self._beyond = 0

    def collect(self, now: Instant) -> Reading:
        """Return the samples of all groups that are there; groups that vanish are no error."""
        if _due(self._looked, now, _LAYOUT_S):
            self._layout = find_layout(self._tree)
            self._looked = now
        if self._layout.memory is None:
            return Reading([], [])
        host = Host.of(sizes(self._tree.read_text("/proc/meminfo")))
        if _due(self._scanned, now, self._settings.rescan_s):
            self._groups = self._scan(host)
            self._scanned = now
        samples: list[Sample] = []
        for group in self._groups:
            try:
                if self._tree.inode(group.folder) != group.inode:
                    raise Absent(group.folder)
                samples += self._read(group, host)
            except Unavailable:
                self._scanned = None  # gone, or another group of that name: look again next time
        return Reading(samples, [])

    def cannot_see(self) -> list[str]:
        """Say what of the containers stays unseen."""
        layout = find_layout(self._tree)
        if layout.memory is None:
            return [f"the memory of containers: {layout.problem}"]
        unseen = []
        if not layout.v2:
            unseen.append(
                "kernel memory of containers: cgroup v1 does not tell leaks from caches in it "
                "(boot with cgroup v2: systemd.unified_cgroup_hierarchy=1)"
            )
        if layout.unified is None or not text_of(self._tree, "/proc/pressure/memory"):
            unseen.append(
                "how long containers wait for memory: there is no cgroup v2 tree with pressure "
                "stall information (mount cgroup2, boot with psi=1)"
            )
        if self._beyond:
            unseen.append(
                f"{self._beyond} or more control groups: only {self._settings.groups_max} are "
                f"watched, to a depth of {self._settings.depth_max} (raise collect.cgroup."
                "groups_max or depth_max)"
            )
        return unseen

    # --- finding groups ------------------------------------------------------------------------

    def _scan(self, host: Host) -> list[Group]:
        """Walk the hierarchy, level by level."""
        memory = self._layout.memory
        if memory is None:
            return []
        limits = Limits(self._tree, self._layout, host)
        self._beyond = 0
        found: list[Group] = []
        level = [memory.root]
        for depth in range(self._settings.depth_max + 1):
            below: list[str] = []
            for path in level:
                if len(found) >= self._settings.groups_max:
                    self._beyond += 1
                    continue
                folder = memory.folder(path) or memory.point
                is_root = depth == 0
                # The root is the node itself, unless it has a limit: then we are in a container.
                if not is_root or limits.of(path) is not None:
                    found += self._watch(path, folder, limits)
                below += self._below(path, folder)
            level = below
        self._beyond += len(level)
        return found

    def _below(self, path: str, folder: str) -> list[str]:
        if links(self._tree, folder) == 2:
            return []  # kernel file systems count folders in their links: none below
        try:
            names = self._tree.folders(folder)
        except Unavailable:
            return []
        return [f"{path.rstrip('/')}/{name}" for name in sorted(names)]

    def _watch(self, path: str, folder: str, limits: Limits) -> list[Group]:
        """Return the group, or nothing where there is nothing to watch in it."""
        used = "memory.current" if self._layout.v2 else "memory.usage_in_bytes"
        held = number(text_of(self._tree, f"{folder}/{used}").strip())
        if held is None or (held == 0 and not self._populated(folder)):
            return []
        try:
            inode = self._tree.inode(folder)
        except Unavailable:
            return []
        return [
            Group(
                path=path,
                folder=folder,
                inode=inode,
                device=device_name(f"{path}@{inode}"),
                limit=limits.of(path),
                unified=folder if self._layout.v2 else self._twin(path, folder),
                freezer=self._same(path),
            )
        ]

    def _populated(self, folder: str) -> bool:
        if self._layout.v2:
            return keyed(text_of(self._tree, f"{folder}/cgroup.events")).get("populated") == 1
        return bool(text_of(self._tree, f"{folder}/cgroup.procs", 64))

    def _same(self, path: str) -> str | None:
        freezer = self._layout.freezer
        folder = freezer.folder(path) if freezer is not None and path != freezer.root else None
        return folder if folder is not None and self._tree.exists(folder) else None

    def _twin(self, path: str, folder: str) -> str | None:
        """Return the folder in the v2 tree that stands for a v1 group.

        It has the same path, or else it holds exactly the same processes.
        """
        unified = self._layout.unified
        if unified is None:
            return None
        same = unified.folder(path)
        if path != unified.root and same is not None and self._tree.exists(same):
            return same
        pids = text_of(self._tree, f"{folder}/cgroup.procs", _PIDS_BYTES).split()
        if not pids or not pids[0].isdecimal():
            return None
        there = group_of(self._tree, int(pids[0]), "")
        twin = None if there in {None, unified.root} else unified.folder(there or "")
        if twin is None:
            return None
        its_pids = text_of(self._tree, f"{twin}/cgroup.procs", _PIDS_BYTES).split()
        return twin if set(its_pids) == set(pids) else None

    # --- reading one ---------------------------------------------------------------------------

    def _read(self, group: Group, host: Host) -> list[Sample]:
        """Return a group's samples; `Absent` where it is gone."""
        known = keyed(self._tree.read_text(f"{group.folder}/memory.stat"))
        values = self._of_v2(group, known, host) if self._layout.v2 else self._of_v1(group, known)
        held = values.get("container_memory_unreclaimable_bytes")
        if group.limit is not None:
            values["container_memory_limit_bytes"] = group.limit
        elif held is not None and host.available is not None:
            values["container_memory_limit_bytes"] = held + host.available
        if group.unified is not None:
            text = text_of(self._tree, f"{group.unified}/memory.pressure")
            pressure = pressure_full_percent(text) if text else None
            values["container_memory_pressure_full_percent"] = pressure
        values["container_frozen"] = frozen(self._tree, group.unified, group.freezer)
        return [
            Sample(metric, group.device, value)
            for metric, value in values.items()
            if value is not None
        ]

    def _of_v2(self, group: Group, known: dict[str, int], host: Host) -> dict[str, float | None]:
        events = keyed(text_of(self._tree, f"{group.folder}/memory.events"))
        swapped = None
        if host.swap:
            swapped = number(text_of(self._tree, f"{group.folder}/memory.swap.current").strip())
        return {
            "container_memory_unreclaimable_bytes": unreclaimable_v2(known, swapped or 0),
            "container_memory_file_bytes": _file_v2(known),
            "container_memory_limit_hits_total": events.get("max"),
            "container_memory_oom_kills_total": events.get("oom_kill"),
        }

    def _of_v1(self, group: Group, known: dict[str, int]) -> dict[str, float | None]:
        hits = number(text_of(self._tree, f"{group.folder}/memory.failcnt").strip())
        oom = keyed(text_of(self._tree, f"{group.folder}/memory.oom_control"))
        held, file_bytes = v1_bytes(known)
        return {
            "container_memory_unreclaimable_bytes": held,
            "container_memory_file_bytes": file_bytes,
            "container_memory_limit_hits_total": hits,
            "container_memory_oom_kills_total": oom.get("oom_kill"),
        }


def build(settings: Settings, tree: SysTree) -> Collector:
    """Return the collector."""
    return Cgroup(settings, tree)


def unreclaimable_v2(known: dict[str, int], swapped: int) -> int | None:
    """Return what a v2 group can't give back, from its memory.stat, in bytes."""
    if "anon" not in known:
        return None
    kernel = known.get("kernel")
    if kernel is None:
        kernel = sum(known.get(part, 0) for part in _KERNEL_PARTS)
    else:
        kernel = max(kernel - known.get("slab_reclaimable", 0), 0)
    return known["anon"] + known.get("shmem", 0) + kernel + known.get("sock", 0) + swapped


def v1_bytes(known: dict[str, int]) -> tuple[int | None, int | None]:
    """Return (what a v1 group can't give back, its page cache), from its memory.stat, in bytes.

    The `total_` numbers include the groups below. Older kernels name no shared memory: it is what
    the lists of anonymous pages hold beyond the anonymous memory itself.
    """
    rss, cache = known.get("total_rss"), known.get("total_cache")
    if rss is None or cache is None:
        return None, None
    shared = known.get("total_shmem")
    if shared is None:
        listed = known.get("total_active_anon", 0) + known.get("total_inactive_anon", 0)
        shared = min(max(listed - rss, 0), cache)
    return rss + shared + known.get("total_swap", 0), max(cache - shared, 0)


def _file_v2(known: dict[str, int]) -> int | None:
    return max(known["file"] - known.get("shmem", 0), 0) if "file" in known else None


def _due(last: Instant | None, now: Instant, every_s: float) -> bool:
    """Tell whether it is time again; a clock that was set back makes it so."""
    return last is None or now < last or now.since(last) >= every_s
