"""The decider as a whole: repeats, restarts, other logs, node health, limits of its memory."""

import msgspec
import pytest

from bus.messages import (
    Directive,
    Incident,
    IsolationCommand,
    JobFacts,
    NodeHealth,
    Reject,
    Scope,
    Source,
    Suspicion,
    Watermark,
)
from bus.topics import DIRECTIVES, HEALTH, INVENTORY, SUSPICIONS
from bus.transport import Envelope
from detector.deciding import ActRule, DeciderSettings
from detector.outputs import Output
from runtime.clock import Instant
from tests.unit.detector.stage import (
    FREEZE,
    JAIL,
    LEAK,
    START,
    Stage,
    at,
    kept,
    leak,
    only,
    trouble,
    well,
)

NODE = Scope("node", "c1", "gpu-07")


def a_full_life() -> Stage:
    """Play a leak that is frozen, lifted, frozen again; a lost executor; a person; three cells."""
    stage = Stage(FREEZE)
    stage.know("gpu-07", "gpu-08")
    stage.show(10, leak(10, left_s=20), leak(10, scope=JAIL, left_s=300, room_mib=20))
    for second in range(11, 28):
        stage.show(second, leak(second, left_s=30 - second))
    stage.report(only(stage.said, IsolationCommand), second=28)
    stage.show(40, well(40), trouble(40, "silence", scope=NODE, text="nothing heard for 9 s"))
    stage.pass_to(630)
    stage.show(640, leak(640, left_s=2), well(640, NODE))
    stage.pass_to(670)
    stage.report(kept(stage.said, IsolationCommand)[-1], "failed", second=671, detail="no such")
    stage.show(672, well(672))
    stage.pass_to(2000)
    return stage


def replayed(stage: Stage, cuts: set[int]) -> list[Output]:
    """Play the same envelopes again, restoring into a fresh decider before those places."""
    decider, outputs = stage.fresh(), []
    for place, envelope in enumerate(stage.played):
        if place in cuts:
            plain, arrays = decider.save()
            decider = stage.fresh()
            decider.load(plain, arrays)
        outputs += decider.step([envelope])
    return outputs


# --- the same records, the same results ----------------------------------------------------------


def test_restoring_before_any_record_changes_nothing() -> None:
    stage = a_full_life()
    for place in range(len(stage.played)):
        assert replayed(stage, {place}) == stage.said, f"restored before record {place}"


def test_restoring_before_every_record_changes_nothing() -> None:
    stage = a_full_life()
    assert replayed(stage, set(range(len(stage.played)))) == stage.said


def test_all_records_in_one_step_give_what_they_give_one_by_one() -> None:
    stage = a_full_life()
    assert stage.fresh().step(stage.played) == stage.said


def test_state_is_the_same_after_the_same_records() -> None:
    stage = a_full_life()
    again = stage.fresh()
    again.step(stage.played)
    assert again.save() == stage.decider.save()


def test_delivering_every_record_twice_changes_nothing() -> None:
    stage = a_full_life()
    decider, outputs = stage.fresh(), []
    for envelope in stage.played:
        outputs += decider.step([envelope, envelope])
    assert outputs == stage.said


def test_records_published_again_after_a_crash_of_the_scorer_change_nothing() -> None:
    stage = a_full_life()
    telemetry = [e for e in stage.played[:30] if isinstance(e.message, Suspicion | Watermark)]
    decider = stage.fresh()
    outputs = decider.step(stage.played[:30]) + decider.step(telemetry)
    assert outputs + decider.step(stage.played[30:]) == stage.said
    assert decider.counts["repeats"] == len(telemetry)


def test_a_watermark_stamped_anew_is_still_a_repeat() -> None:
    stage = Stage()
    stage.show(10, leak(10))
    mark = stage.played[-1].message
    assert isinstance(mark, Watermark)
    later = msgspec.structs.replace(mark, head_time=at(500))
    stage.take(Envelope(SUSPICIONS, 0, 99, START, "", later))
    assert stage.decider.now == at(10)


def test_several_suspicions_of_one_record_are_all_taken() -> None:
    stage = Stage()
    source = Source(partition=0, offset=7)
    for scope in (LEAK, JAIL, NODE):
        suspicion = msgspec.structs.replace(leak(10, scope=scope, room_mib=90), source=source)
        stage.take(stage.envelope(SUSPICIONS, suspicion))
    assert stage.decider.counts["suspicions"] == 3


def test_a_log_that_was_begun_anew_is_recognised_by_its_watermark() -> None:
    stage = Stage(FREEZE)
    stage.know(*(f"gpu-{number:02}" for number in range(20)))
    stage.show(10, leak(10))
    stage.show(11, well(11))
    anew = msgspec.structs.replace(leak(100, left_s=2), source=Source(partition=0, offset=1))
    for offset, second in ((0, 99), (2, 101)):
        mark = Watermark(
            cell="c1",
            time=at(second - 1),
            head_time=at(second),
            source=Source(partition=0, offset=offset),
        )
        stage.take(stage.envelope(SUSPICIONS, mark))
        if offset == 0:
            stage.take(stage.envelope(SUSPICIONS, anew))
    assert len(kept(stage.said, IsolationCommand)) == 1


def test_places_can_be_forgotten_when_the_log_is_known_to_be_new() -> None:
    stage = Stage()
    stage.show(10, leak(10))
    stage.decider.forget_places()
    first = msgspec.structs.replace(leak(20), source=Source(partition=0, offset=0))
    stage.take(stage.envelope(SUSPICIONS, first))
    assert stage.decider.counts["suspicions"] == 2


def test_time_never_goes_back() -> None:
    stage = Stage()
    stage.pass_to(50)
    stage.pass_to(20)
    assert stage.decider.now == at(50)


def test_a_suspicion_of_the_year_3000_moves_no_clock() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(31_000_000_000.0, scope=JAIL, left_s=9))
    stage.show(12, leak(12, left_s=2))
    assert stage.decider.now == at(12)
    assert only(stage.said, IsolationCommand).scope == LEAK


def test_saved_state_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="another form"):
        Stage().decider.load(b"\x80nonsense", {})


def test_saved_state_of_another_format_is_refused() -> None:
    plain = msgspec.msgpack.encode({"format": 99})
    with pytest.raises(ValueError, match="format 99"):
        Stage().decider.load(plain, {})


def test_what_it_does_not_know_is_counted_and_passed_over() -> None:
    stage = Stage()
    broken = Reject(
        reason="no message",
        source=Source(partition=0, offset=0),
        first_bytes=b"",
        size=0,
        time=START,
    )
    outputs = stage.take(stage.envelope(SUSPICIONS, broken))
    assert (outputs, stage.decider.counts) == ([], {"rejected: no message": 1})


def test_cells_are_judged_each_by_its_own_watermark() -> None:
    far = Scope("process", "c2", "gpu-99", "trainer:1:2")
    stage = Stage(FREEZE)
    stage.suspect(leak(10, scope=far, left_s=2))
    stage.pass_to(10, cell="c1")
    early = kept(stage.said, IsolationCommand)
    stage.pass_to(10, cell="c2")
    assert (early, only(stage.said, IsolationCommand).scope) == ([], far)


# --- what it remembers has an end ----------------------------------------------------------------


def test_incidents_beyond_the_limit_are_counted_and_not_opened() -> None:
    stage = Stage(settings=DeciderSettings(incidents_max=2))
    for number in range(5):
        stage.show(10 + number, leak(10, scope=Scope("process", "c1", f"n{number}", "a:1:2")))
    assert len(kept(stage.said, Incident)) == 2
    assert stage.decider.counts["over the limit: incidents"] == 3


def test_suspicions_beyond_the_limit_are_counted() -> None:
    stage = Stage(settings=DeciderSettings(suspicions_max=2))
    for number in range(5):
        scope = Scope("process", "c1", "n", f"a:{number}:2")
        stage.show(10 + number, leak(10, scope=scope, score=0.5))
    assert stage.decider.counts["over the limit: suspicions"] == 3


def test_a_quiet_fleet_is_forgotten_down_to_its_nodes() -> None:
    stage = a_full_life()
    stage.pass_to(9000)
    stage.pass_to(9601)
    state = msgspec.msgpack.decode(stage.decider.save()[0])
    assert (state["cases"], state["suspicions"]) == ({}, {})
    assert set(state["nodes"]) == {"gpu-07", "gpu-08"}


# --- the health of nodes -------------------------------------------------------------------------


def health(stage: Stage, node: str = "gpu-07") -> list[tuple[str, str]]:
    told = [message for message in kept(stage.said, NodeHealth, HEALTH) if message.node == node]
    return [(message.state, message.sentence) for message in told]


def test_a_node_is_healthy_when_it_is_first_heard_of() -> None:
    stage = Stage()
    stage.know("gpu-07")
    stage.know("gpu-07")
    assert health(stage) == [("healthy", "nothing is known against it")]


def test_nodes_are_known_from_their_jobs_too() -> None:
    stage = Stage()
    facts = JobFacts(job="7", time=START, nodes=("gpu-07", "gpu-08"))
    stage.take(stage.envelope(INVENTORY, facts))
    assert len(kept(stage.said, NodeHealth)) == 2


def test_a_suspicion_below_an_incident_makes_a_node_suspect_until_it_is_well() -> None:
    stage = Stage()
    stage.show(10, leak(10, score=0.5))
    stage.show(20, well(20))
    assert [state for state, _ in health(stage)] == ["suspect", "healthy"]


def test_a_frozen_process_leaves_its_node_degraded_and_then_on_probation() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=2))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.show(20, well(20))
    stage.pass_to(612)
    stage.pass_to(1300)
    assert [state for state, _ in health(stage)] == ["degraded", "probation", "healthy"]


def test_a_node_that_is_drained_is_isolating_and_isolated() -> None:
    stage = Stage({"disk": {"default": ActRule(actions=("drain",))}}, executors=("slurm",))
    stage.show(10, trouble(10, "disk", scope=NODE, text="its disk gives errors"))
    stage.report(only(stage.said, IsolationCommand), second=11)
    assert [state for state, _ in health(stage)] == ["degraded", "isolating", "isolated"]


def test_what_is_drained_without_an_end_outlives_a_restart() -> None:
    stage = Stage({"disk": {"default": ActRule(actions=("drain",))}}, executors=("slurm",))
    stage.show(10, trouble(10, "disk", scope=NODE, text="its disk gives errors"))
    stage.report(only(stage.said, IsolationCommand), second=11)
    saved = stage.decider.save()
    stage.decider.load(*saved)
    assert stage.decider.save() == saved


def test_a_directive_until_the_year_9999_can_be_saved() -> None:
    stage = Stage()
    wish = Directive(
        id="d1",
        who="anna",
        kind="stop_everything",
        scope=Scope("fleet"),
        time=START,
        until=Instant.parse("9999-12-31T23:59:59Z"),
    )
    stage.take(stage.envelope(DIRECTIVES, wish))
    plain, arrays = stage.decider.save()
    stage.decider.load(plain, arrays)
    assert stage.decider.save()[0] == plain


def test_the_health_of_a_node_says_why() -> None:
    stage = Stage()
    stage.show(10, trouble(10, "disk", scope=NODE, text="its disk gives errors"))
    assert health(stage)[-1] == ("degraded", "gpu-07: its disk gives errors")


def test_health_is_told_on_change_alone() -> None:
    stage = Stage()
    for second in range(10, 60):
        stage.show(second, leak(second, left_s=500))
    assert len(health(stage)) == 1
