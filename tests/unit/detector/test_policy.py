"""What is done about a leak, when, by whom, and with which words it is refused."""

import pytest

from bus.messages import (
    Action,
    Directive,
    Incident,
    IsolationCommand,
    Refusal,
    Scope,
    Suspicion,
)
from bus.topics import AUDIT, COMMANDS
from detector.deciding import ActRule, DeciderSettings
from tests.unit.detector.stage import (
    BOTH,
    FREEZE,
    JAIL,
    LEAK,
    Stage,
    at,
    kept,
    leak,
    only,
    trouble,
    well,
)

NODE = Scope("node", "c1", "gpu-07")
END = {"memory_leak": {"default": ActRule(actions=("reclaim",))}}


def reasons(stage: Stage) -> list[str]:
    return [refusal.reason for refusal in kept(stage.said, Refusal)]


def actions(stage: Stage) -> list[Action]:
    return [command.action for command in kept(stage.said, IsolationCommand)]


# --- when ----------------------------------------------------------------------------------------


def test_a_freeze_waits_until_the_limit_is_three_polls_and_the_act_away() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=10))
    early = [actions(stage)]
    stage.pass_to(16)
    early.append(actions(stage))
    stage.pass_to(16.5)
    assert (early, actions(stage)) == ([[], []], ["freeze"])


def test_time_alone_makes_an_act_due_without_a_new_suspicion() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=20))
    for second in range(11, 28):
        stage.pass_to(second)
    assert only(stage.said, IsolationCommand).issued == at(27)


def test_a_slower_poll_widens_the_margin() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=15, period_s=5.0))
    assert actions(stage) == ["freeze"]


def test_nothing_acts_before_a_watermark_tells_how_old_the_suspicion_is() -> None:
    stage = Stage(FREEZE)
    outputs = stage.suspect(leak(10, left_s=1))
    assert kept(outputs, IsolationCommand) == []


def test_what_is_too_old_never_acts() -> None:
    stage = Stage(FREEZE)
    stage.show(94, leak(10, left_s=1))
    assert actions(stage) == []
    assert reasons(stage) == [
        "what is known of trainer (pid 4242) on gpu-07 is 84 s old, limit 60 s",
    ]


def test_what_lies_in_the_future_never_acts() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(100, left_s=1))
    assert "lies 90 s in the future" in reasons(stage)[0]


def test_a_suspicion_that_has_calmed_down_is_not_acted_upon() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=20))
    stage.show(15, well(15))
    stage.pass_to(29)
    assert actions(stage) == []


# --- what ----------------------------------------------------------------------------------------


def test_a_command_names_the_process_by_pid_start_and_boot_and_has_an_end() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    command = only(stage.said, IsolationCommand)
    assert command.precondition == {"boot": "b1", "pid": "4242", "start": "99"}
    assert (command.executor, command.generation, command.dry_run) == ("process", 1, False)
    assert (command.issued, command.expires, command.hold_until) == (at(10), at(20), at(610))


def test_a_command_names_a_container_by_path_inode_and_boot() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3, scope=JAIL))
    command = only(stage.said, IsolationCommand)
    assert command.precondition == {"boot": "b1", "cgroup": "/jobs/7", "inode": "311"}


@pytest.mark.parametrize(
    "suspicion",
    [leak(10, left_s=3, boot=""), leak(10, left_s=3, scope=Scope("process", "c1", "n", "odd"))],
)
def test_what_cannot_be_told_apart_is_not_acted_upon(suspicion: Suspicion) -> None:
    stage = Stage(FREEZE)
    stage.show(10, suspicion)
    assert reasons(stage) == ["its boot and identity are not known, so it can't be told apart"]


def test_ending_needs_more_than_one_width() -> None:
    stage = Stage(END)
    stage.show(10, leak(10, left_s=3))
    assert actions(stage) == []
    reason = (
        "ending it can't be undone: a leak seen at one width only is ended when its limit is one "
        "poll away and its own state says so too"
    )
    assert reasons(stage) == [reason]


def test_a_second_width_allows_ending() -> None:
    stage = Stage(END)
    stage.show(10, leak(10, left_s=3, widths=(1.0, 5.0)))
    command = only(stage.said, IsolationCommand)
    assert (command.action, command.hold_until) == ("reclaim", None)


def test_being_near_its_limit_allows_ending_one_poll_before_it() -> None:
    stage = Stage(END)
    stage.show(10, leak(10, left_s=3, near=True))
    early = actions(stage)
    stage.pass_to(11.5)
    assert (early, actions(stage)) == ([], ["reclaim"])


def test_one_poll_before_the_limit_ending_still_needs_its_own_state_to_say_so() -> None:
    stage = Stage(END)
    stage.show(10, leak(10, left_s=0.5))
    assert actions(stage) == []


@pytest.mark.parametrize("outcome", ["refused", "failed", "expired"])
def test_ending_follows_where_freezing_was_not_possible(outcome: str) -> None:
    stage = Stage(BOTH)
    stage.show(10, leak(10, left_s=1, near=True))
    freeze = only(stage.said, IsolationCommand)
    stage.report(freeze, outcome, second=10, detail="it is not ours")  # type: ignore[arg-type]
    commands = kept(stage.said, IsolationCommand)
    assert [command.action for command in commands] == ["freeze", "reclaim"]
    assert [command.generation for command in commands] == [1, 2]
    assert len({command.id for command in commands}) == 2


def test_what_failed_is_in_the_sentence_and_is_tried_again_a_few_times() -> None:
    stage = Stage(FREEZE, DeciderSettings(cooldown_s=5.0, burst=50))
    for second in range(10, 60):
        stage.show(second, leak(second, left_s=1))
        commands = kept(stage.said, IsolationCommand)
        stage.report(commands[-1], "failed", second=second, detail="the cgroup is gone")
    assert len(kept(stage.said, IsolationCommand)) == 3
    last = kept(stage.said, Incident)[-1]
    assert last.state == "open"
    assert last.sentence.endswith("; freeze failed: the cgroup is gone")


def test_a_leak_that_goes_on_after_the_hold_is_ended_where_that_is_allowed() -> None:
    stage = Stage(BOTH)
    stage.show(10, leak(10, left_s=3))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.pass_to(611)
    stage.show(612, leak(612, left_s=3, widths=(1.0, 5.0)))
    assert actions(stage) == ["freeze", "reclaim"]


def test_evidence_from_before_the_lifting_does_not_act_again() -> None:
    stage = Stage(BOTH)
    stage.show(10, leak(10, left_s=3))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.show(600, leak(600, left_s=0.5, widths=(1.0, 5.0)))
    stage.pass_to(612)
    assert actions(stage) == ["freeze"]


def test_a_leak_that_goes_on_is_frozen_again_where_ending_is_not_allowed() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.pass_to(611)
    stage.show(612, leak(612, left_s=3))
    assert actions(stage) == ["freeze", "freeze"]


def test_the_executor_may_hold_for_less_than_was_asked() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    stage.report(only(stage.said, IsolationCommand), second=11, held_until=at(100))
    stage.pass_to(101)
    assert kept(stage.said, Incident)[-1].state == "probation"


def test_an_early_lifting_by_the_executor_ends_the_containment() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    command = only(stage.said, IsolationCommand)
    stage.report(command, second=11)
    stage.report(command, second=40, held_until=at(40), detail="let go at a clean stop")
    incident = kept(stage.said, Incident)[-1]
    assert incident.state == "probation"
    assert incident.sentence.endswith("no longer held: let go at a clean stop")


# --- who and where -------------------------------------------------------------------------------


def test_acting_is_off_without_a_rule_and_says_so_once() -> None:
    stage = Stage()
    for second in range(10, 15):
        stage.show(second, leak(second, left_s=2))
    assert actions(stage) == []
    assert reasons(stage) == [
        "acting is off for memory_leak in pool default; [act.memory_leak.default] switches it on",
    ]


def test_a_rule_holds_in_its_pool_alone() -> None:
    stage = Stage(FREEZE)
    stage.know("gpu-07", pool="batch")
    stage.show(10, leak(10, left_s=2))
    assert reasons(stage) == [
        "acting is off for memory_leak in pool batch; [act.memory_leak.batch] switches it on",
    ]


def test_an_action_that_the_rule_does_not_list_is_refused_by_name() -> None:
    stage = Stage({"memory_leak": {"default": ActRule(actions=("drain",))}})
    stage.show(10, leak(10, left_s=2))
    assert reasons(stage) == ["freeze is not among the actions of [act.memory_leak.default]"]


def test_without_an_executor_that_knows_the_action_it_is_refused() -> None:
    stage = Stage({"disk": {"default": ActRule(actions=("drain",))}})
    stage.show(10, trouble(10, "disk", scope=NODE))
    assert reasons(stage) == ["no executor that knows drain is configured"]


def test_a_dry_run_is_given_to_the_rehearsing_executor() -> None:
    stage = Stage(
        {"memory_leak": {"default": ActRule(actions=("freeze",), dry_run=True)}},
        executors=("process", "dry_run"),
    )
    stage.show(10, leak(10, left_s=2))
    command = only(stage.said, IsolationCommand)
    assert (command.executor, command.dry_run) == ("dry_run", True)


def test_a_dry_run_contains_nothing_and_is_not_repeated_while_it_would_hold() -> None:
    stage = Stage(FREEZE, DeciderSettings(dry_run=True))
    stage.show(10, leak(10, left_s=2))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.show(100, leak(100, left_s=2))
    incident = kept(stage.said, Incident)[-1]
    assert incident.state == "open"
    assert "a dry run: freeze would have been done" in incident.sentence
    assert actions(stage) == ["freeze"]


def test_a_node_is_drained_in_time_for_a_checkpoint() -> None:
    act = {"memory_leak": {"default": ActRule(actions=("hold", "drain_at_checkpoint"))}}
    stage = Stage(act, executors=("slurm",))
    stage.show(10, leak(10, scope=NODE, left_s=4000))
    early = actions(stage)
    stage.show(420, leak(420, scope=NODE, left_s=3590))
    assert (early, actions(stage)) == ([], ["hold"])


def test_only_a_degraded_node_is_drained_hard() -> None:
    act = {"disk": {"default": ActRule(actions=("drain",))}}
    stage = Stage(act, executors=("slurm",))
    stage.show(10, trouble(10, "disk", scope=NODE, state="suspect", score=4.0))
    early = actions(stage)
    stage.show(12, trouble(12, "disk", scope=NODE))
    assert (early, actions(stage)) == ([], ["drain"])


# --- what people say -----------------------------------------------------------------------------


def order(kind: str, scope: Scope, **changes: object) -> Directive:
    base = {"id": f"d-{kind}", "who": "ada", "kind": kind, "scope": scope, "time": at(5)}
    return Directive(**(base | changes))  # type: ignore[arg-type]


def test_after_stop_everything_nothing_acts_until_it_is_lifted() -> None:
    stage = Stage(FREEZE)
    stage.order(order("stop_everything", Scope("fleet"), reason="storage is being moved"))
    stage.show(10, leak(10, left_s=2))
    stopped = (actions(stage), reasons(stage))
    stage.order(order("lift", Scope("fleet"), target="stop_everything"))
    stage.show(12, leak(12, left_s=2))
    assert stopped == ([], ["everything was stopped by ada: storage is being moved"])
    assert actions(stage) == ["freeze"]


def test_stop_everything_ends_at_its_time() -> None:
    stage = Stage(FREEZE)
    stage.order(order("stop_everything", Scope("fleet"), until=at(8)))
    stage.show(10, leak(10, left_s=2))
    assert actions(stage) == ["freeze"]


@pytest.mark.parametrize(
    "scope",
    [LEAK, Scope("process", "", "gpu-07", LEAK.name), NODE, Scope("fleet")],
)
def test_a_person_releases_what_is_held(scope: Scope) -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    freeze = only(stage.said, IsolationCommand)
    stage.report(freeze, second=11)
    stage.order(order("release", scope, reason="it is wanted"))
    release = kept(stage.said, IsolationCommand)[-1]
    stage.report(release, second=13)
    assert (release.action, release.precondition) == ("release", {"command": freeze.id})
    assert release.reason == "ada releases trainer (pid 4242) on gpu-07: it is wanted"
    assert kept(stage.said, Incident)[-1].state == "probation"


def test_what_a_person_released_is_left_alone_for_a_while() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.pass_to(300)
    stage.order(order("release", LEAK))
    stage.report(kept(stage.said, IsolationCommand)[-1], second=301)
    stage.show(310, leak(310, left_s=1))
    early = actions(stage)
    stage.show(361, leak(361, left_s=1))
    assert (early, actions(stage)) == (["freeze", "release"], ["freeze", "release", "freeze"])


def test_releasing_what_is_not_held_is_refused() -> None:
    stage = Stage(FREEZE)
    stage.order(order("release", LEAK))
    assert reasons(stage) == ["nothing is held on trainer (pid 4242) on gpu-07"]


def test_an_unknown_directive_is_counted_and_changes_nothing() -> None:
    stage = Stage(FREEZE)
    stage.order(order("maintenance", NODE))
    stage.show(10, leak(10, left_s=2))
    assert stage.decider.counts["directives not known yet: maintenance"] == 1
    assert actions(stage) == ["freeze"]


def test_commands_refusals_reports_and_directives_go_to_the_audit_too() -> None:
    stage = Stage(FREEZE)
    stage.order(order("label", LEAK))
    stage.show(10, leak(10, left_s=3))
    stage.report(only(stage.said, IsolationCommand), second=11)
    off = Stage()
    off.show(10, leak(10, left_s=3))
    audit = [type(out.message).__name__ for out in stage.said + off.said if out.topic == AUDIT]
    assert audit == ["Directive", "IsolationCommand", "ExecutionReport", "Refusal"]


def test_commands_and_refusals_are_keyed_by_their_incident() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    incident = kept(stage.said, Incident)[0]
    assert {out.key for out in stage.said if out.topic == COMMANDS} == {incident.id}


# --- executors that keep silent ------------------------------------------------------------------


def test_an_executor_that_does_not_answer_is_an_incident_until_it_does() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    command = only(stage.said, IsolationCommand)
    stage.pass_to(30)
    quiet = kept(stage.said, Incident)[-1].scope
    stage.pass_to(31)
    stage.pass_to(700)
    silent = [i for i in kept(stage.said, Incident) if i.scope.name == "executor:process"]
    assert quiet == LEAK
    sentence = (
        "no executor answered: process was asked to freeze trainer (pid 4242) on gpu-07 and has "
        "said nothing for 21 s"
    )
    assert [incident.sentence for incident in silent] == [sentence]
    stage.report(command, second=701)
    assert [i.state for i in kept(stage.said, Incident) if i.scope.kind == "fleet"] == [
        "open",
        "closed",
    ]


def test_an_answer_that_comes_late_still_counts() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    stage.pass_to(31)
    stage.report(only(stage.said, IsolationCommand), second=32)
    assert kept(stage.said, Incident)[-1].state == "contained"


def test_a_late_answer_belongs_to_the_try_that_missed_it() -> None:
    stage = Stage(FREEZE, DeciderSettings(tries_max=2))
    stage.show(10, leak(10, left_s=3))
    stage.pass_to(31)
    stage.report(only(stage.said, IsolationCommand), "failed", second=32)
    stage.show(100, leak(100, left_s=3))
    assert actions(stage) == ["freeze", "freeze"]


def test_in_a_replay_without_reports_no_answer_is_missed() -> None:
    stage = Stage(FREEZE, DeciderSettings(dry_run=True), answers=False)
    stage.show(10, leak(10, left_s=3))
    stage.pass_to(40)
    incidents = kept(stage.said, Incident)
    assert {incident.scope for incident in incidents} == {LEAK}
    assert incidents[-1].state == "open"


def test_a_report_on_an_unknown_command_is_counted_and_audited() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    command = only(stage.said, IsolationCommand)
    other = Stage(FREEZE)
    outputs = other.report(command, second=11)
    assert other.decider.counts["reports on unknown commands"] == 1
    assert [output.topic for output in outputs] == [AUDIT]
