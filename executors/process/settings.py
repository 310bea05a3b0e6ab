"""What an operator sets in `[execute.process]`."""

from typing import Annotated, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is ours, how long it may be held and how hard.

    `own_cgroups`: paths as /proc/PID/cgroup shows them, in whatever hierarchy; what lies in or
    below one is ours. `own_descendants_of`: "self" (this program), a pid, or the absolute path of a
    file that holds one; what descends from it is ours, it itself is not. Both empty: nothing is.
    `hold_s` counts where a command names no end, `hold_s_max` bounds every hold.
    `throttle_percent` is of one CPU. `limit` "soft" slows and reclaims (memory.high, v1 the soft
    limit), "hard" ends in the kernel's OOM killer (memory.max, v1 limit_in_bytes); it is set
    `limit_headroom_percent` above what is used where the command names no `limit_bytes`.
    """

    own_cgroups: tuple[str, ...] = ()
    own_descendants_of: tuple[str, ...] = ()
    hold_s: Seconds = 600.0
    hold_s_max: Seconds = 3600.0
    throttle_percent: Annotated[float, msgspec.Meta(ge=1, le=10_000)] = 10.0
    limit: Literal["soft", "hard"] = "soft"
    limit_headroom_percent: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 5.0
    # How long the kernel has for what it confirms at once when nothing is wrong.
    confirm_s: Annotated[float, msgspec.Meta(gt=0, le=10)] = 1.5
