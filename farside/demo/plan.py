"""A demo's plan: who holds how much memory when, and what every plan promises.

`farside.demo.draw` draws one from a seed; a test may write one down by hand. The promises are
computed from the plan's own curves, so that thousands of seeds can be held against them.
"""

import math
from dataclasses import dataclass

from farside.demo.curves import LEAK, PAGECACHE, SAWTOOTH, STEADY, WARMUP, Curve

MB = 1_000_000
LOOK_S = 5.0  # "grows faster over 5 s"

ONSET_S = (10.0, 40.0)
TO_LIMIT_S = (35.0, 70.0)
LIMIT_FACTOR = (1.2, 2.0)
TOOTH_S = (8.0, 20.0)
TOOTH_S_SLOW = (25.0, 60.0)
WARMUP_TAU_S = (3.0, 15.0)
WARMUP_TAU_S_SLOW = (20.0, 120.0)


@dataclass(frozen=True)
class Member:
    """One process of the plan.

    `limit_factor` is its limit over its peak: 1 for the leak (its limit is where its curve would
    be after `span_s`), 1.2 to 2 for everybody else.
    """

    name: str
    curve: Curve
    limit_factor: float

    @property
    def leaks(self) -> bool:
        """Tell whether this is the leaking one."""
        return self.curve.kind == LEAK

    @property
    def role(self) -> str:
        """Return "leak" or "neighbour"."""
        return LEAK if self.leaks else "neighbour"

    def limit_bytes(self, baseline_bytes: int = 0, *, private_only: bool = False) -> int:
        """Return the limit for a process that holds `baseline_bytes` before its curve begins.

        `private_only` where the limit does not count file pages (RLIMIT_DATA).
        """
        peak = self.curve.private_peak_bytes() if private_only else self.curve.peak_bytes()
        return round(self.limit_factor * (baseline_bytes + peak))


@dataclass(frozen=True)
class Plan:
    """Everything that a seed decides."""

    seed: int
    hard: bool
    members: tuple[Member, ...]
    onset_s: float
    limit_s: float  # when the leak meets its limit
    scale: float = 1.0  # 1 = full size; less on a machine with little free memory

    @property
    def leak(self) -> Member | None:
        """Return the leaking one; None in a control run."""
        return next((member for member in self.members if member.leaks), None)

    @property
    def neighbours(self) -> tuple[Member, ...]:
        """Return the healthy ones."""
        return tuple(member for member in self.members if not member.leaks)

    def member(self, name: str) -> Member:
        """Return the member of this name."""
        return next(member for member in self.members if member.name == name)

    def peak_bytes(self) -> int:
        """Return the sum of all peaks: what the whole plan can hold at once at most."""
        return sum(member.curve.peak_bytes() for member in self.members)

    def file_bytes(self) -> int:
        """Return how much disk the plan's file takes."""
        kinds = (member.curve for member in self.members)
        return sum(curve.size_bytes for curve in kinds if curve.kind == PAGECACHE)

    def describe(self) -> list[str]:
        """Return the plan in lines for people, the seed first."""
        mode = "hard" if self.hard else "plain"
        control = "" if self.leak else ", no leak"
        shrunk = "" if self.scale == 1.0 else f", sizes x {self.scale:.2f} (little free memory)"
        return [
            f"seed {self.seed} ({mode}{control}{shrunk})",
            *(_sentence(member) for member in self.members),
        ]


@dataclass(frozen=True)
class Promise:
    """Something that every plan must keep, and whether this one does."""

    text: str
    kept: bool


def promises(plan: Plan) -> tuple[Promise, ...]:
    """Compute from the plan's curves what every drawn plan promises."""
    made = [
        _between("the onset lies 10 to 40 s after the start", plan.onset_s, ONSET_S),
        _between(
            "the leak would meet its limit 35 to 70 s after its onset",
            plan.limit_s - plan.onset_s,
            TO_LIMIT_S,
        ),
        Promise("no two processes share a name", len(_names(plan)) == len(plan.members)),
    ]
    for member in plan.neighbours:
        made.append(
            _between(
                f"{member.name} has a limit of 1.2 to 2 times its peak",
                member.limit_factor,
                LIMIT_FACTOR,
            ),
        )
        made.extend(_shape(plan, member))
    if plan.leak is not None:
        made.extend(_fools(plan, plan.leak, member) for member in plan.neighbours)
        held = plan.leak.curve.private_bytes(plan.limit_s)
        near = math.isclose(held, plan.leak.limit_bytes(), abs_tol=16)
        made.append(Promise("the leak's limit is where its curve is at the time it is due", near))
    return tuple(made)


def fooling_moment(plan: Plan, leak: Member, member: Member) -> float | None:
    """Return a time after the onset, before the leak's limit, at which `member` looks worse.

    Worse is both: larger than the leaking one, and grown by more over the last five seconds, all of
    which lie after the onset (before it the leak does not grow, and beating it would be easy).
    """
    step_s = 0.25
    count = int((plan.limit_s - plan.onset_s - LOOK_S) / step_s)
    for i in range(count + 1):
        at_s = plan.onset_s + LOOK_S + i * step_s
        mine, its = member.curve.value(at_s), leak.curve.value(at_s)
        if mine > its and mine - member.curve.value(at_s - LOOK_S) > its - leak.curve.value(
            at_s - LOOK_S,
        ):
            return at_s
    return None


def _names(plan: Plan) -> set[str]:
    return {member.name for member in plan.members}


def _between(text: str, value: float, bounds: tuple[float, float]) -> Promise:
    tiny = 1e-9  # the subtraction of two times rounds
    return Promise(text, bounds[0] - tiny <= value <= bounds[1] + tiny)


def _shape(plan: Plan, member: Member) -> list[Promise]:
    curve = member.curve
    if curve.kind == SAWTOOTH:
        bounds = (TOOTH_S[0], TOOTH_S_SLOW[1] if plan.hard else TOOTH_S[1])
        return [
            _between(
                f"{member.name}'s teeth last {bounds[0]:g} to {bounds[1]:g} s", curve.span_s, bounds
            )
        ]
    if curve.kind == WARMUP:
        bounds = (WARMUP_TAU_S[0], WARMUP_TAU_S_SLOW[1] if plan.hard else WARMUP_TAU_S[1])
        return [
            _between(
                f"{member.name} warms up with a time constant of {bounds[0]:g} to {bounds[1]:g} s",
                curve.span_s,
                bounds,
            )
        ]
    return []


def _fools(plan: Plan, leak: Member, member: Member) -> Promise:
    pages = "in file pages " if member.curve.kind == PAGECACHE else ""
    return Promise(
        f"{member.name} is at some time {pages}larger than {leak.name} and grows faster over 5 s",
        fooling_moment(plan, leak, member) is not None,
    )


def _sentence(member: Member) -> str:
    curve = member.curve
    base, size = curve.base_bytes / MB, curve.size_bytes / MB
    what = {
        LEAK: f"leaks {curve.rate_bytes_s / MB:.1f} MB/s from {curve.start_s:.1f} s on and would "
        f"meet its limit at {curve.start_s + curve.span_s:.1f} s",
        STEADY: "stays as it is",
        SAWTOOTH: f"allocates and frees {size:.0f} MB every {curve.span_s:.1f} s",
        WARMUP: f"warms up by {size:.0f} MB from {curve.start_s:.1f} s on, "
        f"time constant {curve.span_s:.1f} s",
        PAGECACHE: f"writes a file of {size:.0f} MB from {curve.start_s:.1f} s on at "
        f"{curve.rate_bytes_s / MB:.1f} MB/s (page cache only)",
    }[curve.kind]
    return (
        f"{member.name}: holds {base:.0f} MB, {what}; limit {member.limit_bytes() / MB:.0f} MB"
        + ("" if member.leaks else f" ({member.limit_factor:.2f} x its peak)")
    )
