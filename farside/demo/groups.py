"""The control groups of one demo run: made, limited, emptied and removed again.

Everything made here lies below one group, `farside-demo-PID-SEED` (and one of the same name in the
v2 hierarchy of the hybrid layout). Nothing else is touched, with one exception that is undone at
the end: where we are root and the v2 root group does not hand the memory controller down, it is
told to.
"""

import errno
import os
import re
import signal
from pathlib import Path

from farside.demo.layout import Hierarchy, Layout, Place
from runtime.errors import FarsideError, NotPermitted, Unavailable
from runtime.files import Absent, SysTree

PREFIX = "farside-demo-"
_RUN = re.compile(PREFIX + r"(\d+)-\d+")


class Folders:
    """Makes and removes cgroup folders below a tree; a test puts a composed kernel in its place."""

    def __init__(self, tree: SysTree) -> None:
        self.tree = tree

    def make(self, folder: str) -> None:
        """Make one folder; `NotPermitted` or `Unavailable` with the kernel's reason."""
        try:
            Path(self.tree.path(folder)).mkdir()
        except OSError as error:
            raise _explained(folder, error) from None

    def remove(self, folder: str) -> None:
        """Remove one empty group; `Unavailable` while something is still in it."""
        try:
            Path(self.tree.path(folder)).rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            raise _explained(folder, error) from None

    def kill(self, pid: int) -> None:
        """End one process at once."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise NotPermitted(f"process {pid} can't be ended: {error.strerror}") from None


class MemberGroup:
    """The group of one process, with a memory limit."""

    def __init__(self, run: "RunGroup", name: str, folder: str, unified: str | None) -> None:
        self._tree = run.folders.tree
        self._v2 = run.place.layout == "v2"
        self.folder = folder
        self.unified = folder if self._v2 else unified
        self.path = f"{run.path}/{name}"
        self.device = f"{self.path}@{self._tree.inode(folder)}"

    def unlimit(self) -> None:
        """Set no limit: shows, before a process is moved in, that a limit can be set."""
        if self._v2:
            self._write("memory.max", "max")
        else:
            self._write("memory.limit_in_bytes", "-1")

    def limit(self, limit_bytes: int) -> None:
        """Set the limit, and keep swap from softening it."""
        if self._v2:
            self._write("memory.max", str(limit_bytes))
            self._write_if_there("memory.swap.max", "0")
            return
        self._write("memory.limit_in_bytes", str(limit_bytes))
        self._write_if_there("memory.swappiness", "0")
        if _has_swap(self._tree):
            # a little above, so that it is memory's own counter that meets its limit and counts
            self._write_if_there("memory.memsw.limit_in_bytes", str(limit_bytes + (1 << 20)))

    def take(self, pid: int) -> None:
        """Move a process in; what it allocates from now on is charged here."""
        self._write("cgroup.procs", str(pid))
        if self.unified is not None and not self._v2:
            try:
                self._tree.write_text(f"{self.unified}/cgroup.procs", str(pid))
            except Unavailable:
                self.unified = None  # it goes without; freezing then takes signals

    def limit_bytes(self) -> int:
        """Return the limit as the kernel took it (it rounds to pages)."""
        name = "memory.max" if self._v2 else "memory.limit_in_bytes"
        return int(self._tree.read_text(f"{self.folder}/{name}"))

    def frozen(self) -> bool:
        """Tell whether the group is frozen (the v2 freezer; v1 alone can't tell)."""
        if self.unified is None:
            return False
        return self._counted_in(f"{self.unified}/cgroup.events", "frozen") == 1

    def used_bytes(self) -> int:
        """Return what is charged to the group, file pages included."""
        name = "memory.current" if self._v2 else "memory.usage_in_bytes"
        return int(self._tree.read_text(f"{self.folder}/{name}"))

    def hits(self) -> int:
        """Return how often the group met its limit."""
        if self._v2:
            return self._counted("memory.events", "max")
        return int(self._tree.read_text(f"{self.folder}/memory.failcnt"))

    def oom_kills(self) -> int:
        """Return how many processes the kernel killed for the limit."""
        return self._counted("memory.events" if self._v2 else "memory.oom_control", "oom_kill")

    def _counted(self, file: str, key: str) -> int:
        return self._counted_in(f"{self.folder}/{file}", key)

    def _counted_in(self, file: str, key: str) -> int:
        for line in self._tree.read_text(file).splitlines():
            words = line.split()
            if len(words) == 2 and words[0] == key:
                return int(words[1])
        return 0

    def _write(self, file: str, text: str) -> None:
        self._tree.write_text(f"{self.folder}/{file}", text)

    def _write_if_there(self, file: str, text: str) -> None:
        if self._tree.exists(f"{self.folder}/{file}"):
            self._write(file, text)


class RunGroup:
    """The group of one run, with a group for each process below it."""

    def __init__(self, folders: Folders, place: Place, name: str) -> None:
        """Make the group; `Unavailable` or `NotPermitted` with the reason, and nothing is left."""
        self.folders = folders
        self.place = place
        self.path = _join(place.parent, name)
        self._made: list[str] = []
        self.unified_path: str | None = None
        self._unified: str | None = None
        self._enabled: str | None = None
        try:
            self._open(name)
        except FarsideError:
            self.remove()
            raise

    @property
    def layout(self) -> Layout:
        """Return what was really made: hybrid becomes v1 where no v2 group could be made."""
        if self.place.layout == "hybrid" and self._unified is None:
            return "v1"
        return self.place.layout

    def member(self, name: str) -> MemberGroup:
        """Make the group of one process."""
        folder = f"{self.place.memory.folder(self.path)}/{name}"
        self._make(folder)
        unified = None
        if self._unified is not None:
            unified = f"{self._unified}/{name}"
            self._make(unified)
        group = MemberGroup(self, name, folder, unified)
        group.unlimit()
        return group

    def kill(self) -> None:
        """Thaw and kill whatever is in the run's groups."""
        for folder in reversed(self._made):
            empty_out(self.folders, folder)

    def remove(self) -> None:
        """Remove the groups, the innermost first; `Unavailable` while one is in use."""
        while self._made:
            self.folders.remove(self._made[-1])
            self._made.pop()
        if self._enabled is not None:
            control, self._enabled = self._enabled, None
            try:
                self.folders.tree.write_text(control, "-memory")
            except Unavailable:
                return  # somebody else has come to rely on it: it stays

    def _open(self, name: str) -> None:
        tree, hierarchy = self.folders.tree, self.place.memory
        if self.place.enable:
            control = f"{hierarchy.folder(self.place.parent)}/cgroup.subtree_control"
            tree.write_text(control, "+memory")
            self._enabled = control
        folder = hierarchy.folder(self.path)
        self._make(folder)
        if self.place.layout == "v2":
            tree.write_text(f"{folder}/cgroup.subtree_control", "+memory")
        if self.place.unified is not None:
            self._open_unified(self.place.unified, name)

    def _open_unified(self, unified: Hierarchy, name: str) -> None:
        """Make the second group of the hybrid layout, as near to our own as may be; else none."""
        for path in unified.upwards():
            folder = f"{unified.folder(path)}/{name}"
            try:
                self._make(folder)
            except FarsideError:
                continue
            self._unified, self.unified_path = folder, _join(path, name)
            return

    def _make(self, folder: str) -> None:
        self.folders.make(folder)
        self._made.append(folder)


def clear_leftovers(folders: Folders, found: list[Place], own_pid: int) -> list[str]:
    """Remove the groups of runs whose process is gone; return their folders.

    A run whose pid is alive is left alone, and so is a group with processes that this process
    can't see (another pid namespace, where "gone" can't be told).
    """
    tree = folders.tree
    parents = {place.memory.folder(place.parent): None for place in found}
    for place in found:
        if place.unified is not None:
            parents.update({place.unified.folder(path): None for path in place.unified.upwards()})
    cleared = []
    for parent in parents:
        for name in _listed(tree, parent):
            match = _RUN.fullmatch(name)
            if match is None:
                continue
            folder, pid = f"{parent}/{name}", int(match[1])
            alive = tree.exists(f"/proc/{pid}") and pid != own_pid
            if not alive and _clear(folders, folder, idle_only=pid == own_pid):
                cleared.append(folder)
    return cleared


def _clear(folders: Folders, folder: str, *, idle_only: bool) -> bool:
    """Empty and remove one leftover; False where that can't be done (now)."""
    tree = folders.tree
    inner = [*(f"{folder}/{name}" for name in _listed(tree, folder)), folder]
    try:
        pids = [pid for one in inner for pid in pids_in(tree, one)]
        if 0 in pids or (pids and idle_only):
            return False
        for one in inner:
            empty_out(folders, one)
        for one in inner:
            folders.remove(one)
    except FarsideError:
        return False
    return True


def pids_in(tree: SysTree, folder: str) -> list[int]:
    """Return the processes of a group; 0 stands for one of another pid namespace."""
    try:
        return [int(word) for word in tree.read_text(f"{folder}/cgroup.procs").split()]
    except Absent:
        return []


def empty_out(folders: Folders, folder: str) -> None:
    """Kill what is in a group, then thaw it: what was frozen dies without running on.

    Files that this layout lacks are passed over.
    """
    tree = folders.tree
    if tree.exists(f"{folder}/cgroup.kill"):
        tree.write_text(f"{folder}/cgroup.kill", "1")
    for pid in pids_in(tree, folder):
        if pid > 0:
            folders.kill(pid)
    for file, text in (("cgroup.freeze", "0"), ("freezer.state", "THAWED")):
        if tree.exists(f"{folder}/{file}"):
            tree.write_text(f"{folder}/{file}", text)


def _listed(tree: SysTree, folder: str) -> list[str]:
    try:
        return tree.folders(folder)
    except Unavailable:
        return []


def _has_swap(tree: SysTree) -> bool:
    try:
        text = tree.read_text("/proc/meminfo")
    except Unavailable:
        return True  # unknown: bound it
    return re.search(r"^SwapTotal:\s+0 kB$", text, re.MULTILINE) is None


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _explained(folder: str, error: OSError) -> FarsideError:
    reason = os.strerror(error.errno or 0).lower()
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return NotPermitted(f"{folder}: {reason}")
    return Unavailable(f"{folder}: {reason}")
