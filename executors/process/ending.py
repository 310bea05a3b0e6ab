"""Ending: a whole group at once by cgroup.kill, else SIGKILL to each process until none is left.

cgroup.kill serves where a group holds exactly the target. "Done" means: they were seen to be gone.
"""

import signal
from collections.abc import Sequence

from executors.base import Refused
from executors.ledger import Change
from executors.process.freezing import EVERY_S, V1, Freezing
from executors.process.groups import UNIFIED, Group, Groups
from executors.process.processes import Identity, Processes
from executors.process.targets import Gone, Target, Targets
from runtime.clock import Clock
from runtime.wait import wait_until

KILL = "cgroup.kill"


class Ending:
    """Ends targets."""

    def __init__(
        self,
        groups: Groups,
        processes: Processes,
        targets: Targets,
        freezing: Freezing,
        clock: Clock,
        confirm_s: float,
    ) -> None:
        """Give the kernel `confirm_s` seconds to confirm."""
        self._groups = groups
        self._processes = processes
        self._targets = targets
        self._freezing = freezing
        self._clock = clock
        self._confirm_s = confirm_s

    def end(self, target: Target, ours: Sequence[Change]) -> str:
        """End every process of the target; return the sentence that says how many.

        Errors: `Gone` when there is none, `Refused` when a freeze that is not ours is in the way,
        `Unavailable` when some are left after the time.
        """
        members = self._targets.members(target)
        if not members:
            raise Gone(f"{target.label} holds no process")
        if any(self._freezing.foreign_freezer(who, ours) for who in members):
            raise Refused(
                f"{target.label} is frozen, and not by farside: it can't end before it is thawed, "
                "and that is not ours to do"
            )
        freezers = self._freezers(target, members, ours)
        group = self._killable(target, members)
        if group is not None:
            self._groups.tree.write_text(f"{group.folder}/{KILL}", "1")
        ended = set(members)
        wait_until(
            lambda: self._all_ended(target, ended, freezers),
            self._confirm_s,
            what=f"all processes of {target.label} have ended",
            every_s=EVERY_S,
            clock=self._clock,
        )
        how = "through cgroup.kill" if group is not None else "by SIGKILL"
        return f"ended {how}: {len(ended)} process{'' if len(ended) == 1 else 'es'} seen to be gone"

    def gone(self, target: Target) -> bool:
        """Tell whether no process of the target is left."""
        return not self._targets.members(target)

    def _all_ended(self, target: Target, ended: set[Identity], freezers: set[str]) -> bool:
        left = self._targets.members(target)
        if left:
            self._targets.check(target)
        ended |= left
        for who in left:
            self._processes.signal(who, signal.SIGKILL)
        if left:
            # In a v1 freezer the signal waits for the thaw: they end without another step.
            for folder in freezers:
                self._groups.tree.write_text(f"{folder}/{V1.file}", V1.off)
        return not left

    def _freezers(self, target: Target, members: set[Identity], ours: Sequence[Change]) -> set[str]:
        """Return the v1 freezer groups in which we hold the target, and nothing but the target."""
        found = set()
        pids = {who.pid for who in members}
        for change in ours:
            if V1.file not in change.after:
                continue
            if not any(self._freezing.held(who, [change]) for who in members):
                continue
            if self._groups.pids(change.place) - pids:
                raise Refused(
                    f"{target.label} lies in a group that is held by another command, which must "
                    "be released first"
                )
            found.add(change.place)
        return found

    def _killable(self, target: Target, members: set[Identity]) -> Group | None:
        known = self._groups.hierarchies()
        group = target.group
        if group is None or not group.hierarchy.v2:
            pids = {who.pid for who in members}
            group = self._groups.exclusive(known[UNIFIED], pids) if UNIFIED in known else None
            if group is not None and not self._targets.owned_path(group.path):
                return None
        return group if group is not None and self._groups.writable(group, KILL) else None
