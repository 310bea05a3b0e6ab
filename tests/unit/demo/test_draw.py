"""A seed decides everything about a demo, and every seed keeps what the demo promises."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farside.demo.curves import LEAK, PAGECACHE, SAWTOOTH, STEADY, WARMUP
from farside.demo.draw import SMALLEST_SCALE, draw
from farside.demo.plan import MB, Plan, promises
from runtime.errors import NotPermitted


def broken(plan: Plan) -> list[str]:
    return [promise.text for promise in promises(plan) if not promise.kept]


@pytest.mark.parametrize("hard", [False, True])
def test_each_of_two_thousand_seeds_keeps_every_promise(*, hard: bool) -> None:
    kept_not = {seed: broken(draw(seed, hard=hard)) for seed in range(2000)}
    assert {seed: texts for seed, texts in kept_not.items() if texts} == {}


@given(
    seed=st.integers(min_value=0, max_value=2**63),
    hard=st.booleans(),
    leak=st.booleans(),
    budget=st.one_of(st.none(), st.integers(min_value=300 * MB, max_value=2000 * MB)),
)
def test_promises_hold_for_any_seed_mode_and_amount_of_free_memory(
    *, seed: int, hard: bool, leak: bool, budget: int | None
) -> None:
    assert broken(draw(seed, hard=hard, leak=leak, budget_bytes=budget)) == []


def test_a_seed_repeats_and_another_differs() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_a_plain_plan_has_one_of_each_kind() -> None:
    kinds = sorted(member.curve.kind for member in draw(1).members)
    assert kinds == sorted([LEAK, PAGECACHE, SAWTOOTH, WARMUP])


def test_a_hard_plan_adds_a_slow_sawtooth_and_a_slow_warmup() -> None:
    curves = [member.curve for member in draw(1, hard=True).members]
    spans = {
        kind: sorted(curve.span_s for curve in curves if curve.kind == kind)
        for kind in (SAWTOOTH, WARMUP)
    }
    assert spans[SAWTOOTH][0] <= 20 < spans[SAWTOOTH][1] <= 60
    assert spans[WARMUP][0] <= 15 < spans[WARMUP][1] <= 120


def test_without_the_leak_all_else_of_the_seed_stays_and_a_steady_one_takes_its_place() -> None:
    with_leak, without = draw(5), draw(5, leak=False)
    assert without.leak is None
    changed = [
        (one.curve.kind, other.curve.kind, one.name == other.name)
        for one, other in zip(with_leak.members, without.members, strict=True)
        if one != other
    ]
    assert changed == [(LEAK, STEADY, True)]


def test_no_name_and_no_place_in_the_list_tells_which_one_leaks() -> None:
    leaks = [plan.leak for plan in map(draw, range(200)) if plan.leak]
    assert len({leak.name for leak in leaks}) >= 8
    assert {draw(seed).members.index(leak) for seed, leak in enumerate(leaks)} == {0, 1, 2, 3}


@pytest.mark.parametrize(("hard", "most_mb"), [(False, 1200), (True, 1550)])
def test_all_processes_together_stay_below_a_known_size(*, hard: bool, most_mb: int) -> None:
    assert max(draw(seed, hard=hard).peak_bytes() for seed in range(1000)) < most_mb * MB


def test_with_little_free_memory_sizes_shrink_and_times_stay() -> None:
    full, small = draw(3), draw(3, budget_bytes=300 * MB)
    assert small.peak_bytes() <= 300 * MB
    assert (small.onset_s, small.limit_s) == (full.onset_s, full.limit_s)
    assert small.scale == pytest.approx(300 * MB / full.peak_bytes())


def test_with_next_to_no_free_memory_it_says_how_much_is_needed() -> None:
    needed_mb = draw(3).peak_bytes() * SMALLEST_SCALE / MB
    with pytest.raises(NotPermitted, match=rf"needs {needed_mb:.0f}|needs {needed_mb + 1:.0f}"):
        draw(3, budget_bytes=20 * MB)


def test_the_description_names_the_seed_and_every_process() -> None:
    plan = draw(11, hard=True)
    first, *others = plan.describe()
    assert first == "seed 11 (hard)"
    assert [line.split(":")[0] for line in others] == [member.name for member in plan.members]


def test_a_neighbour_that_could_fool_nobody_breaks_its_promise() -> None:
    plan = draw(2)
    tame = tuple(
        replace(one, curve=one.curve._replace(base_bytes=MB, size_bytes=MB))
        if one.curve.kind == WARMUP
        else one
        for one in plan.members
    )
    name = next(one.name for one in plan.members if one.curve.kind == WARMUP)
    leak = plan.leak.name if plan.leak else ""
    assert broken(replace(plan, members=tame)) == [
        f"{name} is at some time larger than {leak} and grows faster over 5 s"
    ]


def test_a_limit_over_data_alone_leaves_the_page_cache_out() -> None:
    cache = next(one for one in draw(4).members if one.curve.kind == PAGECACHE)
    baseline = 7 * MB
    limit = cache.limit_bytes(baseline, private_only=True)
    assert limit == round(cache.limit_factor * (baseline + cache.curve.base_bytes))
