"""A cell that is judged too far behind is blind: told, not acted in, not called healthy."""

from pathlib import Path

import msgspec
import pytest

from bus.messages import (
    Incident,
    IsolationCommand,
    Message,
    NodeFacts,
    NodeHealth,
    Refusal,
    Scope,
    Source,
    Suspicion,
    Watermark,
)
from bus.topics import COMMANDS, HEALTH, INCIDENTS, INVENTORY, SUSPICIONS
from detector.deciding import DeciderSettings
from detector.outputs import Output
from runtime.clock import Instant
from tests.unit.detector.company import Company, play, script
from tests.unit.detector.stage import (
    FREEZE,
    START,
    Stage,
    at,
    kept,
    leak,
    only,
    trouble,
    well,
)

CELL = Scope("cell", "c1")
NODE = Scope("node", "c1", "gpu-07")


class Watched(Stage):
    """A stage whose marks may lag, and whose log may move without them."""

    def fall_behind(self, judged: float, head: float, cell: str = "c1") -> list[Output]:
        """Publish two watermarks that show that old things are being judged."""
        return [*self.mark(judged - 0.5, head, cell), *self.mark(judged, head, cell)]

    def mark(self, judged: float, head: float, cell: str = "c1") -> list[Output]:
        """Publish a watermark: judged up to one second, the head of the log at another."""
        self._offset += 1
        mark = Watermark(
            cell=cell,
            time=at(judged),
            head_time=at(head),
            source=Source(partition=0, offset=self._offset),
        )
        return self.take(self.envelope(SUSPICIONS, mark)._replace(appended=at(head)))

    def tell(self, second: float, node: str = "gpu-99") -> list[Output]:
        """Let the log move by something else."""
        facts = self.envelope(INVENTORY, facts_of(node))
        return self.take(facts._replace(appended=at(second)))


def facts_of(node: str) -> Message:
    return NodeFacts(node=node, time=START, cell="c2")


def blind_of(outputs: list[Output]) -> list[Incident]:
    return [one for one in kept(outputs, Incident) if one.scope == CELL]


def test_a_cell_far_behind_is_told_in_one_sentence_and_closed_when_it_has_caught_up() -> None:
    stage = Watched()
    assert blind_of(stage.mark(0, 60)) == []
    (begun,) = blind_of(stage.fall_behind(1, 74))
    assert (begun.state, begun.severity, begun.fault) == ("open", "warning", "telemetry")
    assert begun.sentence == (
        "detection of cell c1 is blind: judged up to 22:13:21Z, 73 s behind the head of its log; "
        "nothing old is acted on"
    )
    assert blind_of(stage.mark(20, 75)) == []
    (ended,) = blind_of(stage.mark(74, 76))
    assert (ended.id, ended.state) == (begun.id, "closed")
    assert ended.sentence.endswith("; it has caught up")


def test_after_a_pause_of_everything_the_first_word_alone_means_nothing() -> None:
    stage = Watched()
    stage.mark(1, 2)
    assert blind_of(stage.mark(2, 30_000)) == []  # the laptop slept
    assert blind_of(stage.mark(29_999, 30_001)) == []
    assert stage.decider.blind() == []


def test_a_cell_that_is_heard_and_not_judged_is_blind_after_a_while() -> None:
    stage = Watched()
    told = {second: blind_of(stage.mark(1, second)) for second in range(2, 90)}
    assert [second for second, incidents in told.items() if incidents] == [72]


def test_around_the_bar_it_does_not_flap() -> None:
    stage = Watched()
    lags = (61, 61, 59, 61, 50, 61, 46)
    told = [blind_of(stage.mark(second, second + lag)) for second, lag in enumerate(lags, 1)]
    assert [len(one) for one in told] == [0, 1, 0, 0, 0, 0, 0]


def test_the_bar_is_the_age_limit_unless_it_is_set() -> None:
    strict = Watched(settings=DeciderSettings(blind_after_s=20.0))
    assert len(blind_of(strict.fall_behind(1, 22))) == 1
    young = Watched(settings=DeciderSettings(age_limit_s=20.0))
    assert len(blind_of(young.fall_behind(1, 22))) == 1


def test_a_cell_without_any_telemetry_is_not_behind() -> None:
    stage = Watched()
    mark = Watermark(
        cell="c1", time=Instant(0), head_time=at(500), source=Source(partition=0, offset=1)
    )
    assert stage.take(stage.envelope(SUSPICIONS, mark)) == []
    assert (stage.decider.judged(), stage.decider.blind()) == ({}, [])


def test_a_cell_of_which_no_word_comes_while_the_log_goes_on_is_blind() -> None:
    stage = Watched()
    stage.mark(0, 1)
    told = {second: blind_of(stage.tell(second)) for second in range(10, 80, 5)}
    ((second, (begun,)),) = ((one, it) for one, it in told.items() if it)
    assert second == 65
    assert begun.sentence == (
        "detection of cell c1 is blind: judged up to 22:13:20Z, and no word of it for 64 s; "
        "nothing old is acted on"
    )


def test_a_decider_that_was_away_itself_accuses_nobody() -> None:
    stage = Watched()
    stage.mark(0, 1)
    assert blind_of(stage.tell(3600)) == []  # a gap of the log counts for little
    assert blind_of(stage.mark(3599, 3600)) == []


def test_cells_are_blind_each_for_itself() -> None:
    stage = Watched()
    stage.fall_behind(0, 100)
    stage.mark(99, 100, cell="c2")
    assert stage.decider.blind() == ["c1"]
    assert stage.decider.judged() == {"c1": at(0), "c2": at(99)}


def test_where_all_nodes_fell_silent_that_is_the_one_incident() -> None:
    stage = Watched()
    silent = trouble(10, "telemetry", scope=CELL, text="3 of 3 nodes fell silent together")
    (first,) = blind_of(stage.suspect(silent))
    stage.mark(1, 11)
    assert [one.id for one in blind_of(stage.fall_behind(2, 100))] == []
    assert stage.decider.blind() == ["c1"]
    assert {one.id for one in blind_of(stage.said)} == {first.id}


def test_silence_that_comes_while_a_cell_is_blind_goes_on_when_it_sees_again() -> None:
    stage = Watched()
    (begun,) = blind_of(stage.fall_behind(1, 80))
    stage.suspect(trouble(70, "telemetry", scope=CELL, text="3 of 3 nodes fell silent together"))
    stage.mark(80, 81)
    told = blind_of(stage.said)
    assert {one.id for one in told} == {begun.id}
    assert "closed" not in {one.state for one in told}


def test_out_of_blindness_no_node_is_called_healthy_until_it_sees_again() -> None:
    stage = Watched()
    stage.suspect(trouble(1, "gpu_off_bus", scope=NODE))
    stage.mark(1, 2)
    stage.fall_behind(2, 90)
    stage.suspect(well(3, NODE))
    fine = Scope("node", "c1", "gpu-08")
    stage.suspect(trouble(4, "gpu_off_bus", scope=fine, score=-9.0, state="healthy"))
    stage.mark(4, 1000)
    healths = kept(stage.said, NodeHealth, HEALTH)
    assert [(one.node, one.state) for one in healths] == [("gpu-07", "degraded")]
    stage.mark(1000, 1001)
    later = kept(stage.said, NodeHealth, HEALTH)[1:]
    assert ("gpu-08", "healthy") in [(one.node, one.state) for one in later]


def test_in_a_blind_cell_no_incident_closes_for_want_of_news() -> None:
    stage = Watched()
    stage.suspect(trouble(1, "gpu_off_bus", scope=NODE))
    stage.mark(1, 2)
    stage.suspect(well(3, NODE))
    stage.mark(3, 4)
    stage.fall_behind(4, 4000)
    states = [one.state for one in kept(stage.said, Incident) if one.scope == NODE]
    assert states == ["open"]
    stage.mark(4000, 4001)
    states = [one.state for one in kept(stage.said, Incident) if one.scope == NODE]
    assert states == ["open", "closed"]


def test_nothing_old_is_acted_on_while_a_backlog_is_judged() -> None:
    stage = Watched(FREEZE)
    stage.suspect(leak(10, left_s=2.0))
    outputs = stage.mark(10, 190)
    assert kept(outputs, IsolationCommand) == []
    stage.suspect(leak(189, left_s=2.0))
    assert only(stage.mark(189, 190), IsolationCommand).action == "freeze"


def test_blindness_is_the_same_after_a_restart() -> None:
    stage = Watched()
    stage.fall_behind(1, 80)
    saved = stage.decider.save()
    stage.decider = stage.fresh()
    stage.decider.load(*saved)
    assert stage.decider.blind() == ["c1"]
    assert [one.state for one in blind_of(stage.mark(80, 81))] == ["closed"]


def test_a_checkpoint_from_before_blindness_was_known_can_be_read() -> None:
    stage = Watched()
    stage.mark(1, 2)
    plain = msgspec.msgpack.decode(stage.decider.save()[0])
    for name in ("sights", "log_s", "log_time"):
        del plain[name]
    stage.decider.load(msgspec.msgpack.encode(plain), {})
    assert stage.decider.blind() == []


def test_a_log_begun_anew_is_heard_from_its_first_suspicion() -> None:
    stage = Stage()
    stage.suspect(trouble(1, "gpu_off_bus", scope=NODE))
    stage.pass_to(2)
    anew = trouble(60, "gpu_off_bus", scope=Scope("node", "c1", "gpu-08"))
    placed = msgspec.structs.replace(anew, source=Source(partition=0, offset=0))
    outputs = stage.take(stage.envelope(SUSPICIONS, placed))
    assert [one.scope.node for one in kept(outputs, Incident)] == ["gpu-08"]
    assert stage.take(stage.envelope(SUSPICIONS, placed)) == []  # and a repeat of it is one


# --- with a real scorer --------------------------------------------------------------------------


def outage(company: Company, begin: int, end: int) -> Company:
    """Play the script while scorer and decider are away from one second to another."""
    for second, coming in enumerate(script()):
        if begin <= second < end:
            for topic, message in coming:
                company.bus.sink().send(topic, "", message)
            company.clock.advance(1.0)
        else:
            company.second(coming)
    return company


@pytest.fixture
def away(tmp_path: Path) -> Company:
    """Composed: the age limit is 10 s; a leak and a lost GPU lie within the 50 s of the outage."""
    company = Company(tmp_path, poll_max=500)
    company.deciding = msgspec.structs.replace(company.deciding, age_limit_s=10.0)
    return outage(company, 20, 70)


def test_after_an_outage_the_cell_is_told_blind_and_seeing_again(away: Company) -> None:
    told = [
        one
        for one in away.said(INCIDENTS)
        if isinstance(one, Incident) and one.scope.kind == "cell"
    ]
    assert [one.state for one in told] == ["open", "closed"]
    assert "is blind: judged up to 12:00:21Z" in told[0].sentence
    assert away.metrics.value("farside_blind", cell="cell") == 0.0
    assert away.metrics.value("farside_judged_behind_seconds", cell="cell") < 5.0


def test_after_an_outage_nothing_old_is_acted_on(away: Company) -> None:
    suspicions = [
        one.message for one in away.everything(SUSPICIONS) if isinstance(one.message, Suspicion)
    ]
    for envelope in away.everything(COMMANDS):
        command = envelope.message
        if isinstance(command, IsolationCommand) and command.action != "release":
            newest = max(
                one.time
                for one in suspicions
                if one.scope == command.scope and one.time <= command.issued
            )
            assert command.issued.since(newest) <= 10.0
    refusals = [one for one in away.said(COMMANDS) if isinstance(one, Refusal)]
    assert [one.reason for one in refusals if one.action == "hold"] == [
        "what is known of n1 is 20 s old, limit 10 s"
    ]


def test_the_undisturbed_play_is_never_blind(tmp_path: Path) -> None:
    company = play(Company(tmp_path))
    scopes = {one.scope.kind for one in company.said(INCIDENTS) if isinstance(one, Incident)}
    assert "cell" not in scopes
