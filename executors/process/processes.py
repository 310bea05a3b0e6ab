"""Processes: who they are, whose descendants, and signals that can't hit the wrong one.

A pid alone names nobody: the kernel gives it to another process soon after its owner ends. Here a
process is its pid and its start time (clock ticks since boot, field 22 of /proc/PID/stat), and a
signal goes through a pidfd that was checked against that start time after it was opened: from then
on the descriptor means this process and no later one, man pidfd_open(2).
"""

import errno
import os
import signal
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from executors.base import Refused
from runtime.errors import Misconfigured, Unavailable
from runtime.files import SysTree
from runtime.words import plain_text

ANCESTORS_MAX = 1_000
STOPPED = frozenset("Tt")
ENDED = frozenset("ZXx")


class Identity(NamedTuple):
    """A process and no other: pid and start time."""

    pid: int
    start: int

    @property
    def text(self) -> str:
        """Return it as `pid:start`."""
        return f"{self.pid}:{self.start}"

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """Read `pid:start`; `Refused` where it is none."""
        pid, _, start = text.partition(":")
        if not (pid.isdecimal() and start.isdecimal()):
            raise Refused(f"{text[:40]!r} names no process (pid:start)")
        return cls(int(pid), int(start))


class Stat(NamedTuple):
    """One line of /proc/PID/stat, as far as we need it."""

    identity: Identity
    comm: str
    state: str
    parent: int
    threads: int

    @property
    def ended(self) -> bool:
        """Tell whether it has ended; a main thread may end while others go on."""
        return self.state in ENDED and self.threads <= 1


class Signals(Protocol):
    """The kernel's way to reach one process."""

    def open(self, pid: int) -> int | None:
        """Return a pidfd, None when there is no such process."""

    def send(self, descriptor: int, number: int) -> bool:
        """Send a signal; False when the process has ended; `Refused` when not permitted."""

    def close(self, descriptor: int) -> None:
        """Let go of a pidfd."""


class Pidfds:
    """The real thing."""

    def open(self, pid: int) -> int | None:
        """Return a pidfd, None when there is no such process."""
        try:
            return os.pidfd_open(pid)
        except OSError as error:
            if error.errno in {errno.ESRCH, errno.EINVAL}:
                return None
            reason = os.strerror(error.errno or 0).lower()
            raise Unavailable(f"no pidfd for process {pid}: {reason}") from None

    def send(self, descriptor: int, number: int) -> bool:
        """Send a signal; False when the process has ended; `Refused` when not permitted."""
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            raise Refused(
                f"this user may not send signals to it: run farside as its user or with CAP_KILL "
                f"(now uid {os.geteuid()})"
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise Unavailable(f"the signal could not be sent: {reason}") from None
        return True

    def close(self, descriptor: int) -> None:
        """Let go of a pidfd."""
        os.close(descriptor)


class Processes:
    """The processes of one machine."""

    def __init__(self, tree: SysTree, signals: Signals) -> None:
        """Read from `tree`; a tree that is not this machine's gets signals of its own."""
        if isinstance(signals, Pidfds) and str(tree.root) != "/":
            raise Misconfigured(f"{tree.root} tells nothing of this machine's processes")
        self.tree = tree
        self._signals = signals

    def stat(self, pid: int) -> Stat | None:
        """Return what the kernel says of a pid, None when nobody has it."""
        return self._stat(f"/proc/{pid}/stat")

    def alive(self, who: Identity) -> Stat | None:
        """Return what the kernel says of this very process, None when it has ended."""
        stat = self.stat(who.pid)
        if stat is None or stat.identity != who or stat.ended:
            return None
        return stat

    def stopped(self, who: Identity) -> bool:
        """Tell whether a signal keeps every thread of the process from running (or it has ended).

        A thread in uninterruptible sleep counts when the stop waits for it: it runs no instruction
        of its own any more. So waits a parent in vfork(2) for a child that was stopped first.
        """
        if self.alive(who) is None:
            return True
        try:
            tasks = self.tree.listdir(f"/proc/{who.pid}/task")
        except Unavailable:
            return True
        stats = (self._stat(f"/proc/{who.pid}/task/{task}/stat") for task in tasks)
        states = {stat.state for stat in stats if stat is not None} - ENDED
        if not states - STOPPED:
            return True
        asleep = states - STOPPED == {"D"}
        return asleep and (bool(states & STOPPED) or self._stop_waits(who))

    def _stop_waits(self, who: Identity) -> bool:
        """Tell whether SIGSTOP was sent to the process and is not taken yet."""
        try:
            text = self.tree.read_text(f"/proc/{who.pid}/status")
        except Unavailable:
            return False
        lines = (line.split() for line in text.splitlines())
        pending = {line[0]: line[1] for line in lines if len(line) == 2}
        waiting = int(pending.get("ShdPnd:", "0"), 16) | int(pending.get("SigPnd:", "0"), 16)
        return bool(waiting >> (signal.SIGSTOP - 1) & 1)

    def ancestors(self, pid: int) -> list[int]:
        """Return the parent of a process, its parent and so on, as they are now."""
        chain: list[int] = []
        stat = self.stat(pid)
        while stat is not None and stat.parent > 0 and len(chain) < ANCESTORS_MAX:
            chain.append(stat.parent)
            stat = self.stat(stat.parent)
        return chain

    def signal(self, who: Identity, number: int) -> bool:
        """Send a signal to this very process; False when it has ended, whoever has its pid now.

        Errors: `Refused` when not permitted.
        """
        descriptor = self._signals.open(who.pid)
        if descriptor is None:
            return False
        try:
            stat = self.stat(who.pid)
            if stat is None or stat.identity != who:
                return False
            return self._signals.send(descriptor, number)
        finally:
            self._signals.close(descriptor)

    def _stat(self, path: str) -> Stat | None:
        try:
            text = self.tree.read_text(path)
        except Unavailable:
            return None
        # The command stands in brackets and may hold blanks and brackets itself.
        head, _, tail = text.rpartition(")")
        pid, _, comm = head.partition(" (")
        fields = tail.split()
        if not pid.isdecimal() or len(fields) < 20:
            return None
        who = Identity(int(pid), int(fields[19]))
        return Stat(who, comm, fields[0], int(fields[1]), int(fields[17]))


def recycled(who: Identity, stat: Stat) -> str:
    """Say that a pid is another process's now."""
    return (
        f"pid {who.pid} is another process now ({plain_text(stat.comm, 64)}, started at tick "
        f"{stat.identity.start}, not {who.start}): the one that was meant is gone"
    )


def listed(pids: Iterable[int]) -> str:
    """Return pids for a sentence, at most eight of them."""
    known = sorted(pids)
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""
    return ", ".join(str(pid) for pid in known[:8]) + more
