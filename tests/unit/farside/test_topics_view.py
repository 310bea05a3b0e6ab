"""What `top` and `explain` read from topics, over the bus inside one process."""

from collections.abc import Iterable

import pytest
from msgspec import structs

from bus.codec import encode
from bus.memory import MemoryBus, MemorySource
from bus.messages import (
    ExecutionReport,
    Incident,
    IncidentState,
    IsolationCommand,
    Message,
    NodeHealth,
    SampleBatch,
    Scope,
    Source,
    Watermark,
)
from bus.samples import Samples
from bus.topics import COMMANDS, HEALTH, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Envelope, Place, Start
from farside.explaining import explained
from farside.topics_view import TopicsView
from farside.view.snapshot import About, Snapshot
from runtime.clock import Instant, ManualClock
from runtime.errors import Unavailable
from tests.unit.view import composed

T = Instant.parse("2026-11-30T12:00:00Z")
NODE = Scope("node", "a", "n1")


class Stage:
    """A bus, a clock, and what was said when."""

    def __init__(self) -> None:
        self.clock = ManualClock(T)
        self.bus = MemoryBus(self.clock)

    def say(self, second: float, topic: str, key: str, message: Message) -> None:
        self.clock.advance(T.plus(second).since(self.clock.now()))
        self.bus.append(topic, key, encode(message))

    def view(self, second: float, back_s: float = 3600.0, records_max: int = 1000) -> TopicsView:
        self.clock.advance(T.plus(second).since(self.clock.now()))
        about = About(host="cluster main")
        return TopicsView(self.bus, self.clock, about, back_s=back_s, records_max=records_max)

    def top(self, second: float, back_s: float = 3600.0) -> Snapshot:
        view = self.view(second, back_s)
        view.begin()
        return view.snapshot()


def incident(name: str, second: float, state: IncidentState = "open") -> Incident:
    return Incident(
        id=name,
        scope=NODE,
        state=state,
        severity="warning",
        opened=T,
        updated=T.plus(second),
        sentence=f"{name} is {state}",
        fault="memory_leak",
    )


def order(name: str, of: str) -> IsolationCommand:
    return IsolationCommand(
        id=name, scope=NODE, action="freeze", executor="process", generation=1, reason="it leaks",
        incident=of, issued=T, expires=T.plus(10), dry_run=False,
    )  # fmt: skip


def report(of: str) -> ExecutionReport:
    return ExecutionReport(
        command=of, executor="process", outcome="done", detail="frozen", finished=T
    )


def batch(second: float, node: str = "n1") -> SampleBatch:
    samples = Samples.of([("memory_total_bytes", "", 2e12), ("memory_used_bytes", "", 1e12)])
    return SampleBatch(
        cluster="main", node=node, boot="b", start="s", sequence=int(second),
        time=T.plus(second), samples=samples,
    )  # fmt: skip


def mark(second: float, behind_s: float = 0.0) -> Watermark:
    now = T.plus(second)
    source = Source(partition=0, offset=int(second))
    return Watermark(cell="a", time=now.plus(-behind_s), head_time=now, source=source)


def retold(stage: Stage, records: Iterable[Envelope]) -> None:
    for one in sorted(records, key=lambda one: one.appended):
        stage.clock.advance(one.appended.since(stage.clock.now()))
        stage.bus.append(one.topic, one.key, encode(one.message))


def test_an_incident_that_is_still_open_is_shown_however_old_it_is() -> None:
    stage = Stage()
    stage.say(0, INCIDENTS, "i-1", incident("i-1", 0))
    shown = stage.top(5 * 86_400.0)
    assert [one.id for one in shown.incidents] == ["i-1"]


def test_an_incident_that_was_over_before_is_not_shown() -> None:
    stage = Stage()
    stage.say(0, INCIDENTS, "i-1", incident("i-1", 0))
    stage.say(1, COMMANDS, "i-1", order("c-1", "i-1"))
    stage.say(2, REPORTS, "c-1", report("c-1"))
    stage.say(3, INCIDENTS, "i-1", incident("i-1", 3, "closed"))
    shown = stage.top(7200.0)
    assert (shown.incidents, shown.events) == ((), ())


def test_all_is_told_of_one_that_is_open_its_command_and_report_too() -> None:
    stage = Stage()
    stage.say(0, INCIDENTS, "i-1", incident("i-1", 0))
    stage.say(1, COMMANDS, "i-1", order("c-1", "i-1"))
    stage.say(2, REPORTS, "c-1", report("c-1"))
    assert [one.kind for one in stage.top(7200.0).events] == ["incident", "command", "report"]


def test_the_health_of_a_node_is_known_however_long_ago_it_was_told() -> None:
    stage = Stage()
    told = NodeHealth(node="n1", cell="a", state="isolated", since=T, sentence="it leaks")
    stage.say(0, HEALTH, "n1", told)
    view = stage.view(40 * 86_400.0)
    view.begin()
    assert view.story.nodes() == ("n1",)


def test_how_far_detection_lags_is_in_what_is_shown_and_in_its_json() -> None:
    stage = Stage()
    stage.say(10, SUSPICIONS, "a", mark(10, behind_s=90.0))
    shown = stage.top(11)
    assert [(one.cell, one.lag_s) for one in shown.cells] == [("a", 90.0)]
    assert Snapshot.of_json(shown.to_json()).lag_s == 90.0


def test_a_scorer_that_went_away_within_the_look_back_shows_as_lag() -> None:
    stage = Stage()
    stage.say(10, SUSPICIONS, "a", mark(10))
    assert stage.top(70).lag_s == pytest.approx(55.0)


def test_of_much_telemetry_only_the_newest_is_read() -> None:
    stage = Stage()
    for second in range(50):
        stage.say(second, TELEMETRY, f"n{second}", batch(second, f"n{second}"))
    view = stage.view(50, records_max=3)
    view.begin()
    assert view.story.nodes() == ("n47", "n48", "n49")


def test_it_goes_on_with_what_comes_and_reads_nothing_twice() -> None:
    stage = Stage()
    stage.say(1, TELEMETRY, "n1", batch(1))
    view = stage.view(2)
    view.begin()
    before = view.snapshot().samples
    stage.say(3, TELEMETRY, "n1", batch(3))
    stage.say(3, INCIDENTS, "i-1", incident("i-1", 3))
    view.look()
    shown = view.snapshot()
    assert (before, shown.samples) == (2, 4)
    assert [one.id for one in shown.incidents] == ["i-1"]


class Broken(MemoryBus):
    """A bus whose readers can't be had for a while."""

    away = False

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> MemorySource:
        if self.away:
            raise Unavailable("no broker answers")
        return super().source(places, start)


def test_a_bus_that_goes_away_is_said_until_it_is_back() -> None:
    clock = ManualClock(T)
    bus = Broken(clock)
    view = TopicsView(bus, clock, About())
    view.begin()
    bus.away = True
    view.look()
    away = view.snapshot().problem
    bus.away = False
    view.look()
    assert (away, view.snapshot().problem) == ("no broker answers", "")


def test_an_incident_of_long_ago_is_explained_with_its_telemetry_and_its_suspicions() -> None:
    stage = Stage()
    stage.clock = ManualClock(composed.START)
    stage.bus = MemoryBus(stage.clock)
    retold(stage, composed.record())
    stage.clock.advance(5 * 86_400.0)
    view = TopicsView(stage.bus, stage.clock, About(), cells={composed.CELL: 0})
    view.begin_about(composed.INCIDENT)
    case = view.story.incident(composed.INCIDENT)
    assert [one.id for one in case.wishes] == [composed.COMMAND]
    assert case.curve is not None
    assert case.suspicions
    assert "what speaks for it" in explained(view.story, composed.INCIDENT)


def test_of_much_telemetry_what_lies_around_the_incident_is_read() -> None:
    stage = Stage()
    for second in range(0, 1000, 10):
        stage.say(second, TELEMETRY, "n1", batch(second))
        if second == 500:
            stage.say(
                second, INCIDENTS, "i-1", structs.replace(incident("i-1", 0), opened=T.plus(500))
            )
    view = TopicsView(stage.bus, stage.clock, About(), page_records_max=8)
    view.begin_about("i-1")
    assert view.story.snapshot().samples == 16
    assert view.notes == [
        "of 100 records of telemetry 8 were read, those around 2026-11-30T12:08:20Z"
    ]


def test_a_node_is_explained_by_its_own_telemetry_alone() -> None:
    stage = Stage()
    for second in range(10):
        stage.say(second, TELEMETRY, "n1", batch(second))
        stage.say(second, TELEMETRY, "n2", batch(second, "n2"))
    view = stage.view(10)
    view.begin_about("n1")
    assert view.story.nodes() == ("n1",)
