"""What can be set about the decider: `[decide]` and `[act.CLASS.POOL]`.

Acting is off until a rule for the fault (the class) and the pool of the node lists an action.
"""

from typing import Annotated

import msgspec

from bus.messages import Action

Above = Annotated[float, msgspec.Meta(gt=0)]
NotBelow = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=100)]
Several = Annotated[int, msgspec.Meta(ge=1)]


class ActRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be done about one fault in one pool; `dry_run` says so without doing it."""

    actions: tuple[Action, ...] = ()
    dry_run: bool = False


ActRules = dict[str, dict[str, ActRule]]


class DeciderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[decide]`.

    open_nats, close_nats: log-odds at which an incident opens and below which it calms down; it
    closes after quiet_s of calm. refresh_s: how often a changing forecast is told again. forget_s:
    a suspicion of which nothing was heard for so long counts as calm. settle_s: for so long after a
    container is contained, suspicions around it may still be its own echo.

    age_limit_s: what is older never acts. blind_after_s: a cell that is judged further behind its
    head is blind, which is told (0: the same as age_limit_s; it must be more than the agents'
    period and the lateness of frames together).

    act_time_s and margin_polls: an act on a container or a process waits until the early end of the
    forecast lies within the time that the act takes plus so many polls; drain_s is the same for
    whole nodes (a checkpoint, its saving, a restart). command_ttl_s ends a wish that nobody took
    up, answer_s later its answer is missed; hold_s ends what is held. After an act cooldown_s
    passes before the next one on the same scope or node; what failed is tried again tries_max times
    in all.

    acts_per_hour and burst (a token bucket), held_max (scopes), held_percent (of the known nodes,
    rounded up to one) and node_held_max bound what is done to the fleet. A fault on more than
    veto_percent of at least veto_nodes_min nodes within veto_s has a common cause: nothing acts.
    """

    open_nats: float = 3.0
    close_nats: float = 1.0
    quiet_s: Above = 600.0
    refresh_s: NotBelow = 10.0
    forget_s: Above = 3600.0
    settle_s: NotBelow = 180.0
    age_limit_s: Above = 60.0
    blind_after_s: NotBelow = 0.0
    act_time_s: NotBelow = 0.5
    margin_polls: NotBelow = 3.0
    drain_s: Above = 3600.0
    command_ttl_s: Above = 10.0
    answer_s: Above = 10.0
    hold_s: Above = 600.0
    cooldown_s: NotBelow = 60.0
    tries_max: Several = 3
    acts_per_hour: Above = 6.0
    burst: Several = 3
    held_max: Several = 2
    held_percent: Share = 5.0
    node_held_max: Several = 2
    veto_percent: Share = 25.0
    veto_nodes_min: Several = 8
    veto_s: Above = 600.0
    incidents_max: Several = 1000
    suspicions_max: Several = 20_000
    nodes_max: Several = 20_000
    dry_run: bool = False

    @property
    def blind_s(self) -> float:
        """How far behind a cell may be judged before it counts as blind, in seconds."""
        return self.blind_after_s or self.age_limit_s
