"""Where control groups with a memory limit may be made on this machine, and in which layout.

Three layouts are known: cgroup v2 with the memory controller; cgroup v1 memory; and v1 memory with
the v2 hierarchy mounted beside it (hybrid), where a second group in the v2 hierarchy gives freeze
and kill. Paths called "folder" lie in the file system, paths called "path" are the names that
/proc/PID/cgroup shows; they differ where only a part of the hierarchy is mounted (containers).

Sources: the kernel's admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, proc(5) on mountinfo.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from runtime.errors import Unavailable
from runtime.files import SysTree

Layout = Literal["v2", "hybrid", "v1"]
_OCTAL = re.compile(r"\\([0-7]{3})")  # mountinfo writes a blank as \040


class Mount(NamedTuple):
    """One mounted file system; `root` is the part of it that is seen at `point`."""

    point: str
    root: str
    kind: str
    options: tuple[str, ...]


class Hierarchy(NamedTuple):
    """One mounted cgroup hierarchy and the group in it that this process is in."""

    mount: Mount
    own: str

    def folder(self, path: str) -> str:
        """Return where the group `path` lies in the file system."""
        inside = path.removeprefix(self.mount.root.rstrip("/"))
        return (self.mount.point + "/" + inside.strip("/")).rstrip("/")

    def upwards(self) -> Iterator[str]:
        """Yield the path of our own group, of its parent and so on, up to the mounted root."""
        top = self.mount.root
        path = self.own
        if path != top and not path.startswith(top.rstrip("/") + "/"):
            return  # our group lies outside of what is mounted here
        while True:
            yield path
            if path == top:
                return
            path = path.rsplit("/", 1)[0] or "/"


@dataclass(frozen=True)
class Place:
    """A group below which a run's groups might be made."""

    layout: Layout
    memory: Hierarchy
    parent: str  # a path in the memory hierarchy
    unified: Hierarchy | None = None
    enable: bool = False  # the parent must be told to hand the memory controller down first


def mounts(tree: SysTree) -> list[Mount]:
    """Return all mounts as this process sees them (/proc/self/mountinfo)."""
    found = []
    for line in tree.read_text("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) >= 5 and len(kinds) >= 3:
            options = (*fields[5].split(","), *kinds[2].split(","))
            found.append(Mount(_plain(fields[4]), _plain(fields[3]), kinds[0], options))
    return found


def hierarchies(tree: SysTree) -> tuple[Hierarchy | None, Hierarchy | None]:
    """Return the v2 hierarchy and the v1 memory hierarchy, each with our own group in it."""
    own: dict[str, str] = {}
    for line in tree.read_text("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = ["unified"] if number == "0" else controllers.split(",")
        own.update(dict.fromkeys(names, path))
    unified = memory = None
    for mount in mounts(tree):
        if mount.kind == "cgroup2" and "unified" in own and unified is None:
            unified = Hierarchy(mount, own["unified"])
        if mount.kind == "cgroup" and "memory" in mount.options and "memory" in own:
            memory = memory or Hierarchy(mount, own["memory"])
    return unified, memory


def places(tree: SysTree) -> tuple[list[Place], dict[str, str]]:
    """Return where groups with a limit may be made, the best first, and why not where not.

    The reasons are keyed by "cgroup v2" and "cgroup v1".
    """
    try:
        unified, memory = hierarchies(tree)
    except Unavailable as error:
        reason = f"can't tell which groups this process is in ({error})"
        return [], {"cgroup v2": reason, "cgroup v1": reason}
    found: list[Place] = []
    why_not: dict[str, str] = {}
    if unified is None:
        why_not["cgroup v2"] = "not mounted"
    else:
        v2, reason = _v2_places(tree, unified)
        found += v2
        if not v2:
            why_not["cgroup v2"] = reason
    if memory is None:
        why_not["cgroup v1"] = "no memory hierarchy is mounted"
    else:
        layout: Layout = "v1" if unified is None else "hybrid"
        v1 = [Place(layout, memory, path, unified) for path in memory.upwards()]
        found += v1
        if not v1:
            why_not["cgroup v1"] = "this process's group lies outside of what is mounted"
    return found, why_not


def _v2_places(tree: SysTree, unified: Hierarchy) -> tuple[list[Place], str]:
    """Return the groups, nearest first, that hand the memory controller down (or may be told to).

    A group other than the root that has processes of its own can't hand it down ("no internal
    processes"), so our own group is rarely among them. Only the root is ever told to: switching
    controllers on in a group of somebody else's is not for a demo.
    """
    found = []
    reason = "this process's group lies outside of what is mounted"
    for path in unified.upwards():
        folder = unified.folder(path)
        try:
            has = "memory" in tree.read_text(f"{folder}/cgroup.controllers").split()
            hands_down = "memory" in tree.read_text(f"{folder}/cgroup.subtree_control").split()
        except Unavailable as error:
            reason = str(error)
            continue
        if not has:
            reason = f"{folder} has no memory controller"
        elif hands_down:
            found.append(Place("v2", unified, path))
        elif not tree.exists(f"{folder}/cgroup.type"):  # only the real root lacks this file
            found.append(Place("v2", unified, path, enable=True))
        else:
            reason = f"{folder} does not hand its memory controller down"
    return found, reason


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
