"""Slowing down and limiting: values of a cgroup that are lowered, and put back as they were.

Only ever lower than what is there, and memory never below what is used. What somebody else wrote
since is left as it is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from executors.base import Refused
from executors.ledger import Change
from executors.process.freezing import Note
from executors.process.groups import UNIFIED, Group, Groups
from executors.process.settings import Settings
from executors.process.targets import Target, Targets
from runtime.errors import Unavailable
from runtime.files import Unreadable
from runtime.words import bytes_text, share_text

PAGE_BYTES = 4096
QUOTA_US_MIN = 1_000  # the kernel takes no less
UNLIMITED = 1 << 62  # v1 writes "no limit" as a number near 2**63


class _Files(NamedTuple):
    used: str
    soft: str
    hard: str


_V2 = _Files("memory.current", "memory.high", "memory.max")
_V1 = _Files("memory.usage_in_bytes", "memory.soft_limit_in_bytes", "memory.limit_in_bytes")


class Limiting:
    """Lowers the CPU quota or the memory limit of a target's own group."""

    def __init__(self, settings: Settings, groups: Groups, targets: Targets) -> None:
        """How far down is in `settings`."""
        self._settings = settings
        self._groups = groups
        self._targets = targets

    def throttle(self, target: Target, note: Note) -> str:
        """Lower the target's CPU quota; return the sentence that says so."""
        group = self._cpu_group(target)
        quota, period = self._quota(group)
        share = self._settings.throttle_percent / 100.0
        wish = max(round(period * share), QUOTA_US_MIN)
        if quota is not None and quota <= wish:
            raise Refused(
                f"{target.label} is limited to {share_text(quota / period)} of a CPU already: not "
                "lowered"
            )
        if group.hierarchy.v2:
            self._set(group, "cpu.max", f"{wish} {period}", note)
        else:
            self._set(group, "cpu.cfs_quota_us", str(wish), note)
        return f"throttled to {share_text(wish / period)} of a CPU through group {group.path}"

    def limit(self, target: Target, wished_bytes: str, note: Note) -> str:
        """Lower the target's memory limit to `wished_bytes` ("" = use and headroom); say so."""
        group = self._memory_group(target)
        files = _V2 if group.hierarchy.v2 else _V1
        soft = self._settings.limit == "soft"
        file = files.soft if soft else files.hard
        used = self._bytes(group, files.used)
        bounds = [self._bytes(group, files.hard)]
        if soft:
            bounds.append(self._bytes(group, files.soft))
        wish = self._wish(wished_bytes, used)
        if wish >= min(bounds):
            raise Refused(
                f"{target.label} is limited to {size(min(bounds))} already: {size(wish)} is no less"
            )
        if wish <= used:
            raise Refused(f"{target.label} uses {size(used)}: a limit of {size(wish)} is below it")
        self._set(group, file, str(wish), note)
        return f"limited to {size(wish)} ({size(used)} used) through {file} of {group.path}"

    def put_back(self, change: Change, others: Sequence[Change]) -> str:
        """Write what was there before, where what we wrote still stands; say what was not."""
        if not change.place or not self._groups.same(change.place, int(change.identity)):
            return ""
        said = ""
        for file, before in change.before.items():
            if any(o.place == change.place and file in o.after for o in others):
                said = "still held by another command"
            elif self._groups.value(change.place, file) == change.after[file]:
                self._groups.tree.write_text(f"{change.place}/{file}", before)
                self._confirm(change.place, file, before)
            else:
                said = f"{file} was changed by somebody else since and is left as it is"
        return said

    def in_force(self, change: Change) -> bool:
        """Tell whether what we wrote stands."""
        if not change.after or not self._groups.same(change.place, int(change.identity)):
            return False
        return all(self._groups.value(change.place, f) == v for f, v in change.after.items())

    def _set(self, group: Group, file: str, value: str, note: Note) -> None:
        before = self._groups.value(group.folder, file)
        note(
            Change(
                place=group.folder,
                identity=str(group.inode),
                before={file: before},
                after={file: value},
            )
        )
        self._groups.tree.write_text(f"{group.folder}/{file}", value)
        self._confirm(group.folder, file, value)

    def _confirm(self, folder: str, file: str, value: str) -> None:
        found = self._groups.value(folder, file)
        if found != value:
            raise Unavailable(f"{folder}/{file} says {found} after {value} was written")

    def _wish(self, wished_bytes: str, used: int) -> int:
        if not wished_bytes:
            wish = int(used * (1 + self._settings.limit_headroom_percent / 100.0)) + PAGE_BYTES
        elif wished_bytes.isdecimal():
            wish = int(wished_bytes)
        else:
            raise Refused(f"limit_bytes is {wished_bytes[:40]!r}, which is no number of bytes")
        return wish // PAGE_BYTES * PAGE_BYTES

    def _bytes(self, group: Group, file: str) -> int:
        text = self._groups.value(group.folder, file)
        return min(int(text), UNLIMITED) if text.isdecimal() else UNLIMITED

    def _quota(self, group: Group) -> tuple[int | None, int]:
        """Return quota (None: no limit) and period in microseconds."""
        if group.hierarchy.v2:
            quota, _, period = self._groups.value(group.folder, "cpu.max").partition(" ")
        else:
            quota = self._groups.value(group.folder, "cpu.cfs_quota_us")
            period = self._groups.value(group.folder, "cpu.cfs_period_us")
        return (int(quota) if quota.isdecimal() else None), int(period)

    def _cpu_group(self, target: Target) -> Group:
        group = target.group
        if group is not None and group.hierarchy.v2:
            return self._usable(target, group, "cpu.max")
        known = self._groups.hierarchies()
        for name, file in (("cpu", "cpu.cfs_quota_us"), (UNIFIED, "cpu.max")):
            twin = self._twin(target, name) if name in known else None
            if twin is not None and self._groups.tree.exists(f"{twin.folder}/{file}"):
                return self._usable(target, twin, file)
        raise Refused(
            f"{target.label} can't be throttled: it has no cgroup of its own with a CPU quota "
            "inside own_cgroups"
        )

    def _memory_group(self, target: Target) -> Group:
        group = target.group
        if group is None:
            hierarchy = self._groups.memory()
            group = None if hierarchy is None else self._twin(target, hierarchy.name)
        if group is None:
            raise Refused(
                f"{target.label} can't be limited: it has no cgroup of its own inside own_cgroups"
            )
        return self._usable(target, group, (_V2 if group.hierarchy.v2 else _V1).hard)

    def _twin(self, target: Target, name: str) -> Group | None:
        """Return the group in another hierarchy that holds exactly the target, if it is ours."""
        pids = {who.pid for who in self._targets.members(target)}
        twin = self._groups.exclusive(self._groups.hierarchies()[name], pids)
        return twin if twin is not None and self._targets.owned_path(twin.path) else None

    def _usable(self, target: Target, group: Group, file: str) -> Group:
        if not self._groups.tree.exists(f"{group.folder}/{file}"):
            raise Refused(f"{target.label} has no {file}: its group lacks that controller")
        if not self._groups.writable(group, file):
            raise Unreadable(f"{group.folder}/{file} may not be written by this user")
        return group


def size(count: int) -> str:
    """Return bytes for a sentence."""
    return bytes_text(math.inf if count >= UNLIMITED else count)
