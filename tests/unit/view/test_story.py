import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bus.messages import (
    ExecutionReport,
    Incident,
    IsolationCommand,
    Message,
    Reject,
    SampleBatch,
    Scope,
    Source,
    Suspicion,
)
from bus.samples import Samples
from bus.topics import (
    COMMANDS,
    DELIVERIES,
    HEALTH,
    INCIDENTS,
    REPORTS,
    SUSPICIONS,
    TELEMETRY,
)
from bus.transport import Envelope
from farside.view.cases import Truth, lead_words, moments
from farside.view.snapshot import About, Row, Snapshot
from farside.view.story import Story
from farside.view.things import short_names
from runtime.clock import Instant
from runtime.errors import Rejected
from tests.unit.view import composed

TRUTH = Truth(composed.at(composed.ONSET_S), composed.at(composed.LIMIT_S))


def told(until_s: float = 1e9) -> Story:
    story = Story(about=About(host="gpu-0421", acting=True))
    story.see_all(
        one for one in composed.record() if one.appended <= composed.at(min(until_s, 1e6))
    )
    return story


def row(story: Story, name: str) -> Row:
    return next(one for one in story.scopes() if one.name == name)


def envelope(message: Message, second: float) -> Envelope:
    return Envelope(TELEMETRY, 0, 0, composed.at(second), "", message)


def source(offset: int) -> Source:
    return Source(partition=0, offset=offset)


def batch(second: float, readings: Iterable[tuple[str, str, float]], node: str = "n") -> Envelope:
    message = SampleBatch(
        cluster="c",
        node=node,
        boot="b",
        start="s",
        sequence=int(second),
        time=composed.at(second),
        samples=Samples.of(readings),
    )
    return envelope(message, second)


def test_a_row_tells_size_limit_growth_and_forecast_of_the_suspected_one() -> None:
    leak = row(told(60.5), "ingest")
    assert leak.used == pytest.approx(composed.leak_bytes(60), abs=1e6)
    assert leak.limit == composed.LEAK_LIMIT
    assert leak.growth_5s == pytest.approx(composed.RATE, rel=0.05)
    assert leak.growth_30s == pytest.approx(composed.RATE, rel=0.05)
    assert (leak.state, leak.health) == ("suspect", "suspect")
    assert leak.exhaustion is not None
    assert leak.exhaustion.low < composed.at(composed.LIMIT_S) < leak.exhaustion.high


def test_the_node_comes_first_then_who_is_in_trouble_then_who_came_nearest_to_its_limit() -> None:
    names = [one.name for one in told(70.5).scopes()]
    assert names == [
        "gpu-0421", "ingest", "embedder", "compactor", "idle", "logwriter", "sshd (812)",
    ]  # fmt: skip


def test_what_was_frozen_is_called_frozen_until_its_time_and_has_no_forecast_any_more() -> None:
    story = told()
    leak = row(story, "ingest")
    assert (leak.health, leak.held, leak.exhaustion) == ("frozen", "frozen", None)
    assert leak.held_until == composed.at(671)
    assert leak.incident_state == "contained"


def test_what_was_released_is_no_longer_called_frozen() -> None:
    story = told()
    release = IsolationCommand(
        id="cmd-2",
        scope=composed.LEAK,
        action="release",
        executor="process",
        generation=2,
        reason="a person said so",
        incident=composed.INCIDENT,
        issued=composed.at(100),
        expires=composed.at(110),
        dry_run=False,
    )
    done = ExecutionReport(
        command="cmd-2", executor="process", outcome="done", detail="", finished=composed.at(101)
    )
    thawed = batch(
        102, [("container_frozen", composed.LEAK.name, 0.0), *composed.readings(102)], composed.NODE
    )
    for message in (release, done):
        story.see(envelope(message, 101))
    story.see(thawed._replace(message=thawed.message))
    story.see(batch(103, [("container_frozen", composed.LEAK.name, 0.0)], composed.NODE))
    assert row(story, "ingest").held == ""
    assert row(story, "ingest").note == "released"


def test_a_suspicion_that_a_crash_had_published_again_is_not_told_twice() -> None:
    once, twice = told(), Story()
    for one in composed.record():
        twice.see(one)
        if isinstance(one.message, Suspicion | Incident | ExecutionReport):
            twice.see(one)
    assert twice.events() == once.events()
    assert twice.incident(composed.INCIDENT) == once.incident(composed.INCIDENT)


def test_an_incidents_file_holds_its_way_in_order() -> None:
    case = told().incident(composed.INCIDENT)
    stations = [one.station for one in moments(case, TRUTH)]
    assert stations == [
        "onset", "suspicion", "forecast", "suspicion", "incident", "refusal", "command", "incident",
        "report", "incident", "told", "limit",
    ]  # fmt: skip
    assert case.decisive is not None
    assert case.decisive.time == composed.at(71)
    assert lead_words(case, TRUTH) == ("6 s", "before it would have met its limit")
    assert lead_words(case, None) == ("6 s", "before the forecast limit")


@given(st.permutations([REPORTS, DELIVERIES, COMMANDS, INCIDENTS, SUSPICIONS]))
def test_in_whatever_order_the_topics_are_read_the_same_is_told(order: list[str]) -> None:
    told_in_order, shuffled = told(), Story()
    records = composed.record()
    for topic in (TELEMETRY, HEALTH, *order):
        shuffled.see_all(one for one in records if one.topic == topic)
    before, after = (one.incident(composed.INCIDENT) for one in (told_in_order, shuffled))
    assert after.said == before.said
    assert moments(after, TRUTH) == moments(before, TRUTH)


def test_an_answer_to_an_order_that_was_never_seen_is_told_all_the_same() -> None:
    story = Story()
    done = ExecutionReport(
        command="cmd-9",
        executor="process",
        outcome="done",
        detail="it is so",
        finished=composed.at(1),
    )
    story.see(envelope(done, 1))
    assert story.events() == ()
    story.see(batch(9, [("memory_unreclaimable_bytes", "", 1.0)]))
    assert [one.text for one in story.events()] == ["command \u2013 it is so"]


def test_what_has_the_same_parent_stands_first_and_of_two_in_each_other_one_is_shown() -> None:
    sizes = {"/run/leak@1": 1e8, "/run/calm@2": 2e8, "/run/saw@3": 3e8, "/big@4": 9e9,
             "/big/inner@5": 8e9, "/small@6": 1e6}  # fmt: skip
    story = Story()
    story.see(batch(1, [("container_memory_unreclaimable_bytes", *one) for one in sizes.items()]))
    _, around = story.around(Scope("container", "", "n", "/run/leak@1"))
    assert [one.name for one in around] == ["saw", "calm", "big", "small"]


def test_neighbours_are_of_the_same_kind_and_ranked_by_size() -> None:
    case = told().incident(composed.INCIDENT)
    assert [one.name for one in case.neighbours] == ["embedder", "compactor", "idle", "logwriter"]
    assert case.node is not None
    assert case.node.name == "gpu-0421"
    own, around = told().around(composed.LEAK)
    assert own is not None
    assert own.name == "ingest"
    assert [one.name for one in around][1:] == [one.name for one in case.neighbours]


def test_neighbours_under_a_limit_of_the_same_kind_stand_before_larger_things() -> None:
    readings = [("process_private_bytes", f"big:{i}:1", 9e9) for i in range(9)]
    for name in ("leak:10:1", "saw:11:1", "warm:12:1", "calm:13:1"):
        readings.append(("process_data_bytes", name, 1e8))
        readings.append(("process_data_limit_bytes", name, 2e8))
    story = Story()
    story.see(batch(1, readings))
    _, around = story.around(Scope("process", "", "n", "leak:10:1"))
    assert {one.name for one in around} == {"saw (11)", "warm (12)", "calm (13)"}


def test_a_dry_run_is_never_called_done() -> None:
    story = Story()
    for one in composed.record():
        message = one.message
        if isinstance(message, IsolationCommand):
            message = structs.replace(message, dry_run=True)
        if isinstance(message, SampleBatch):
            message = structs.replace(message, samples=Samples.of(
                sample for sample in message.samples if sample.metric != "container_frozen"
            ))  # fmt: skip
        story.see(one._replace(message=message))
    case = story.incident(composed.INCIDENT)
    assert case.done is None
    assert lead_words(case, TRUTH) == ("none", "as a dry run: nothing was done")
    assert row(story, "ingest").held == ""
    told = [one.text for one in story.events() if one.kind == "report"]
    assert told[0].startswith("ingest: freeze, as a dry run")


def test_a_second_incident_of_the_same_thing_has_suspicions_of_its_own() -> None:
    story = told()
    last = composed.suspicion(71.0)
    calm = structs.replace(last, time=composed.at(200), state="healthy", source=source(200))
    again = structs.replace(last, time=composed.at(300), source=source(300))
    closed = structs.replace(
        story.incident(composed.INCIDENT).incident, state="closed", updated=composed.at(201)
    )
    second = structs.replace(
        closed, id="inc-2", state="open", opened=composed.at(301), updated=composed.at(301)
    )
    for at_s, message in ((200, calm), (201, closed), (300, again), (301, second)):
        story.see(envelope(message, at_s))
    assert [one.time for one in story.incident("inc-2").suspicions] == [composed.at(300)]
    first = story.incident(composed.INCIDENT).suspicions
    assert (first[0].time, first[-1].time) == (composed.at(48), composed.at(200))


def test_what_lies_around_a_container_is_not_beside_it() -> None:
    readings = [
        ("container_memory_unreclaimable_bytes", name, 1e8)
        for name in ("/jobs@1", "/jobs/a@2", "/jobs/a/inner@3", "/jobs/ab@4")
    ]
    story = Story()
    story.see(batch(1, readings))
    _, around = story.around(Scope("container", "", "n", "/jobs/a@2"))
    assert [one.name for one in around] == ["ab"]


def test_an_incidents_readings_outlive_the_storys_own_window() -> None:
    story = Story(window_s=60)
    story.see_all(composed.record())
    for second in range(96, 400):
        story.see(batch(second, composed.readings(float(second)), composed.NODE))
    case = story.incident(composed.INCIDENT)
    assert case.curve is not None
    assert case.curve.held[0][0] <= composed.at(20)


def test_a_snapshot_comes_back_from_json_as_it_was() -> None:
    snapshot = told(70.5).snapshot()
    assert Snapshot.of_json(snapshot.to_json()) == snapshot
    for text in (b"", b"[]", b'{"time": "yesterday"}'):
        with pytest.raises(Rejected, match="no snapshot"):
            Snapshot.of_json(text)


def test_a_reading_from_the_far_future_is_not_believed() -> None:
    story = Story()
    late = batch(1e8, [("memory_unreclaimable_bytes", "", 1.0)])
    story.see(late._replace(appended=composed.at(1)))
    assert story.snapshot().rows == ()
    assert story.snapshot().time == composed.at(1)


def test_what_is_gone_leaves_the_table() -> None:
    story = Story()
    for second in range(30):
        there = ["/a@1", "/b@2"] if second < 10 else ["/a@1"]
        story.see(
            batch(second, [("container_memory_unreclaimable_bytes", one, 1e8) for one in there])
        )
    assert [one.name for one in story.scopes()] == ["a"]


def test_memory_stays_bounded_whatever_comes() -> None:
    story = Story(window_s=30, points_max=20, things_max=50, cases_max=3)
    for second in range(60):
        readings = [
            ("container_memory_unreclaimable_bytes", f"/{second}/{i}@{i}", 1e6 * i)
            for i in range(20)
        ]
        story.see(batch(second, readings))
        opened = Incident(
            id=f"inc-{second}",
            scope=Scope("container", "", "n", f"/{second}/1@1"),
            state="closed",
            severity="info",
            opened=composed.at(second),
        )
        story.see(envelope(opened, second))
    story.see(batch(65, [("memory_unreclaimable_bytes", "", 1.0)]))
    assert len(story.incidents()) <= 4
    assert len(story.scopes()) <= 60
    assert story.nodes() == ("n",)


def test_of_too_many_things_the_largest_are_kept() -> None:
    story = Story(things_max=40)
    for second in range(12):
        readings = [
            ("container_memory_unreclaimable_bytes", f"/{i}@{i}", 1e6 * i) for i in range(60)
        ]
        story.see(batch(second, readings))
    assert {"30", "38", "39"} <= {one.name for one in story.scopes()}
    assert len(story.scopes()) <= 40


def test_rejected_records_are_counted() -> None:
    story = Story()
    reject = Reject(
        reason="no message",
        source=Source(partition=0, offset=1),
        first_bytes=b"x",
        size=1,
        time=composed.at(1),
    )
    story.see(envelope(reject, 1))
    assert story.snapshot().rejected == 1


def test_one_thread_may_feed_while_others_ask() -> None:
    story, fed = Story(), threading.Event()
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            while not fed.is_set():
                story.snapshot()
                for one in story.incidents():
                    story.incident(one.id)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test tells
            failed.append(error)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    story.see_all(composed.record())
    fed.set()
    for asker in askers:
        asker.join(30)
    assert failed == []


def test_an_unknown_incident_or_node_is_told_with_those_that_are_known() -> None:
    with pytest.raises(Rejected, match=r"no incident 'x' is known \(known: inc-5f0c2a91d3\)"):
        told().incident("x")
    with pytest.raises(Rejected, match=r"nothing is known of a node 'x' \(known: gpu-0421\)"):
        told().node("x")
    assert told().node("gpu-0421").cases[0].incident.id == composed.INCIDENT


def test_the_time_of_an_empty_story_is_the_one_that_is_given() -> None:
    assert Story().snapshot(Instant(5)).time == 5
    assert Story().snapshot().rows == ()


def test_short_names_tell_containers_apart() -> None:
    names = ["/a/job@1", "/b/job@2", "/solo@3", "/@4"]
    scopes = [Scope("container", "", "n", name) for name in names]
    assert list(short_names(scopes).values()) == ["a/job", "b/job", "solo", "/"]
    process = Scope("process", "", "n", "evil:\x1b[2J:12:99")
    assert short_names([process])[process] == "evil:\\x1b[2J (12)"
