"""Holding still, and letting go: through a cgroup where one holds exactly the target, else signals.

A frozen group can't be thawed by a stray SIGCONT and its parents don't notice; a process that was
stopped by a signal shows as "Stopped" to the shell that started it. Both are read back: "frozen 1"
in cgroup.events (v1: FROZEN in freezer.state), state T of every thread in /proc/PID/stat.

What was still before we came is somebody else's: it is refused, and never let go by us.
"""

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from executors.base import Refused
from executors.ledger import Change
from executors.process.groups import UNIFIED, Group, Groups, inside
from executors.process.processes import Identity, Processes, listed
from executors.process.targets import Gone, Target, Targets
from runtime.clock import Clock
from runtime.errors import Unavailable
from runtime.wait import wait_until

ROUNDS_MAX = 100  # of looking for processes that were started while the others were stopped
EVERY_S = 0.01
Note = Callable[[Change], None]


class Switch(NamedTuple):
    """How a kind of group is frozen: write `on` to `file`."""

    file: str
    off: str
    on: str


V2 = Switch("cgroup.freeze", "0", "1")
V1 = Switch("freezer.state", "THAWED", "FROZEN")


class Freezing:
    """Freezes targets and lets them go."""

    def __init__(
        self,
        groups: Groups,
        processes: Processes,
        targets: Targets,
        clock: Clock,
        confirm_s: float,
    ) -> None:
        """Give the kernel `confirm_s` seconds to confirm."""
        self._groups = groups
        self._processes = processes
        self._targets = targets
        self._clock = clock
        self._confirm_s = confirm_s

    def freeze(self, target: Target, ours: Sequence[Change], note: Note) -> str:
        """Hold every process of the target still; return the sentence that says how.

        `ours` is what we hold already; `note` is told what is about to be changed, all of it so
        far, before it is touched. Errors: `Refused`; `Unavailable` when it is not confirmed in
        time (what was noted may then be changed, and is to be undone).
        """
        members = self._targets.members(target)
        if not members:
            raise Gone(f"{target.label} holds no process")
        foreign = {who for who in members if self.still(who) and not self.held(who, ours)}
        if foreign == members:
            raise Refused(
                f"{target.label} was stopped or frozen already, and not by farside: not ours, left "
                "as it is"
            )
        end_s = self._clock.monotonic() + self._confirm_s
        change, how = Change(), ""
        found = self._group_for(target, {who.pid for who in members})
        if found is not None:
            change, how = self._freeze_group(target, *found, note), f"through {found[1].file}"
        stopped = self._stop_rest(target, change, foreign, note, end_s)
        if stopped:
            how = f"{how} and by SIGSTOP" if how else "by SIGSTOP"
        count = len(self._targets.members(target))
        return f"frozen {how}: {count} process{'' if count == 1 else 'es'} read back as still"

    def shared(self, target: Target, ours: Sequence[Change]) -> Change | None:
        """Return what already holds all of the target for us, None when some of it is not held."""
        members = self._targets.members(target)
        if not members or not all(self.still(who) and self.held(who, ours) for who in members):
            return None
        holding = [change for change in ours if any(self.held(who, [change]) for who in members)]
        grouped = next((change for change in holding if change.place), Change())
        stopped = {text for change in holding for text in change.members}
        wanted = {who.text for who in members}
        return msgspec.structs.replace(grouped, members=tuple(sorted(stopped & wanted)))

    def let_go(self, change: Change, others: Sequence[Change]) -> str:
        """Undo a freeze, except for what other changes hold as well; return what was found.

        Errors: `Unavailable` when it is not confirmed in time, `Refused` when not permitted.
        """
        said = self._thaw_group(change, others)
        kept = {text for other in others for text in other.members}
        self._resume(Identity.parse(text) for text in change.members if text not in kept)
        return said

    def still(self, who: Identity) -> bool:
        """Tell whether a process is stopped or lies in a frozen group, whoever did it."""
        if self._processes.stopped(who):
            return True
        return any(self._is_frozen(folder) for folder in self._groups.folders_of(who.pid))

    def held(self, who: Identity, ours: Sequence[Change]) -> bool:
        """Tell whether it is we who hold a process still."""
        if any(who.text in change.members for change in ours):
            return True
        places = [
            change.place
            for change in ours
            if not {V2.file, V1.file}.isdisjoint(change.after)
            and self._groups.same(change.place, int(change.identity))
        ]
        folders = self._groups.folders_of(who.pid) if places else set()
        return any(inside(folder, place) for folder in folders for place in places)

    def foreign_freezer(self, who: Identity, ours: Sequence[Change]) -> bool:
        """Tell whether a v1 freezer that is not ours keeps a process from ending."""
        hierarchy = self._groups.hierarchies().get("freezer")
        path = self._groups.paths_of(who.pid).get("freezer", "/")
        if hierarchy is None or path == "/":
            return False
        folder = hierarchy.folder(path)
        return self._is_frozen(folder) and not self.held(who, ours)

    def _group_for(self, target: Target, pids: set[int]) -> tuple[Group, Switch] | None:
        """Return the group that freezes exactly the target, None when signals must do."""
        if target.group is not None and target.group.hierarchy.v2:
            group = target.group
            return (group, V2) if self._groups.writable(group, V2.file) else None
        known = self._groups.hierarchies()
        for name, switch in ((UNIFIED, V2), ("freezer", V1)):
            twin = self._groups.exclusive(known[name], pids) if name in known else None
            if (
                twin is not None
                and self._targets.owned_path(twin.path)
                and self._groups.writable(twin, switch.file)
            ):
                return twin, switch
        return None

    def _freeze_group(self, target: Target, group: Group, switch: Switch, note: Note) -> Change:
        change = Change(
            place=group.folder,
            identity=str(group.inode),
            before={switch.file: switch.off},
            after={switch.file: switch.on},
        )
        note(change)
        self._groups.tree.write_text(f"{group.folder}/{switch.file}", switch.on)
        strangers = self._groups.pids(group.folder) - self._targets.pids(target)
        if strangers:
            raise Unavailable(f"pid {listed(strangers)} came into {group.folder} meanwhile")
        self._wait(lambda: self._is_frozen(group.folder), f"{group.folder} is frozen")
        return change

    def _stop_rest(
        self, target: Target, change: Change, foreign: set[Identity], note: Note, end_s: float
    ) -> bool:
        """Stop by signal what no group froze, until no new process appears."""
        before = change.members
        for _ in range(ROUNDS_MAX):
            known = {*change.members, *(who.text for who in foreign)}
            fresh = {
                who
                for who in self._targets.members(target)
                if who.text not in known and not self.held(who, [change])
            }
            if not fresh:
                break
            if self._clock.monotonic() > end_s:
                raise Unavailable(f"{target.label} starts processes faster than they are stopped")
            self._targets.check(target)
            change = msgspec.structs.replace(
                change, members=(*change.members, *sorted(who.text for who in fresh))
            )
            note(change)
            for who in fresh:
                self._processes.signal(who, signal.SIGSTOP)
        else:
            raise Unavailable(f"{target.label} starts processes faster than they are stopped")
        left_s = end_s - self._clock.monotonic()
        self._wait(lambda: not self._moving(target), f"{target.label} is stopped", left_s)
        return change.members != before

    def _moving(self, target: Target) -> list[Identity]:
        return [who for who in self._targets.members(target) if not self.still(who)]

    def all_still(self, target: Target) -> bool:
        """Tell whether the target has processes and none of them runs."""
        return bool(self._targets.members(target)) and not self._moving(target)

    def _thaw_group(self, change: Change, others: Sequence[Change]) -> str:
        switch = next((known for known in (V2, V1) if known.file in change.after), None)
        if switch is None or not self._groups.same(change.place, int(change.identity)):
            return ""
        if any(o.place == change.place and switch.file in o.after for o in others):
            return "still held by another command"
        if self._groups.value(change.place, switch.file) == switch.off:
            return "it was thawed by somebody else before"
        self._groups.tree.write_text(f"{change.place}/{switch.file}", switch.off)
        if self._frozen_above(change.place):
            return "a group above it is still frozen, and not by this command"
        self._wait(lambda: not self._is_frozen(change.place), f"{change.place} is thawed")
        return ""

    def _resume(self, members: Iterable[Identity]) -> None:
        waiting = [who for who in members if self._processes.signal(who, signal.SIGCONT)]
        self._wait(
            lambda: (
                not any(
                    self._processes.alive(who) and self._processes.stopped(who) for who in waiting
                )
            ),
            f"pid {listed(who.pid for who in waiting)} goes on",
        )

    def _is_frozen(self, folder: str) -> bool:
        try:
            if self._groups.tree.exists(f"{folder}/cgroup.events"):
                return self._groups.keyed(folder, "cgroup.events").get("frozen") == "1"
            if self._groups.tree.exists(f"{folder}/freezer.state"):
                return self._groups.value(folder, "freezer.state") == V1.on
        except Unavailable:
            return False
        return False

    def _frozen_above(self, folder: str) -> bool:
        above = folder.rpartition("/")[0]
        try:
            if self._groups.tree.exists(f"{folder}/freezer.state"):
                return self._groups.value(folder, "freezer.parent_freezing") == "1"
        except Unavailable:
            return False
        return self._is_frozen(above)

    def _wait(self, so: Callable[[], bool], what: str, left_s: float | None = None) -> None:
        timeout_s = self._confirm_s if left_s is None else max(left_s, 0.0)
        wait_until(so, timeout_s, what=what, every_s=EVERY_S, clock=self._clock)
