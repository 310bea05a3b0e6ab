"""Control groups: where the hierarchies are mounted, who is in a group, which group is whose twin.

Three layouts are met: cgroup v2 alone; v1 with a hierarchy for each controller; and hybrid, v1 with
the v2 tree mounted beside it without memory and cpu, but with freeze and kill. A container is named
by its path in the hierarchy that accounts for memory. Its processes may have groups in the other
hierarchies too; such a twin serves only where it holds exactly these processes.

Sources: the kernel's admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, cgroup-v1/freezer.rst.
"""

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from executors.base import Refused
from runtime.errors import Unavailable
from runtime.files import Absent, SysTree

UNIFIED = "unified"
GROUPS_MAX = 10_000  # of one container, groups below it included
_OCTAL = re.compile(r"\\([0-7]{3})")  # mountinfo writes a blank as \040


class Hierarchy(NamedTuple):
    """One mounted hierarchy: where, which part of it, and by what name (a v1 controller, or v2)."""

    name: str
    point: str
    root: str

    @property
    def v2(self) -> bool:
        """Tell whether it is the second version."""
        return self.name == UNIFIED

    def folder(self, path: str) -> str:
        """Return where a group lies in the file system."""
        top = self.root.rstrip("/")
        if not inside(path, self.root) or ".." in path.split("/"):
            raise Refused(f"group {path} lies outside of what is mounted at {self.point}")
        return self.point + path[len(top) :].rstrip("/")


class Group(NamedTuple):
    """A group in one hierarchy, at the inode that it had when it was looked up."""

    hierarchy: Hierarchy
    path: str
    folder: str
    inode: int


class Groups:
    """The control groups of one machine."""

    def __init__(self, tree: SysTree) -> None:
        """Read from `tree`, at each question anew: mounts and groups come and go."""
        self.tree = tree

    def hierarchies(self) -> dict[str, Hierarchy]:
        """Return what is mounted, by v1 controller ("memory", "cpu", "freezer") and "unified"."""
        found: dict[str, Hierarchy] = {}
        for line in self.tree.read_text("/proc/self/mountinfo").splitlines():
            left, _, right = line.partition(" - ")
            fields, kinds = left.split(), right.split()
            if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in {"cgroup", "cgroup2"}:
                continue
            names = [UNIFIED] if kinds[0] == "cgroup2" else kinds[2].split(",")
            for name in names:
                root = _plain(fields[3])
                known = found.get(name)
                # Kept is the first mount that shows most of the hierarchy.
                if known is None or (known.root != root and inside(known.root, root)):
                    found[name] = Hierarchy(name, _plain(fields[4]), root)
        return found

    def memory(self) -> Hierarchy | None:
        """Return the hierarchy that accounts for memory."""
        known = self.hierarchies()
        return known.get("memory") or known.get(UNIFIED)

    def group(self, hierarchy: Hierarchy, path: str) -> Group:
        """Look a group up; `Absent` when there is none."""
        folder = hierarchy.folder(path)
        return Group(hierarchy, path, folder, self.tree.inode(folder))

    def same(self, folder: str, inode: int) -> bool:
        """Tell whether the group is still the one that was looked up."""
        try:
            return self.tree.inode(folder) == inode
        except Unavailable:
            return False

    def pids(self, folder: str) -> set[int]:
        """Return the processes of a group and of all groups below it.

        Errors: `Absent` when the group is gone, `Refused` when it holds processes that we can't
        see, `Unavailable` when it has too many groups to look through in time.
        """
        found = self._own_pids(folder)
        open_folders, seen = [folder], 1
        while open_folders:
            above = open_folders.pop()
            try:
                names = self.tree.folders(above)
            except Absent:
                continue
            for name in names:
                seen += 1
                if seen > GROUPS_MAX:
                    raise Unavailable(f"{folder} has more than {GROUPS_MAX} groups below it")
                open_folders.append(f"{above}/{name}")
                try:
                    found |= self._own_pids(f"{above}/{name}")
                except Absent:
                    continue
        if 0 in found:
            raise Refused(f"{folder} holds processes of another pid namespace")
        return found

    def paths_of(self, pid: int) -> dict[str, str]:
        """Return the groups of a process by hierarchy; empty when it is gone."""
        found: dict[str, str] = {}
        try:
            text = self.tree.read_text(f"/proc/{pid}/cgroup")
        except Unavailable:
            return found
        for line in text.splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            names = [UNIFIED] if number == "0" else controllers.split(",")
            found.update(dict.fromkeys(names, path))
        return found

    def folders_of(self, pid: int) -> set[str]:
        """Return where the groups of a process lie, in all hierarchies that are mounted."""
        known, found = self.hierarchies(), set()
        for name, path in self.paths_of(pid).items():
            if name in known and inside(path, known[name].root):
                found.add(known[name].folder(path))
        return found

    def memory_path(self, pid: int) -> str:
        """Return the group that a process's memory is charged to, "" where there is none."""
        hierarchy = self.memory()
        return "" if hierarchy is None else self.paths_of(pid).get(hierarchy.name, "")

    def exclusive(self, hierarchy: Hierarchy, pids: Iterable[int]) -> Group | None:
        """Return the group of one hierarchy that holds exactly these processes, if there is one."""
        wanted = set(pids)
        paths = {self.paths_of(pid).get(hierarchy.name, "/") for pid in wanted}
        path = _common(paths)
        if path == "/":
            return None
        try:
            group = self.group(hierarchy, path)
            return group if self.pids(group.folder) == wanted else None
        except (Unavailable, Refused):
            return None

    def writable(self, group: Group, file: str) -> bool:
        """Tell whether a control file is there and this user may write it."""
        return os.access(self.tree.path(f"{group.folder}/{file}"), os.W_OK)

    def value(self, folder: str, file: str) -> str:
        """Return what a control file says."""
        return self.tree.read_text(f"{folder}/{file}").strip()

    def keyed(self, folder: str, file: str) -> dict[str, str]:
        """Return a control file of lines `key value`."""
        pairs = (line.split() for line in self.value(folder, file).splitlines())
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}

    def _own_pids(self, folder: str) -> set[int]:
        text = self.tree.read_text(f"{folder}/cgroup.procs", limit=1 << 24)
        return {int(word) for word in text.split() if word.isdecimal()}


def inside(path: str, top: str) -> bool:
    """Tell whether a group is `top` or lies below it, component by component."""
    above = top.rstrip("/")
    return path.rstrip("/") == above or path.startswith(above + "/")


def _common(paths: Iterable[str]) -> str:
    known = list(paths)
    try:
        return os.path.commonpath(known) if known else "/"
    except ValueError:
        return "/"


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
