"""Where control groups are on this machine, and which memory limit holds for one.

Three layouts are met: cgroup v2 alone, v1 with a hierarchy for each controller, and the hybrid of
both, where v1 accounts for memory and the v2 tree beside it tells of pressure and freezing. A group
is named by its path in the hierarchy that accounts for memory, as /proc/PID/cgroup shows it.

Sources: the kernel's admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, proc(5) on mountinfo.
"""

import os
import re
from typing import NamedTuple

from collectors.kernel_text import keyed, number
from runtime.errors import Unavailable
from runtime.files import SysTree

_OCTAL = re.compile(r"\\([0-7]{3})")  # mountinfo writes a blank as \040
_MOUNTS_BYTES = 8 << 20  # a node with thousands of containers has megabytes of mounts


class Mount(NamedTuple):
    """A mounted hierarchy: the folder, and the path of the group that is seen there."""

    point: str
    root: str

    def folder(self, path: str) -> str | None:
        """Return the folder of the group `path`; None where it lies outside of what is mounted."""
        top = self.root.rstrip("/")
        if (path != self.root and not path.startswith(f"{top}/")) or ".." in path.split("/"):
            return None
        return f"{self.point}{path[len(top) :]}".rstrip("/")


class Layout(NamedTuple):
    """The hierarchies that matter here. `memory` is None where nothing accounts for memory."""

    memory: Mount | None
    v2: bool  # of the memory hierarchy
    unified: Mount | None  # the v2 tree: the same as `memory`, or the one beside it
    freezer: Mount | None  # of v1
    problem: str = ""


def find_layout(tree: SysTree) -> Layout:
    """Look at what is mounted; `problem` says why no hierarchy accounts for memory."""
    unified, by_controller = _mounted(tree)
    freezer = by_controller.get("freezer")
    memory = by_controller.get("memory")
    if memory is not None:
        return Layout(memory, v2=False, unified=unified, freezer=freezer)
    if unified is None:
        problem = "no cgroup hierarchy is mounted (mount cgroup2 at /sys/fs/cgroup)"
        return Layout(None, v2=False, unified=None, freezer=freezer, problem=problem)
    if "memory" not in text_of(tree, f"{unified.point}/cgroup.controllers").split():
        problem = (
            "the kernel does not account memory to cgroups "
            "(boot it without cgroup_disable=memory, on some systems with cgroup_enable=memory)"
        )
        return Layout(None, v2=True, unified=unified, freezer=freezer, problem=problem)
    return Layout(unified, v2=True, unified=unified, freezer=freezer)


def text_of(tree: SysTree, path: str, limit: int = 1 << 20) -> str:
    """Return a file's text, "" where it is not there or can't be read."""
    try:
        return tree.read_text(path, limit)
    except Unavailable:
        return ""


def links(tree: SysTree, folder: str) -> int:
    """Return how many links a folder has (2 plus its folders, on kernel file systems), 0: gone."""
    try:
        return os.stat(tree.path(folder)).st_nlink  # noqa: PTH116  # asked of every group
    except OSError:
        return 0


def group_of(tree: SysTree, pid: int, controller: str) -> str | None:
    """Return the path of a process's group by v1 controller, "" for the v2 tree; None: unknown."""
    for line in text_of(tree, f"/proc/{pid}/cgroup").splitlines():
        number_, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number_ == "0" if not controller else controller in controllers.split(","):
            return path
    return None


def memory_group_of(tree: SysTree, layout: Layout, pid: int) -> str | None:
    """Return the path of the group that accounts for a process's memory; None: unknown."""
    return group_of(tree, pid, "" if layout.v2 else "memory")


class Host(NamedTuple):
    """What bounds everybody on this node, in bytes; `available` is None where unknown."""

    total: int
    swap: int
    swap_used: int
    available: int | None

    @classmethod
    def of(cls, meminfo: dict[str, int]) -> "Host":
        """Take it from /proc/meminfo."""
        swap = meminfo.get("SwapTotal", 0)
        return cls(
            total=meminfo.get("MemTotal", 0),
            swap=swap,
            swap_used=swap - meminfo.get("SwapFree", swap),
            available=meminfo.get("MemAvailable"),
        )


class Limits:
    """The memory limits of groups, each read once: make a new one for each round."""

    def __init__(self, tree: SysTree, layout: Layout, host: Host) -> None:
        """Know nothing yet."""
        self._tree = tree
        self._layout = layout
        self._host = host
        self._known: dict[str, int | None] = {}

    def of(self, path: str) -> int | None:
        """Return the tightest limit on the way from a group to the root, in bytes; None: none.

        Swap that the group may use counts as room, because a leak moves on into it. A limit that is
        not below what the node has is none.
        """
        memory = self._layout.memory
        if memory is None or memory.folder(path) is None:
            return None
        below = []
        while path not in self._known:
            below.append(path)
            if path == memory.root:
                break
            path = path.rpartition("/")[0] or "/"
        tightest = self._known.get(path)
        for one in reversed(below):
            own = self._own(memory.folder(one) or memory.point)
            tightest = min((limit for limit in (own, tightest) if limit is not None), default=None)
            self._known[one] = tightest
        return tightest

    def _own(self, folder: str) -> int | None:
        name = "memory.max" if self._layout.v2 else "memory.limit_in_bytes"
        limit = self._number(f"{folder}/{name}")
        if limit is None or (self._host.total and limit >= self._host.total):
            return None
        return limit + self._swap_room(folder, limit)

    def _swap_room(self, folder: str, limit: int) -> int:
        swap = self._host.swap
        if not swap:
            return 0
        if self._layout.v2:
            own = self._number(f"{folder}/memory.swap.max")
        else:
            both = self._number(f"{folder}/memory.memsw.limit_in_bytes")
            own = None if both is None else max(both - limit, 0)
        return swap if own is None else min(own, swap)

    def _number(self, path: str) -> int | None:
        return number(text_of(self._tree, path).strip())


def frozen(tree: SysTree, unified: str | None, freezer: str | None) -> int | None:
    """Tell by the group's folders whether it is frozen (1) or not (0); None: they don't say."""
    state = keyed(text_of(tree, f"{unified}/cgroup.events")).get("frozen") if unified else None
    word = text_of(tree, f"{freezer}/freezer.state").strip() if freezer else ""
    if state is None and not word:
        return None
    return int(state == 1 or word == "FROZEN")


def _mounted(tree: SysTree) -> tuple[Mount | None, dict[str, Mount]]:
    """Return the v2 tree, and the v1 hierarchies by controller: the mounts that show most."""
    unified: Mount | None = None
    by_controller: dict[str, Mount] = {}
    for mount, kind, options in _mounts(tree):
        if kind == "cgroup2":
            unified = _wider(unified, mount)
        elif kind == "cgroup":
            for name in options.split(","):
                by_controller[name] = _wider(by_controller.get(name), mount)
    return unified, by_controller


def _wider(known: Mount | None, other: Mount) -> Mount:
    if known is None or (other.root != known.root and known.root.startswith(other.root)):
        return other
    return known


def _mounts(tree: SysTree) -> list[tuple[Mount, str, str]]:
    """Return (mount, kind of file system, its options); without mountinfo from /proc/mounts."""
    found = []
    for line in text_of(tree, "/proc/self/mountinfo", _MOUNTS_BYTES).splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if len(fields) >= 5 and len(kinds) >= 3:
            found.append((Mount(_plain(fields[4]), _plain(fields[3])), kinds[0], kinds[2]))
    if found:
        return found
    for line in text_of(tree, "/proc/mounts", _MOUNTS_BYTES).splitlines():
        fields = line.split(" ")
        if len(fields) >= 4:
            found.append((Mount(_plain(fields[1]), "/"), fields[2], fields[3]))
    return found


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
