"""The worker around a core, over a bus that is away, slow, refuses records, or is another one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus.messages import Directive
from bus.topics import DIRECTIVES, REJECTS, REPORTS, SUSPICIONS, TELEMETRY
from detector.checkpoint import CheckpointFile
from detector.worker import Core, CoreWorker, Edges, Ticker, WorkerSettings
from tests.unit.detector.cells import scorer
from tests.unit.detector.company import decider
from tests.unit.detector.troubled import READS, Bench, Parrot, Troubled


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# --- reading -------------------------------------------------------------------------------------


def test_while_the_bus_cannot_be_read_it_says_so_once_shows_life_and_goes_on(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    bench.bus.away = True
    with capture_logs() as lines:
        for _ in range(20):
            worker.turn(bench.stop)
            assert bench.beat.check().ok
        bench.bus.away = False
        worker.turn(bench.stop)
    assert [line["event"] for line in lines] == ["the bus can't be read", "over"]
    assert bench.clock.monotonic() == 40.0  # as long as the bus asked for
    assert bench.metrics.value("farside_bus_unreadable_total", worker="parrot") == 20
    assert bench.said() == ["a1"]


def test_a_start_without_the_bus_waits_and_a_stop_meanwhile_saves_nothing(bench: Bench) -> None:
    bench.order("a")
    worker = bench.worker()
    worker.restore()
    worker.turn()
    worker.save()
    before = bench.saved()
    bench.bus.away = True
    bench.clock.then = {3: bench.stop.set}
    bench.clock.waits = 0
    bench.worker().run(bench.stop)
    assert bench.saved() == before


# --- publishing ----------------------------------------------------------------------------------


def test_what_is_on_its_way_is_waited_for_and_not_sent_twice(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    bench.bus.stuck = True
    bench.clock.then = {5: lambda: setattr(bench.bus, "stuck", False)}
    with capture_logs() as lines:
        worker.turn(bench.stop)
    assert bench.said() == ["a1"]
    assert len(bench.bus.sent) == 1
    assert [line["event"] for line in lines] == ["publishing waits", "over"]
    assert bench.metrics.value("farside_published_total", worker="parrot", type="Directive") == 1


def test_what_was_given_up_is_sent_again_before_anything_newer(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    bench.bus.gives_up = 3
    worker.turn(bench.stop)
    bench.order("b")
    worker.turn(bench.stop)
    assert bench.said() == ["a1", "b2"]
    assert len(bench.bus.sent) == 5


def test_a_bus_that_takes_nothing_is_tried_with_growing_pauses_and_signs_of_life(
    bench: Bench,
) -> None:
    bench.order("a")

    def leave(point: str) -> None:
        """Go away between reading and writing."""
        bench.bus.away = bench.bus.away or point == "after poll"

    def back() -> None:
        assert bench.beat.check().ok
        bench.bus.away = False

    bench.clock.then = {14: back}
    worker = bench.worker(crash=leave)
    worker.restore()
    worker.turn(bench.stop)
    assert bench.said() == ["a1"]
    assert bench.metrics.value("farside_publish_retries_total", worker="parrot") < 8


def test_asked_to_stop_before_the_acknowledgement_it_repeats_the_turn_at_the_next_start(
    bench: Bench,
) -> None:
    bench.order("a")
    bench.bus.stuck = True
    bench.clock.then = {3: bench.stop.set}
    bench.worker().run(bench.stop)
    assert (bench.said(), bench.saved()) == ([], None)
    bench.bus = Troubled(bench.memory)
    again = bench.worker()
    again.restore()
    assert bench.said() == ["a1"]  # from the journal: it was synced before it was sent
    bench.order("b")
    again.turn()
    assert bench.said() == ["a1", "b2"]


def test_nothing_is_saved_while_a_turn_is_not_acknowledged(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    bench.bus.stuck = True
    bench.clock.then = {2: bench.stop.set}
    worker.turn(bench.stop)
    worker.save()
    assert bench.saved() is None
    bench.bus.stuck = False
    worker.turn()
    worker.save()
    assert bench.saved() == {(DIRECTIVES, 0): 1, (REPORTS, 0): 0}


def test_what_the_bus_refuses_for_good_is_told_and_does_not_stop_the_others(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    for name in ("a", "b", "c"):
        bench.order(name)
    bench.bus.refuses = lambda message: isinstance(message, Directive) and message.id == "b"
    with capture_logs() as lines:
        worker.turn(bench.stop)
    assert bench.said() == ["a1", "c3"]
    assert [(line["event"], line["why"]) for line in lines] == [
        ("the bus refuses a message", "too large"),
    ]
    assert bench.metrics.value(
        "farside_publish_refused_total", worker="parrot", type="Directive"
    ) == 1  # fmt: skip


# --- ticks ---------------------------------------------------------------------------------------


def test_a_tick_that_is_not_acknowledged_holds_nothing_up_and_is_not_joined_by_others(
    bench: Bench,
) -> None:
    ticker = Ticker("cell", 0, bench.bus, bench.clock)
    bench.bus.stuck = True
    for _ in range(5):
        assert 0.0 < ticker.tick() <= 1.0
        bench.clock.advance(1.0)
    assert len(bench.bus.sent) == 1
    bench.bus.stuck = False
    bench.bus.flush(1.0)
    ticker.tick()
    assert len(bench.bus.sent) == 2


def test_a_tick_that_the_bus_cannot_take_is_told_once_and_judging_goes_on(bench: Bench) -> None:
    ticks = Troubled(bench.memory)
    ticks.away = True
    core = Parrot()
    worker = bench.worker(core)
    worker = CoreWorker(
        "parrot",
        core,
        Edges(
            source=bench.memory.source(READS),
            sink=bench.memory.sink(),
            clock=bench.clock,
            metrics=bench.metrics,
            heartbeat=bench.beat,
        ),
        WorkerSettings(),
        Ticker("cell", 0, ticks, bench.clock),
    )
    with capture_logs() as lines:
        for name in ("a", "b", "c"):
            bench.order(name)
            worker.turn()
            bench.clock.advance(1.0)
    assert [line["event"] for line in lines] == ["no tick"]
    assert bench.said() == ["a1", "b2", "c3"]


# --- another log ---------------------------------------------------------------------------------


def test_a_log_begun_anew_while_running_is_told_and_the_next_checkpoint_names_it(
    bench: Bench,
) -> None:
    core = Parrot()
    worker = bench.worker(core)
    worker.restore()
    worker.turn()
    bench.bus.identity = "another"
    with capture_logs() as lines:
        worker.turn()
        worker.turn()
    worker.save()
    found, _ = CheckpointFile(bench.folder, "parrot", "1").load()
    assert core.forgot == 1
    assert [line["event"] for line in lines] == ["the log was begun anew"]
    assert found is not None
    assert found.header.log == "another"


def test_under_another_log_state_is_kept_and_reading_starts_at_its_beginning(bench: Bench) -> None:
    bench.order("a")
    worker = bench.worker()
    worker.restore()
    worker.turn()
    worker.save()
    bench.bus.identity = "another"
    core = Parrot()
    again = bench.worker(core)
    again.restore()
    assert (core.heard, core.forgot) == (1, 1)
    again.turn()
    assert bench.said() == ["a1", "a2"]


# --- records that are no messages ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("core", "topic"), [(decider, SUSPICIONS), (scorer, TELEMETRY)], ids=["decider", "scorer"]
)
def test_what_cannot_be_decoded_is_kept_once_on_the_rejects(
    core: Callable[[], Core], topic: str, bench: Bench
) -> None:
    worker = bench.worker(core(), topics=[topic])
    worker.restore()
    bench.memory.append(topic, "", b"rubbish")
    bench.memory.append(topic, "", b"more of it")
    worker.turn()
    kept = bench.memory.source([REJECTS]).poll(10, 0.0)
    assert [(one.message.topic, one.message.source.offset) for one in kept] == [  # type: ignore[union-attr]
        (topic, 0),
        (topic, 1),
    ]


def test_rejects_are_bounded_per_second_and_the_rest_is_counted(bench: Bench) -> None:
    worker = bench.worker(decider(), topics=[SUSPICIONS], rejects_per_s=3)
    worker.restore()
    for _ in range(10):
        bench.memory.append(SUSPICIONS, "", b"rubbish")
    worker.turn()
    bench.clock.advance(1.0)
    bench.memory.append(SUSPICIONS, "", b"rubbish")
    worker.turn()
    assert len(bench.memory.source([REJECTS]).poll(100, 0.0)) == 4
    assert bench.metrics.value("farside_rejects_dropped_total", worker="parrot") == 7
