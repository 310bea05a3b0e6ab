"""Who is meant, and whether it is ours: everything is verified at the moment of acting.

A command names its target twice, in its scope and in its precondition, and both must agree:
a process by pid and start time, a container by the path of its group and that folder's inode, both
with the boot id of the machine that was looked at. What changed since then is refused.
"""

from typing import NamedTuple

from bus.messages import IsolationCommand
from executors.base import Context, Refused
from executors.process.groups import Group, Groups, inside
from executors.process.processes import Identity, Processes, listed, recycled
from executors.process.settings import Settings
from runtime.errors import Unavailable
from runtime.files import Absent

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Gone(Refused):
    """The target is no longer there: nothing can be done to it, and nothing need be ended."""


class Target(NamedTuple):
    """One process or the group of one container; `name` is the device that samples carry."""

    name: str
    label: str
    who: Identity | None = None
    group: Group | None = None


class Targets:
    """Finds what commands mean and tells what is ours."""

    def __init__(
        self, settings: Settings, context: Context, groups: Groups, processes: Processes
    ) -> None:
        """Look through `groups` and `processes`; ours is what `settings` declares."""
        self._settings = settings
        self._context = context
        self._groups = groups
        self._processes = processes

    def boot(self) -> str:
        """Return the boot id of this machine as it is now."""
        try:
            return self._context.tree.read_text(BOOT_ID).strip()
        except Unavailable:
            return self._context.boot

    def find(self, command: IsolationCommand) -> Target:
        """Return the target, verified; `Refused` (or `Gone`) with the reason otherwise."""
        boot = _wanted(command, "boot")
        if not boot or boot != self.boot():
            raise Refused(
                f"the command means boot {boot or '(unknown)'}, this machine runs boot "
                f"{self.boot() or '(unknown)'}: what was meant is gone"
            )
        target = self._named(command)
        self.check(target)
        return target

    def check(self, target: Target) -> None:
        """Refuse what is not ours, and what would hit ourselves; ask again before each touch."""
        self._spare_ourselves(target)
        reason = self._not_ours(target)
        if reason:
            raise Refused(reason)

    def members(self, target: Target) -> set[Identity]:
        """Return the living processes of the target as they are now, never ourselves among them."""
        if target.who is not None:
            return {target.who} if self._processes.alive(target.who) else set()
        self._spare_ourselves(target)
        return self._living(target.group)

    def owned_path(self, path: str) -> bool:
        """Tell whether a group lies inside what is declared as ours."""
        return path != "/" and any(inside(path, top) for top in self._settings.own_cgroups)

    def cannot(self) -> list[str]:
        """Say what of the declared things is not there."""
        if not self._settings.own_cgroups and not self._settings.own_descendants_of:
            return [NOTHING_OWNED]
        return [
            f"nothing can be owned through own_descendants_of = {root!r} in [execute.process]: it "
            "names no running process"
            for root in self._settings.own_descendants_of
            if self._root(root) is None
        ]

    def _named(self, command: IsolationCommand) -> Target:
        if command.scope.kind == "process":
            return self._process(command)
        if command.scope.kind == "container":
            return self._container(command)
        raise Refused(
            f"the process executor acts on processes and containers, not on a {command.scope.kind}"
        )

    def _process(self, command: IsolationCommand) -> Target:
        device = command.scope.name
        who = Identity.parse(f"{_wanted(command, 'pid')}:{_wanted(command, 'start')}")
        parts = device.rsplit(":", 2)
        if len(parts) != 3 or parts[1:] != [str(who.pid), str(who.start)]:
            raise Refused(
                f"scope and precondition disagree: {device} is not pid {who.pid} started at "
                f"tick {who.start}"
            )
        stat = self._processes.stat(who.pid)
        if stat is not None and stat.identity != who:
            raise Refused(recycled(who, stat))
        if self._processes.alive(who) is None:
            raise Gone(f"{command.scope.label} has ended")
        return Target(device, command.scope.label, who=who)

    def _container(self, command: IsolationCommand) -> Target:
        device = command.scope.name
        path, inode = _wanted(command, "cgroup"), _wanted(command, "inode")
        if device.rpartition("@") != (path, "@", inode):
            raise Refused(f"scope and precondition disagree: {device} is not {path}@{inode}")
        hierarchy = self._groups.memory()
        if hierarchy is None:
            raise Refused("no cgroup hierarchy that accounts for memory is mounted here")
        if path == "/" or not path.startswith("/"):
            raise Refused(f"{path!r} is no group that could be acted on")
        try:
            group = self._groups.group(hierarchy, path)
        except Absent:
            raise Gone(f"{command.scope.label} is gone") from None
        if str(group.inode) != inode:
            raise Refused(
                f"group {path} is another one now (inode {group.inode}, not {inode}): the one that "
                "was meant is gone"
            )
        return Target(device, command.scope.label, group=group)

    def _spare_ourselves(self, target: Target) -> None:
        own = self._context.pid()
        spared = {1, own, *self._processes.ancestors(own)}
        pids = self.pids(target)
        if not spared.isdisjoint(pids):
            raise Refused(
                f"{target.label} is or holds farside itself, what started it, or process 1 "
                f"({listed(spared & pids)})"
            )

    def _not_ours(self, target: Target) -> str:
        """Return why the target is not ours, "" when it is."""
        settings = self._settings
        if not settings.own_cgroups and not settings.own_descendants_of:
            return NOTHING_OWNED
        if target.group is not None:
            if self.owned_path(target.group.path):
                return ""
            pids = self.pids(target)
            if pids and all(self._descends(pid) for pid in pids):
                return ""
        elif target.who is not None and (
            self._descends(target.who.pid)
            or self.owned_path(self._groups.memory_path(target.who.pid))
        ):
            return ""
        return (
            f"{target.label} is not ours: it lies in none of own_cgroups and descends from none of "
            "own_descendants_of in [execute.process]"
        )

    def _descends(self, pid: int) -> bool:
        roots = {self._root(text) for text in self._settings.own_descendants_of} - {None}
        return not roots.isdisjoint(self._processes.ancestors(pid)) if roots else False

    def _root(self, text: str) -> int | None:
        """Return the pid that a setting means; None when there is no such process (any more)."""
        if text == "self":
            return self._context.pid()
        if text.startswith("/"):
            try:
                text = self._context.tree.read_text(text, limit=100).strip()
            except Unavailable:
                return None
            if text.partition(":")[0].lstrip("0") in {"", "1"}:
                return None  # the ancestor of the whole machine is as little ours in a file
        pid, _, start = text.partition(":")
        stat = self._processes.stat(int(pid)) if pid.isdecimal() else None
        if stat is None or (start and start != str(stat.identity.start)):
            return None
        return stat.identity.pid

    def pids(self, target: Target) -> set[int]:
        """Return the pids of the target as they are now, those that have ended included."""
        if target.who is not None:
            return {target.who.pid}
        return set() if target.group is None else self._group_pids(target.group)

    def _group_pids(self, group: Group) -> set[int]:
        try:
            return self._groups.pids(group.folder)
        except Absent:
            return set()

    def _living(self, group: Group | None) -> set[Identity]:
        if group is None or not self._groups.same(group.folder, group.inode):
            return set()
        stats = (self._processes.stat(pid) for pid in self._group_pids(group))
        return {stat.identity for stat in stats if stat is not None and not stat.ended}


def _wanted(command: IsolationCommand, key: str) -> str:
    value = command.precondition.get(key, "")
    if not value:
        raise Refused(f"the command's precondition has no {key!r}: the target can't be verified")
    return value


NOTHING_OWNED = (
    "nothing is declared as farside's own: set own_cgroups or own_descendants_of in "
    "[execute.process]"
)
