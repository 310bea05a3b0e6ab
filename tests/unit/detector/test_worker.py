"""The worker around a core, over a bus that is away, slow, refuses records, or is another one."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from numpy.typing import NDArray
from structlog.testing import capture_logs

from bus.memory import MemoryBus
from bus.messages import Directive, Message, Scope
from bus.topics import AUDIT, DIRECTIVES, REJECTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Bus, Envelope, Place, Receipt, Source, Start
from detector.checkpoint import CheckpointFile
from detector.journal import Journal
from detector.outputs import Output
from detector.worker import Core, CoreWorker, Edges, Ticker, WorkerSettings
from runtime.clock import ManualClock
from runtime.errors import Rejected, Unavailable
from runtime.health import Health
from runtime.metrics import Metrics
from tests.unit.detector.cells import scorer
from tests.unit.detector.company import Killed, Killer, decider

READS = (DIRECTIVES, REPORTS)


class Parrot:
    """A core that says again what it hears, with its number; its state is that number."""

    def __init__(self) -> None:
        self.heard = 0
        self.forgot = 0
        self.counts: dict[str, int] = {}

    def step(self, envelopes: Sequence[Envelope]) -> list[Output]:
        outputs = []
        for envelope in envelopes:
            if isinstance(envelope.message, Directive):
                self.heard += 1
                if envelope.message.kind != "label":
                    said = msgspec.structs.replace(envelope.message, value=str(self.heard))
                    outputs.append(Output(AUDIT, "", said))
        return outputs

    def save(self) -> tuple[bytes, dict[str, NDArray[Any]]]:
        return str(self.heard).encode(), {}

    def load(self, plain: bytes, arrays: dict[str, NDArray[Any]]) -> None:
        del arrays
        self.heard = int(plain)

    def forget_places(self) -> None:
        self.forgot += 1


class Waiting:
    """The receipt of a record on its way; the bus's trouble says what becomes of it."""

    def __init__(self, bus: "Troubled", send: Callable[[], object]) -> None:
        self._bus = bus
        self._send: Callable[[], object] | None = send
        self.error: Exception | None = None

    def settle(self) -> None:
        if self._send is not None and self.error is None:
            self._send()
            self._send = None

    def taken(self) -> bool:
        if self.error is not None:
            raise self.error
        return self._send is None


class Troubled:
    """A bus whose troubles a test chooses; with each wait of the clock one of them may end."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.away = False  # neither read nor written
        self.stuck = False  # takes records, acknowledges none
        self.gives_up = 0  # so many records are given up after they were sent
        self.refuses: Callable[[Message], bool] = lambda _: False
        self.identity = ""
        self.sent: list[Message] = []
        self._waiting: list[Waiting] = []

    def sink(self) -> "Troubled":
        return self

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Receipt:
        if self.away:
            raise Unavailable("the bus is away")
        self.sent.append(message)
        inner = self._bus.sink()
        receipt = Waiting(self, lambda: inner.send(topic, key, message, partition))
        if self.refuses(message):
            receipt.error = Rejected("too large")
        elif self.gives_up:
            self.gives_up -= 1
            receipt.error = Unavailable("given up")
        self._waiting.append(receipt)
        return receipt

    def flush(self, timeout_s: float) -> None:
        if self.stuck or self.away:
            raise Unavailable(f"not acknowledged within {timeout_s:g} s")
        waiting, self._waiting = self._waiting, []
        for receipt in waiting:
            receipt.settle()
        errors = [receipt.error for receipt in waiting if receipt.error is not None]
        if errors:
            raise errors[0]

    def close(self, timeout_s: float) -> None:
        del timeout_s

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> Source:
        return TroubledSource(self, self._bus.source(places, start))


class TroubledSource:
    """A reader of a troubled bus."""

    def __init__(self, bus: Troubled, inner: Source) -> None:
        self._bus = bus
        self._inner = inner
        self.positions = inner.positions
        self.seek = inner.seek
        self.lag = inner.lag
        self.skipped = inner.skipped
        self.close = inner.close

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
        if self._bus.away:
            raise Unavailable("the bus is away", retry_after_s=2.0)
        return self._inner.poll(limit, timeout_s)

    def reread(self, place: Place, first: int, end: int) -> list[Envelope]:
        if self._bus.away:
            raise Unavailable("the bus is away", retry_after_s=2.0)
        return self._inner.reread(place, first, end)

    def log(self) -> str:
        if self._bus.away:
            raise Unavailable("not connected", retry_after_s=2.0)
        return self._bus.identity or self._inner.log()


class Patience(ManualClock):
    """A clock that, once so many waits have passed, does what is to be done then."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.then: dict[int, Callable[[], None]] = {}

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.waits += 1
        self.then.get(self.waits, lambda: None)()
        return super().wait(event, timeout_s)


class Bench:
    """A parrot's worker on a troubled bus."""

    def __init__(self, folder: Path, records_max: int = 1000) -> None:
        self.folder = folder
        self.clock = Patience()
        self.memory = MemoryBus(self.clock, records_max)
        self.bus = Troubled(self.memory)
        self.metrics = Metrics()
        self.health = Health(self.clock)
        self.beat = self.health.heartbeat("parrot", 30.0)
        self.stop = threading.Event()
        self.journal_folder = folder

    def worker(
        self,
        core: Core | None = None,
        crash: Callable[[str], None] = lambda _: None,
        topics: Sequence[str] = READS,
        **settings: float,
    ) -> CoreWorker:
        made: Bus = self.bus
        edges = Edges(
            source=made.source(topics),
            sink=made.sink(),
            clock=self.clock,
            metrics=self.metrics,
            heartbeat=self.beat,
            checkpoint=CheckpointFile(self.folder, "parrot", "1"),
            journal=Journal(self.journal_folder, "parrot"),
        )
        wanted = msgspec.convert(settings, WorkerSettings)
        return CoreWorker("parrot", core or Parrot(), edges, wanted, crash=crash)

    def order(self, name: str, kind: str = "stop_everything", topic: str = DIRECTIVES) -> None:
        wish = Directive(
            id=name,
            who="ada",
            kind=kind,  # type: ignore[arg-type]
            scope=Scope("fleet"),
            time=self.clock.now(),
        )
        self.memory.sink().send(topic, "", wish)

    def said(self) -> list[str]:
        """Return what the parrot said, in the order in which the bus took it."""
        taken = self.memory.source([AUDIT]).poll(1000, 0.0)
        return [f"{one.message.id}{one.message.value}" for one in taken]  # type: ignore[union-attr]

    def saved(self) -> Mapping[Place, int] | None:
        found, _ = CheckpointFile(self.folder, "parrot", "1").load()
        return None if found is None else found.header.places()


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


# --- the journal ---------------------------------------------------------------------------------


def test_while_the_journal_cannot_be_written_nothing_is_published(bench: Bench) -> None:
    bench.journal_folder = bench.folder / "away"
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    seen: list[list[str]] = []

    def mend() -> None:
        seen.append(bench.said())
        bench.journal_folder.mkdir()

    bench.clock.then = {4: mend}
    with capture_logs() as lines:
        worker.turn(bench.stop)
    assert seen == [[]]
    assert bench.said() == ["a1"]
    assert [line["event"] for line in lines] == [
        "the journal can't be written, so nothing is published",
        "over",
    ]
    assert bench.metrics.value("farside_journal_failures_total", worker="parrot") >= 2


def test_asked_to_stop_before_the_journal_is_written_nothing_is_published_or_saved(
    bench: Bench,
) -> None:
    bench.journal_folder = bench.folder / "away"
    bench.order("a")
    bench.clock.then = {2: bench.stop.set}
    bench.worker().run(bench.stop)
    assert (bench.said(), bench.saved()) == ([], None)


def test_turns_without_output_are_synced_with_the_next_one_or_the_checkpoint(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a", kind="label")
    worker.turn()
    assert turns(bench) == []
    bench.order("b")
    worker.turn()
    assert turns(bench) == [1, 2]
    bench.order("c", kind="label")
    worker.turn()
    worker.save()
    assert turns(bench) == [1, 2, 3]


def turns(bench: Bench) -> list[int]:
    return [found.turn.turn for found in Journal(bench.folder, "parrot").read() if found.turn]


def test_the_order_of_two_topics_is_repeated_as_it_was_taken(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("r", topic=REPORTS)
    worker.turn()
    bench.order("d")
    worker.turn()
    assert bench.said() == ["r1", "d2"]
    bench.worker().restore()  # without the journal it would take the directives first
    assert bench.said() == ["r1", "d2", "r1", "d2"]


def test_what_the_log_no_longer_holds_is_counted_told_and_passed_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path, records_max=2)
    worker = bench.worker()
    worker.restore()
    for name in "abcd":
        bench.order(name)
        worker.turn()
    with capture_logs() as lines:
        bench.worker().restore()
    assert bench.metrics.value("farside_journal_gone_total", worker="parrot") == 2
    assert [line["why"] for line in lines if line["event"] == "journal"] == [
        f"turn {turn}: 1 of 1 records are no longer in the log (farside.directives 0: offset {at})"
        for turn, at in ((1, 0), (2, 1))
    ]
    assert bench.said()[-2:] == ["c1", "d2"]


def test_the_journal_of_another_log_is_not_repeated_and_that_is_said(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    worker.turn()
    bench.bus.identity = "another"
    core = Parrot()
    with capture_logs() as lines:
        bench.worker(core).restore()
    assert core.heard == 0
    assert [line["event"] for line in lines] == ["the journal is of another log and not repeated"]


def test_without_its_checkpoint_what_the_journal_does_not_hold_is_judged_first(
    bench: Bench,
) -> None:
    worker = bench.worker()
    worker.restore()
    for name in "abc":
        bench.order(name)
        worker.turn()
    line = next(bench.folder.glob("parrot.journal.*"))
    line.write_bytes(b"".join(line.read_bytes().splitlines(keepends=True)[1:]))
    with capture_logs() as lines:
        bench.worker().restore()
    assert bench.said()[3:] == ["a1", "b2", "c3"]
    assert [line["event"] for line in lines] == ["journal", "repeated"]


def test_a_worker_that_crashed_before_it_ever_saved_takes_everything_again(bench: Bench) -> None:
    bench.journal_folder = bench.folder
    core = Parrot()
    worker = bench.worker(core, crash=Killer("after poll", 2))
    worker.restore()
    bench.order("a")
    worker.turn()
    bench.order("b")
    with pytest.raises(Killed):
        worker.turn()
    worker.restore()  # as its service does: the same worker runs again
    worker.turn()
    assert bench.said() == ["a1", "a1", "b2"]
