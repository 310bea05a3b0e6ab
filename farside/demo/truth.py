"""What really happened in a demo run, as seen without farside: the judge holds it against."""

from dataclasses import dataclass
from typing import Literal

from runtime.clock import Instant

# How a process of the demo can be at the end, in words that a summary can print.
Ending = Literal["alive", "stopped", "at its limit", "killed", "ended"]


@dataclass(frozen=True)
class Child:
    """One process of the demo and how farside may come to call it.

    kind           its curve: leak, steady, sawtooth, warmup, pagecache
    role           "leak" or "neighbour"
    scope_kind     the kind of scope that its limit belongs to: "container" where it has a cgroup of
                   its own, "process" where its limit is RLIMIT_DATA
    device         that scope's name: PATH@INODE of the memory cgroup, or COMM:PID:START
    process        COMM:PID:START in both cases (a process in a cgroup is also seen as itself)
    limit_bytes    as the kernel took it, over what the interpreter held before its curve began
    baseline_bytes what it held then
    """

    name: str
    kind: str
    pid: int
    scope_kind: Literal["container", "process"]
    device: str
    limit_bytes: int
    role: str
    process: str
    baseline_bytes: int = 0


@dataclass(frozen=True)
class Fate:
    """How one process did, at one moment.

    `hits` counts how often it met its limit; `ended` is when its end was first seen.
    """

    child: Child
    ending: Ending
    used_bytes: int
    hits: int = 0
    ended: Instant | None = None
    exit_code: int | None = None

    @property
    def running(self) -> bool:
        """Tell whether it runs on, neither stopped nor gone."""
        return self.ending == "alive"

    def sentence(self) -> str:
        """Say it to a person."""
        return {
            "alive": "runs",
            "stopped": "is stopped",
            "at its limit": "died at its limit",
            "killed": "was killed",
            "ended": f"ended with exit code {self.exit_code}",
        }[self.ending]


@dataclass(frozen=True)
class Truth:
    """One run: when all began, when the leak began, when it would meet its limit, and who lives."""

    go: Instant
    onset: Instant
    limit: Instant
    fates: tuple[Fate, ...]

    @property
    def leak(self) -> Fate | None:
        """Return the leaking one's fate; None in a control run."""
        return next((fate for fate in self.fates if fate.child.role == "leak"), None)

    @property
    def neighbours(self) -> tuple[Fate, ...]:
        """Return the healthy ones' fates."""
        return tuple(fate for fate in self.fates if fate.child.role != "leak")
