"""How much is done to the fleet at most: rates, holds, pauses, and the veto of a common cause."""

from bus.messages import Directive, Incident, IsolationCommand, Refusal, Scope
from detector.budgets import Ledger
from detector.deciding import ActRule, DeciderSettings
from runtime.clock import Instant
from tests.unit.detector.stage import FREEZE, LEAK, Stage, at, kept, leak, only

FLEET = tuple(f"n{number:03}" for number in range(100))


def process(node: str, pid: int = 1) -> Scope:
    return Scope("process", "c1", node, f"leaky:{pid}:7")


def reasons(stage: Stage) -> list[str]:
    return [refusal.reason for refusal in kept(stage.said, Refusal)]


def leaking(stage: Stage, second: float, *scopes: Scope) -> None:
    stage.show(second, *(leak(second, scope=scope, left_s=2) for scope in scopes))


def test_a_burst_of_acts_is_bounded_and_refills_with_time() -> None:
    settings = DeciderSettings(held_max=50, held_percent=100.0)
    stage = Stage(FREEZE, settings)
    stage.know(*FLEET)
    leaking(stage, 10, *(process(node) for node in FLEET[:5]))
    burst = len(kept(stage.said, IsolationCommand))
    leaking(stage, 609, process(FLEET[5]))
    early = len(kept(stage.said, IsolationCommand))
    leaking(stage, 611, process(FLEET[5]))
    assert (burst, early, len(kept(stage.said, IsolationCommand))) == (3, 3, 4)
    assert "budget: 3 acts at once and 6 an hour are spent, the next is free in 10 min" in (
        reasons(stage)
    )


def test_only_so_many_scopes_are_held_at_once() -> None:
    stage = Stage(FREEZE)
    stage.know(*FLEET)
    leaking(stage, 10, *(process(node) for node in FLEET[:3]))
    assert len(kept(stage.said, IsolationCommand)) == 2
    assert reasons(stage) == ["budget: 2 of 2 scopes already held"]


def test_a_share_of_the_fleet_is_rounded_up_to_one_node() -> None:
    stage = Stage(FREEZE)
    stage.know("n1", "n2")
    leaking(stage, 10, process("n1"), process("n2"))
    assert len(kept(stage.said, IsolationCommand)) == 1
    assert reasons(stage) == ["budget: 1 of 1 nodes already hold something (5 % of 2 known)"]


def test_of_one_node_only_so_many_scopes_are_held() -> None:
    settings = DeciderSettings(held_max=9, cooldown_s=0.0)
    stage = Stage(FREEZE, settings)
    stage.know("n1")
    leaking(stage, 10, *(process("n1", pid) for pid in (1, 2, 3)))
    assert len(kept(stage.said, IsolationCommand)) == 2
    assert reasons(stage) == ["budget: 2 of 2 scopes already held on n1"]


def test_what_was_lifted_makes_room_again() -> None:
    stage = Stage(FREEZE)
    leaking(stage, 10, process("n1"))
    stage.report(only(stage.said, IsolationCommand), second=11)
    leaking(stage, 600, process("n2"))
    early = len(kept(stage.said, IsolationCommand))
    leaking(stage, 620, process("n2"))
    assert (early, len(kept(stage.said, IsolationCommand))) == (1, 2)


def test_a_refused_act_holds_nothing_and_starts_no_pause() -> None:
    stage = Stage(FREEZE)
    leaking(stage, 10, process("n1", 1))
    stage.report(only(stage.said, IsolationCommand), "refused", second=11, detail="not ours")
    leaking(stage, 12, process("n1", 2))
    assert [command.scope.name for command in kept(stage.said, IsolationCommand)] == [
        "leaky:1:7",
        "leaky:2:7",
    ]


def test_after_an_act_its_node_is_left_alone_for_a_while() -> None:
    stage = Stage(FREEZE, DeciderSettings(held_max=9))
    leaking(stage, 10, process("n1", 1))
    leaking(stage, 30, process("n1", 2))
    early = reasons(stage)
    leaking(stage, 71, process("n1", 2))
    assert early == [
        "cooldown: n1 was acted upon 20 s ago, the next act comes 60 s after it",
    ]
    assert len(kept(stage.said, IsolationCommand)) == 2


def test_an_unanswered_freeze_counts_as_held_until_it_would_end() -> None:
    stage = Stage(FREEZE)
    leaking(stage, 10, process("n1"))
    stage.pass_to(40)
    leaking(stage, 100, process("n2"))
    assert len(kept(stage.said, IsolationCommand)) == 1


def test_the_most_urgent_is_served_first_when_budgets_are_short() -> None:
    stage = Stage(FREEZE)
    stage.show(
        10,
        leak(10, scope=process("n1"), left_s=3),
        leak(10, scope=process("n2"), left_s=1),
    )
    assert only(stage.said, IsolationCommand).scope.node == "n2"


def test_a_refusal_is_told_once_for_each_reason() -> None:
    stage = Stage(FREEZE)
    for second in range(10, 50):
        leaking(stage, second, process("n1"), process("n2"))
    assert len(reasons(stage)) == 1


# --- the veto of a common cause ------------------------------------------------------------------


def test_a_fault_on_many_nodes_at_once_has_a_common_cause_and_acts_on_none() -> None:
    stage = Stage(FREEZE)
    stage.know(*FLEET[:8])
    leaking(stage, 10, *(process(node) for node in FLEET[:3]))
    fleet = [i for i in kept(stage.said, Incident) if i.scope.kind == "fleet"]
    assert kept(stage.said, IsolationCommand) == []
    assert set(reasons(stage)) == {fleet[0].sentence}
    sentence = (
        "the fleet: memory_leak on 3 of 8 nodes within 10 min: a common cause, so no node is "
        "acted upon"
    )
    assert [incident.sentence for incident in fleet] == [sentence]


def test_a_quarter_of_the_nodes_is_not_yet_a_common_cause() -> None:
    stage = Stage(FREEZE)
    stage.know(*FLEET[:8])
    leaking(stage, 10, *(process(node) for node in FLEET[:2]))
    assert len(kept(stage.said, IsolationCommand)) == 1


def test_a_few_nodes_are_too_few_for_a_common_cause() -> None:
    stage = Stage(FREEZE)
    stage.know(*FLEET[:7])
    leaking(stage, 10, *(process(node) for node in FLEET[:7]))
    assert len(kept(stage.said, IsolationCommand)) == 1


def test_nodes_that_fail_one_after_the_other_have_no_common_cause() -> None:
    stage = Stage()
    stage.know(*FLEET[:8])
    for number in range(8):
        leaking(stage, 10 + 400 * number, process(FLEET[number]))
    assert {i.scope.kind for i in kept(stage.said, Incident)} == {"process"}


def test_the_incident_of_a_common_cause_closes_after_it_is_over() -> None:
    stage = Stage()
    stage.know(*FLEET[:8])
    leaking(stage, 10, *(process(node) for node in FLEET[:3]))
    for second in (400, 700, 1301):
        stage.pass_to(second)
    fleet = [i.state for i in kept(stage.said, Incident) if i.scope.kind == "fleet"]
    assert fleet == ["open", "closed"]


def test_ending_spends_a_token_but_holds_nothing() -> None:
    act = {"memory_leak": {"default": ActRule(actions=("reclaim",))}}
    stage = Stage(act)
    stage.know(*FLEET)
    stage.show(
        10,
        *(leak(10, scope=process(node), left_s=2, widths=(1.0, 5.0)) for node in FLEET[:5]),
    )
    assert len(kept(stage.said, IsolationCommand)) == 3


def test_a_release_needs_no_budget() -> None:
    stage = Stage(FREEZE, DeciderSettings(burst=1))
    stage.show(10, leak(10, left_s=2))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.order(Directive(id="d", who="ada", kind="release", scope=LEAK, time=at(12)))
    assert [command.action for command in kept(stage.said, IsolationCommand)] == [
        "freeze",
        "release",
    ]


def test_what_an_executor_refused_gives_its_token_back_and_what_failed_does_not() -> None:
    settings = DeciderSettings(burst=1, acts_per_hour=1.0)
    scope, now = Scope("process", "cell", "n1", "a:1:1"), Instant(10**18)
    for whole, left in ((True, 1.0), (False, 0.0)):
        ledger = Ledger()
        ledger.spend(scope, now, settings)
        ledger.forgive(scope, now, settings, whole=whole)
        assert ledger.tokens_at(now, settings) == left
