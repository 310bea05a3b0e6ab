"""Draws a demo from a seed: who leaks how fast, and neighbours that fool a naive detector.

Method: the leak is drawn first. Each neighbour then gets a moment, early enough that the leak is
still far from its limit, at which it must look worse than the leak: larger, and growing faster over
the last five seconds. Its shape is solved for that moment instead of drawn again and again until
it happens to fit. `farside.demo.plan.promises` says what must come out.
"""

import math
from dataclasses import replace

import numpy as np

from farside.demo.curves import LEAK, PAGECACHE, SAWTOOTH, STEADY, WARMUP, Curve
from farside.demo.plan import (
    LIMIT_FACTOR,
    LOOK_S,
    MB,
    ONSET_S,
    TO_LIMIT_S,
    TOOTH_S,
    TOOTH_S_SLOW,
    WARMUP_TAU_S,
    WARMUP_TAU_S_SLOW,
    Member,
    Plan,
)
from runtime.errors import NotPermitted

# A run should be over in about a minute and a half, so a late onset goes with a fast leak: both
# stay anywhere in their ranges, only their sum is bounded.
LATEST_LIMIT_S = 95.0
LEAK_MB_S = (2.0, 5.0)
LEAK_MB_S_HARD = (1.5, 3.0)
LEAK_BASE_MB = (30.0, 80.0)

# Below this share of its full size the leak grows by less than a page-sized step can show well.
SMALLEST_SCALE = 0.15

# comm names of an ordinary training machine: none of them tells what the process will do
NAMES = (
    "trainer",
    "loader",
    "server",
    "cache-fill",
    "indexer",
    "tokenizer",
    "evaluator",
    "exporter",
    "scheduler",
    "preprocess",
)


def draw(
    seed: int,
    *,
    hard: bool = False,
    leak: bool = True,
    budget_bytes: int | None = None,
) -> Plan:
    """Return the plan of this seed.

    `hard` keeps the fast neighbours (a detector must not pay for patience with the slow ones by
    accusing them) and adds a slow sawtooth and a slow warm-up: six processes instead of four, the
    leak slower than in a plain plan. `leak=False` puts a steady process in the leaking one's place
    and leaves all else of the seed as it is. `budget_bytes` bounds the memory: sizes and rates
    shrink, times stay.

    Errors: `NotPermitted` when so little memory is free that the plan could not be seen.
    """
    rng = np.random.default_rng(seed)
    names = [str(name) for name in rng.permutation(NAMES)]
    leaking = _leak(rng, hard=hard)
    curves = [
        _tooth(rng, leaking, TOOTH_S),
        _warmup(rng, leaking, WARMUP_TAU_S),
        _pagecache(rng, leaking),
    ]
    if hard:
        curves.append(_tooth(rng, leaking, TOOTH_S_SLOW))
        curves.append(_warmup(rng, leaking, WARMUP_TAU_S_SLOW))
    factors = rng.uniform(*LIMIT_FACTOR, size=len(curves) + 1)
    members = [Member(names[i], curve, float(factors[i])) for i, curve in enumerate(curves)]
    # the steady one takes everything but the growth: name, place and size
    if leak:
        special = Member(names[len(curves)], leaking, 1.0)
    else:
        steady = leaking._replace(kind=STEADY, size_bytes=0, rate_bytes_s=0.0)
        special = Member(names[len(curves)], steady, float(factors[-1]))
    members.insert(int(rng.integers(len(members) + 1)), special)
    plan = Plan(
        seed,
        hard,
        tuple(members),
        leaking.start_s,
        leaking.start_s + leaking.span_s,
    )
    return plan if budget_bytes is None else _within(plan, budget_bytes)


def _leak(rng: np.random.Generator, *, hard: bool) -> Curve:
    to_limit_s = float(rng.uniform(*TO_LIMIT_S))
    onset_s = float(rng.uniform(ONSET_S[0], min(ONSET_S[1], LATEST_LIMIT_S - to_limit_s)))
    rate = float(rng.uniform(*(LEAK_MB_S_HARD if hard else LEAK_MB_S))) * MB
    base = int(rng.uniform(*LEAK_BASE_MB) * MB)
    return Curve(LEAK, base, int(rate * to_limit_s), onset_s, to_limit_s, rate)


def _moment(rng: np.random.Generator, leak: Curve) -> float:
    """Draw when a neighbour shall look worse than the leak.

    Six seconds after the onset at the earliest, so that the last five lie after it; at the latest
    18 s after it or at 40 % of the leak's way, since later the leak has grown so large that
    neighbours larger still would ask for gigabytes.
    """
    return leak.start_s + float(rng.uniform(6.0, min(18.0, 0.4 * leak.span_s)))


def _base(rng: np.random.Generator, leak: Curve, moment_s: float, grown: float) -> int:
    """Return a base that makes base + `grown` at least 15 % more than the leaking one has."""
    drawn = float(rng.uniform(15.0, 50.0)) * MB
    return int(max(drawn, 1.15 * leak.private_bytes(moment_s) - grown))


def _tooth(rng: np.random.Generator, leak: Curve, periods_s: tuple[float, float]) -> Curve:
    """A sawtooth that drops just after its moment, its teeth steeper than the leak."""
    moment_s = _moment(rng, leak)
    period_s = float(rng.uniform(*periods_s))
    slope = float(rng.uniform(1.2, 1.6)) * leak.rate_bytes_s
    height = slope * period_s
    drop_s = moment_s + 0.3  # past the moment, so that the last five seconds are one rise
    base = _base(rng, leak, moment_s, height - slope * 0.3)
    return Curve(SAWTOOTH, base, int(height), drop_s, period_s, 0.0)


def _warmup(rng: np.random.Generator, leak: Curve, taus_s: tuple[float, float]) -> Curve:
    """A warm-up that begins 5 to 8 s before its moment and outgrows the leak until then."""
    moment_s = _moment(rng, leak)
    tau_s = float(rng.uniform(*taus_s))
    age_s = float(rng.uniform(LOOK_S, 8.0))
    share = math.exp(-(age_s - LOOK_S) / tau_s) - math.exp(-age_s / tau_s)  # of the last 5 s
    margin = float(rng.uniform(1.15, 1.6)) if tau_s <= WARMUP_TAU_S[1] else 1.15
    level = margin * LOOK_S * leak.rate_bytes_s / share
    base = _base(rng, leak, moment_s, level * -math.expm1(-age_s / tau_s))
    return Curve(WARMUP, base, int(level), moment_s - age_s, tau_s, 0.0)


def _pagecache(rng: np.random.Generator, leak: Curve) -> Curve:
    """A file that grows for some seconds past its moment, faster than the leak, and then stays."""
    moment_s = _moment(rng, leak)
    base = int(rng.uniform(15.0, 30.0) * MB)
    start_s = float(rng.uniform(1.0, moment_s - LOOK_S))
    grown_s = moment_s - start_s
    rate = max(
        float(rng.uniform(1.2, 1.6)) * leak.rate_bytes_s,
        1.15 * leak.private_bytes(moment_s) / grown_s,
    )
    size = int(rate * (grown_s + float(rng.uniform(2.0, 6.0))))
    return Curve(PAGECACHE, base, size, start_s, size / rate, rate)


def _within(plan: Plan, budget_bytes: int) -> Plan:
    """Shrink all sizes alike until the plan fits; times and proportions stay."""
    scale = budget_bytes / plan.peak_bytes()
    if scale >= 1.0:
        return plan
    if scale < SMALLEST_SCALE:
        needed = math.ceil(plan.peak_bytes() * SMALLEST_SCALE / MB)
        raise NotPermitted(
            f"the demo needs {needed} MB of free memory for its processes, "
            f"{max(budget_bytes, 0) // MB} MB are free: close something and try again",
        )
    members = tuple(replace(one, curve=_shrunk(one.curve, scale)) for one in plan.members)
    return replace(plan, members=members, scale=scale)


def _shrunk(curve: Curve, scale: float) -> Curve:
    return curve._replace(
        base_bytes=int(curve.base_bytes * scale),
        size_bytes=int(curve.size_bytes * scale),
        rate_bytes_s=curve.rate_bytes_s * scale,
    )
