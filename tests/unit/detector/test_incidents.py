"""When incidents open and close, what they live through, and which suspicions are one trouble."""

import msgspec
import pytest

from bus.messages import Incident, IsolationCommand, Scope
from bus.topics import INCIDENTS
from detector.deciding import DeciderSettings
from tests.unit.detector.stage import (
    BOTH,
    FREEZE,
    JAIL,
    LEAK,
    ONE_WIDTH,
    Stage,
    at,
    kept,
    leak,
    only,
    trouble,
    well,
)

NODE = Scope("node", "c1", "gpu-07")


def states(stage: Stage, scope: Scope = LEAK) -> list[str]:
    incidents = kept(stage.said, Incident, INCIDENTS)
    told = [incident.state for incident in incidents if incident.scope == scope]
    return [state for place, state in enumerate(told) if place == 0 or told[place - 1] != state]


def test_a_lone_leak_at_one_width_stays_a_suspicion_while_its_limit_is_far() -> None:
    stage = Stage()
    outputs = stage.show(10, leak(10, left_s=30, score=ONE_WIDTH))
    assert kept(outputs, Incident) == []


def test_a_lone_leak_becomes_an_incident_when_its_limit_is_three_polls_away() -> None:
    stage = Stage()
    stage.show(10, leak(10, left_s=8, score=ONE_WIDTH))
    outputs = [stage.pass_to(second) for second in (12, 14, 15)]
    assert [len(kept(said, Incident)) for said in outputs] == [0, 0, 1]


def test_an_incident_opens_at_the_bar_with_the_likeliest_fault() -> None:
    stage = Stage()
    likely = leak(10, score=3.0, p_bad={"memory_leak": 0.8, "software": 0.1})
    incident = only(stage.show(10, likely), Incident)
    assert (incident.fault, incident.state, incident.severity) == (
        "memory_leak",
        "open",
        "warning",
    )


def test_a_degraded_scope_opens_an_incident_whatever_its_score() -> None:
    stage = Stage()
    outputs = stage.show(10, trouble(10, "disk", scope=NODE, score=0.5))
    assert only(outputs, Incident).severity == "critical"


def test_a_suspicion_without_a_fault_opens_nothing() -> None:
    stage = Stage()
    assert kept(stage.show(10, leak(10, p_bad={})), Incident) == []


def test_an_identifier_follows_from_scope_fault_and_opening_alone() -> None:
    first, second = Stage(), Stage()
    second.show(3, leak(3, score=0.2, scope=JAIL))
    incidents = [only(stage.show(10, leak(10)), Incident) for stage in (first, second)]
    assert incidents[0].id == incidents[1].id


def test_an_incident_closes_only_after_a_long_calm() -> None:
    stage = Stage()
    stage.show(10, leak(10))
    stage.show(20, well(20))
    stage.pass_to(619)
    before = states(stage)
    stage.pass_to(620.5)
    assert (before, states(stage)) == (["open"], ["open", "closed"])


def test_a_score_between_the_bars_keeps_an_incident_open() -> None:
    stage = Stage()
    stage.show(10, leak(10, left_s=9000))
    stage.show(20, leak(20, left_s=9000, score=1.5))
    stage.pass_to(2000)
    assert states(stage) == ["open"]


def test_repeated_word_of_calm_does_not_put_the_closing_off() -> None:
    stage = Stage()
    stage.show(10, leak(10, left_s=9000))
    for second in range(20, 640, 20):
        stage.show(second, leak(second, left_s=9000, score=0.4, widths=()))
    assert states(stage) == ["open", "closed"]


def test_calm_begins_anew_when_the_trouble_comes_back() -> None:
    stage = Stage()
    stage.show(10, leak(10, left_s=9000))
    stage.show(20, well(20))
    stage.show(500, leak(500, left_s=9000))
    stage.show(510, well(510))
    stage.pass_to(1000)
    before = states(stage)
    stage.pass_to(1111)
    assert (before, states(stage)) == (["open"], ["open", "closed"])


def test_what_was_not_heard_of_for_an_hour_counts_as_calm() -> None:
    stage = Stage()
    stage.show(10, leak(10, left_s=90_000))
    stage.pass_to(3700)
    stage.pass_to(4301)
    assert states(stage) == ["open", "closed"]


def test_an_incident_lives_through_acting_containment_probation_and_closing() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, left_s=3))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.show(20, well(20))
    stage.pass_to(612)
    stage.pass_to(1212)
    assert states(stage) == ["open", "acting", "contained", "probation", "closed"]


def test_a_closed_incident_that_comes_back_is_another_one() -> None:
    stage = Stage()
    stage.show(10, leak(10))
    stage.show(20, well(20))
    stage.pass_to(700)
    stage.show(800, leak(800))
    assert len({incident.id for incident in kept(stage.said, Incident)}) == 2


def test_a_growing_forecast_is_told_again_at_most_every_ten_seconds() -> None:
    stage = Stage()
    for second in range(10, 41):
        stage.show(second, leak(second, left_s=500 - second))
    assert len(kept(stage.said, Incident)) == 4


def test_severity_rises_and_never_falls_back() -> None:
    stage = Stage()
    stage.show(10, leak(10, left_s=300))
    stage.show(20, leak(20, left_s=300, state="degraded"))
    stage.show(30, leak(30, left_s=300))
    assert [incident.severity for incident in kept(stage.said, Incident)][-1] == "critical"


def test_what_ended_is_opened_again_only_by_trouble_that_began_afterwards() -> None:
    act = {"memory_leak": {"default": BOTH["memory_leak"]["default"]}}
    stage = Stage(act)
    case = leak(10, left_s=1, near=True)
    stage.show(10, case)
    stage.report(only(stage.said, IsolationCommand), "failed", second=11)
    stage.show(12, leak(12, left_s=0.5, near=True))
    ended = kept(stage.said, IsolationCommand)[-1]
    stage.report(ended, second=13)
    stage.show(20, leak(20, left_s=5, since=at(2)))
    echo = states(stage)[-1]
    stage.show(90, leak(90, left_s=50, since=at(60)))
    assert (ended.action, echo, states(stage)[-1]) == ("reclaim", "contained", "open")


# --- one trouble seen from several places --------------------------------------------------------


def test_the_node_around_a_leaking_container_is_evidence_and_no_second_incident() -> None:
    stage = Stage()
    stage.show(10, leak(10, scope=JAIL))
    stage.show(21, leak(21, scope=JAIL, left_s=20), leak(21, scope=NODE, left_s=900))
    incidents = kept(stage.said, Incident)
    texts = [part.text for part in incidents[-1].evidence if part.signal == "also_seen"]
    assert {incident.scope for incident in incidents} == {JAIL}
    assert texts == ["also seen: gpu-07, growing 10 MiB/s"]


def test_a_node_that_runs_out_of_memory_is_an_incident_of_its_own() -> None:
    stage = Stage()
    stage.show(10, leak(10, scope=JAIL))
    stage.show(11, trouble(11, "memory_exhaustion", scope=NODE))
    assert {incident.scope for incident in kept(stage.said, Incident)} == {JAIL, NODE}


def test_a_process_is_an_echo_of_a_container_with_less_room() -> None:
    stage = Stage()
    stage.show(10, leak(10, scope=JAIL, room_mib=50))
    stage.show(11, leak(11, scope=LEAK, room_mib=150))
    assert {incident.scope for incident in kept(stage.said, Incident)} == {JAIL}


def test_a_process_with_as_little_room_as_its_container_is_acted_upon_first() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, scope=JAIL, left_s=3, room_mib=50))
    early = kept(stage.said, IsolationCommand)
    stage = Stage(FREEZE)
    together = (
        leak(10, scope=JAIL, left_s=3, room_mib=50),
        leak(10, scope=LEAK, left_s=3, room_mib=50),
    )
    stage.show(10, *together)
    assert [command.scope for command in early] == [JAIL]
    assert [command.scope for command in kept(stage.said, IsolationCommand)] == [LEAK]


def test_of_nested_containers_the_inner_one_is_the_incident() -> None:
    inner = Scope("container", "c1", "gpu-07", "/jobs/7/step@312")
    stage = Stage(FREEZE)
    stage.show(10, leak(10, scope=inner, left_s=40))
    stage.show(12, leak(12, scope=JAIL, left_s=2))
    assert only(stage.said, IsolationCommand).scope == inner


def test_a_container_of_a_like_name_is_not_inside() -> None:
    other = Scope("container", "c1", "gpu-07", "/jobs/77@313")
    stage = Stage()
    stage.show(10, leak(10, scope=JAIL))
    stage.show(11, leak(11, scope=other))
    assert {incident.scope for incident in kept(stage.said, Incident)} == {JAIL, other}


def test_an_echo_dies_away_some_time_after_the_container_was_frozen() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, scope=JAIL, left_s=3, room_mib=20))
    stage.report(only(stage.said, IsolationCommand), second=11)
    stage.show(100, leak(100, scope=LEAK, room_mib=150))
    echo = {incident.scope for incident in kept(stage.said, Incident)}
    stage.pass_to(200)
    stage.show(201, leak(201, scope=LEAK, room_mib=150))
    assert echo == {JAIL}
    assert {incident.scope for incident in kept(stage.said, Incident)} == {JAIL, LEAK}


def test_a_process_stands_on_its_own_where_its_container_could_not_be_acted_upon() -> None:
    stage = Stage(FREEZE)
    stage.show(10, leak(10, scope=JAIL, left_s=3, room_mib=20))
    stage.report(only(stage.said, IsolationCommand), "refused", second=11, detail="not ours")
    stage.show(12, leak(12, scope=LEAK, left_s=3, room_mib=30))
    assert [command.scope for command in kept(stage.said, IsolationCommand)] == [JAIL, LEAK]


def test_containers_of_other_nodes_are_no_echo() -> None:
    far = msgspec.structs.replace(LEAK, node="gpu-08")
    stage = Stage()
    stage.show(10, leak(10, scope=JAIL))
    stage.show(11, leak(11, scope=far, room_mib=150))
    assert len({incident.id for incident in kept(stage.said, Incident)}) == 2


def test_a_silent_cell_is_an_incident_without_an_act() -> None:
    cell = Scope("cell", "c1")
    stage = Stage()
    stage.show(10, trouble(10, "telemetry", scope=cell, text="5 of 9 nodes fell silent together"))
    incident = only(stage.said, Incident)
    assert (incident.severity, incident.sentence) == (
        "info",
        "cell c1: 5 of 9 nodes fell silent together",
    )
    assert len(stage.said) == 1


@pytest.mark.parametrize("calm_s", [5.0, 50.0])
def test_the_calm_that_closes_is_a_setting(calm_s: float) -> None:
    stage = Stage(settings=DeciderSettings(quiet_s=calm_s))
    stage.show(10, leak(10))
    stage.show(20, well(20))
    stage.pass_to(20 + calm_s - 1)
    before = states(stage)
    stage.pass_to(20 + calm_s + 1)
    assert (before, states(stage)) == (["open"], ["open", "closed"])
