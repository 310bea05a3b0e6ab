"""What an operator sets in `[execute.process]`."""

import re
from typing import Annotated, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]
ENTRIES_MAX = 1000
PATH_MAX = 4096  # the kernel's own
_WHOLE_MACHINE = re.compile(r"0*[01](:\d*)?")  # what descends from these pids is everything
_PID = re.compile(r"[0-9]{1,10}(:[0-9]{1,20})?")
_MOUNT = "/sys/fs/cgroup"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is ours, how long it may be held and how hard.

    `own_cgroups`: paths as /proc/PID/cgroup shows them, in whatever hierarchy; what lies in or
    below one is ours. `own_descendants_of`: "self" (this program), a pid (or pid:start), or the
    absolute path of a file that holds one; what descends from it is ours, it itself is not. Both
    empty: nothing is. The whole machine ("/", pid 1) can't be ours.
    `hold_s` counts where a command names no end, `hold_s_max` bounds every hold.
    `throttle_percent` is of one CPU. `limit` "soft" slows and reclaims (memory.high, v1 the soft
    limit), "hard" ends in the kernel's OOM killer (memory.max, v1 limit_in_bytes); it is set
    `limit_headroom_percent` above what is used where the command names no `limit_bytes`.
    """

    own_cgroups: Annotated[tuple[str, ...], msgspec.Meta(max_length=ENTRIES_MAX)] = ()
    own_descendants_of: Annotated[tuple[str, ...], msgspec.Meta(max_length=ENTRIES_MAX)] = ()
    hold_s: Seconds = 600.0
    hold_s_max: Seconds = 3600.0
    throttle_percent: Annotated[float, msgspec.Meta(ge=1, le=10_000)] = 10.0
    limit: Literal["soft", "hard"] = "soft"
    limit_headroom_percent: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 5.0
    # How long the kernel has for what it confirms at once when nothing is wrong.
    confirm_s: Annotated[float, msgspec.Meta(gt=0, le=10)] = 1.5

    def __post_init__(self) -> None:
        """Judge each thing that is declared as ours; the error names the entry."""
        for path in self.own_cgroups:
            problem = _no_group(path)
            if problem:
                raise ValueError(f"own_cgroups: {path[:80]!r} {problem}")
        for root in self.own_descendants_of:
            problem = _no_root(root)
            if problem:
                raise ValueError(f"own_descendants_of: {root[:80]!r} {problem}")


def _no_group(path: str) -> str:
    """Return why a text names no group that could be ours, "" where it does."""
    if not path.startswith("/"):
        return (
            "is no absolute path: write it as /proc/PID/cgroup shows it, beginning with /, as in "
            "'/slurm'"
        )
    if not path.strip("/"):
        return "is the whole machine, farside itself with it: name the groups that are ours"
    if path == _MOUNT or path.startswith(_MOUNT + "/"):
        return "is a folder: write the group as /proc/PID/cgroup shows it, as in '/slurm'"
    if any(part in {"", ".", ".."} for part in path.strip("/").split("/")):
        return "has a part that is empty, . or ..: write the path out"
    if set(path) & set("*?"):
        return "is a pattern, which is not understood: name the group above, all below it are ours"
    return "" if len(path) < PATH_MAX else f"is longer than a path can be ({PATH_MAX} bytes)"


def _no_root(root: str) -> str:
    """Return why a text names no process whose descendants could be ours, "" where it does."""
    if _WHOLE_MACHINE.fullmatch(root):
        return "is the ancestor of the whole machine: name the process that starts what is ours"
    if root == "self" or _PID.fullmatch(root):
        return ""
    if not root.startswith("/"):
        return (
            'is neither "self", nor a pid, nor the absolute path of a file that holds one: write '
            "one of these"
        )
    if any(part in {"", ".", ".."} for part in root.strip("/").split("/")):
        return "has a part that is empty, . or ..: write the path out"
    return "" if len(root) < PATH_MAX else f"is longer than a path can be ({PATH_MAX} bytes)"
