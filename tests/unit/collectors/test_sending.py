"""Sending over a bus that answers later: bounded, in order, until all is acknowledged."""

from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages import LogLine, Message, SampleBatch
from collectors.pacing import Pace, Settings
from collectors.sending import Sending
from collectors.spool import Settings as SpoolSettings
from collectors.spool import Spool
from runtime.clock import ManualClock
from runtime.errors import Rejected, Unavailable
from tests.unit.collectors.spooling import batch, drained, drained_keys, line

LONG_S = 3600.0
AT_ONCE = Settings(spread_s=0.0, catch_up_records_s=1000.0)


class Answer:
    """A receipt that answers when the test says so."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.error: Rejected | Unavailable | None = None
        self.acknowledged = False

    def taken(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.acknowledged


class LaterBus:
    """A bus that takes records and answers later; `log` is what it has."""

    def __init__(self) -> None:
        self.away: Unavailable | None = None
        self.handed: list[int] = []
        self.flight: deque[Answer] = deque()
        self.log: list[int] = []
        self.closed = False

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Answer:
        del topic, key, partition
        if self.away is not None:
            raise self.away
        assert isinstance(message, SampleBatch | LogLine)
        answer = Answer(message.sequence)
        self.handed.append(answer.sequence)
        self.flight.append(answer)
        return answer

    def acknowledge(self, count: int = 1) -> None:
        for _ in range(count):
            answer = self.flight.popleft()
            self.log.append(answer.sequence)
            answer.acknowledged = True

    def give_up(self, count: int = 1) -> None:
        for _ in range(count):
            self.flight.popleft().error = Unavailable("given up", retry_after_s=0.0)

    def flush(self, timeout_s: float) -> None:
        del timeout_s
        if self.flight:
            raise Unavailable("not all is acknowledged")

    def close(self, timeout_s: float) -> None:
        del timeout_s
        self.closed = True


class Stage:
    """A sending with its bus and its clock."""

    def __init__(
        self,
        settings: Settings = AT_ONCE,
        folder: Path | None = None,
        spool: SpoolSettings | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.bus = LaterBus()
        self.spool = Spool(spool or SpoolSettings(), folder)
        self.sending = Sending(settings, self.spool, self.bus, self.clock, node="n", start="s")
        self.appended = 0

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.appended += 1
            self.spool.append(batch(self.appended), self.clock.monotonic())

    def step(self, after_s: float = 0.0) -> float:
        self.clock.advance(after_s)
        return self.sending.step()


def test_a_record_leaves_only_when_the_bus_has_acknowledged_it() -> None:
    stage = Stage()
    stage.append(2)
    stage.step()
    on_the_way = stage.spool.count()
    stage.bus.acknowledge()
    stage.step()
    assert (on_the_way, stage.spool.count()) == ((0, 0, 2), (0, 0, 1))
    assert (stage.sending.counts["batch"], stage.bus.handed) == (1, [1, 2])


def test_a_record_on_its_way_is_never_sent_twice_however_long_it_takes() -> None:
    stage = Stage()
    stage.append(3)
    for _ in range(100):
        stage.step(after_s=LONG_S)
    stage.bus.acknowledge(3)
    stage.step()
    assert (stage.bus.handed, len(stage.spool)) == ([1, 2, 3], 0)


def test_no_more_records_are_on_their_way_than_the_limit() -> None:
    stage = Stage(Settings(in_flight_records_max=3))
    stage.append(10)
    stage.step()
    first = list(stage.bus.handed)
    stage.bus.acknowledge(2)
    stage.step()
    assert (first, stage.bus.handed) == ([1, 2, 3], [1, 2, 3, 4, 5])


def test_no_more_bytes_are_on_their_way_than_the_limit_and_one_record_always_may() -> None:
    stage = Stage(Settings(in_flight_bytes_max=2000))
    for number, size in enumerate([500, 500, 500, 5000, 5000], 1):
        stage.spool.append(line(number, "x" * size))
    handed = []
    for _ in range(4):
        stage.step()
        handed.append(len(stage.bus.flight))
        stage.bus.acknowledge(len(stage.bus.flight))
    assert (handed, stage.bus.log) == ([2, 1, 1, 1], [1, 2, 3, 4, 5])


def test_what_was_given_up_waits_for_the_rest_and_goes_again_before_anything_newer() -> None:
    stage = Stage()
    stage.append(4)
    stage.step()
    stage.append(2)
    stage.bus.give_up(2)  # 1 and 2; 3 and 4 are still on their way
    stage.step(after_s=60.0)
    while_unanswered = list(stage.bus.handed)
    stage.bus.acknowledge()
    stage.bus.give_up()
    stage.step(after_s=60.0)
    stage.step(after_s=60.0)
    while stage.bus.flight:
        stage.bus.acknowledge()
        stage.step(after_s=1.0)
    assert while_unanswered == [1, 2, 3, 4]
    assert stage.bus.handed == [1, 2, 3, 4, 1, 2, 4, 5, 6]
    assert (stage.bus.log, len(stage.spool)) == ([3, 1, 2, 4, 5, 6], 0)


def test_an_answer_for_a_later_record_does_not_end_the_wait_for_those_between() -> None:
    stage = Stage()
    stage.append(3)
    stage.step()
    stage.bus.give_up()
    stage.bus.acknowledge()  # 2 is there, 3 is on its way: sending 1 now would have 3 overtake it
    stage.step(after_s=1.0)
    waiting = list(stage.bus.handed)
    stage.bus.acknowledge()
    stage.step(after_s=1.0)
    assert (waiting, stage.bus.handed) == ([1, 2, 3], [1, 2, 3, 1])


def test_a_record_that_is_refused_for_good_is_counted_and_passed_over() -> None:
    stage = Stage()
    stage.append(3)
    stage.step()
    stage.bus.flight[1].error = Rejected("too large")
    stage.bus.acknowledge()
    stage.bus.flight.popleft()
    stage.bus.acknowledge()
    stage.step()
    assert (len(stage.spool), stage.sending.counts["refused"]) == (0, 1)
    assert stage.sending.counts["batch"] == 2


def test_a_bus_without_an_answer_counts_as_away_and_gets_no_more(tmp_path: Path) -> None:
    stage = Stage(folder=tmp_path / "spool")
    stage.append()
    stage.step()
    for _ in range(20):
        stage.step(after_s=1.0)
        stage.append()
    stage.step()
    stalled = (stage.sending.away, len(stage.bus.handed) < 8, stage.spool.count().memory)
    while stage.bus.flight:
        stage.bus.acknowledge(len(stage.bus.flight))
        stage.step(after_s=1.0)
    assert stalled == (True, True, 0)
    assert (stage.sending.away, stage.bus.log) == (False, list(range(1, 22)))


def test_a_bus_that_is_away_is_asked_with_one_record_until_it_answers() -> None:
    stage = Stage()
    stage.append(5)
    stage.bus.away = Unavailable("away", retry_after_s=0.0)
    stage.step()
    stage.bus.away = None
    stage.step(after_s=20.0)
    stage.step(after_s=1.0)
    asking = list(stage.bus.handed)
    stage.bus.acknowledge()
    stage.step(after_s=0.1)
    assert (asking, stage.bus.handed) == ([1], [1, 2, 3, 4, 5])


def test_every_step_says_when_the_next_is_due_and_that_is_soon_enough(tmp_path: Path) -> None:
    stage = Stage(Settings(), tmp_path / "spool", SpoolSettings(disk_after_s=0.2, sync_s=0.1))
    idle_s = stage.step()
    stage.bus.away = Unavailable("away", retry_after_s=30.0)
    stage.append()
    write_s = stage.step()
    stage.clock.advance(write_s)
    sync_s = stage.step()
    assert (idle_s, round(write_s, 6), round(sync_s, 6)) == (0.5, 0.2, 0.1)


def test_pauses_grow_to_a_limit_and_differ_from_node_to_node() -> None:
    def pauses(node: str, start: str) -> list[float]:
        pace = Pace(Settings(), node, start, 0.0)
        found = []
        for _ in range(200):
            pace.failed(0.0, 0.0)
            found.append(pace.due_s(0.0))
        return found

    one = pauses("a", "s")
    assert one == pauses("a", "s")
    assert len({tuple(one), tuple(pauses("b", "s")), tuple(pauses("a", "t"))}) == 3
    assert all(pause_s <= 0.5 * 2**number for number, pause_s in enumerate(one[:6]))
    assert 12.0 < max(one) <= 15.0
    assert 6.0 < sum(one[10:]) / 190 < 9.0


def test_a_pause_is_never_shorter_than_the_bus_asks_for() -> None:
    pace = Pace(Settings(), "n", "s", 0.0)
    pace.failed(0.0, 100.0)
    assert 100.0 <= pace.due_s(0.0) <= 100.5


def test_after_a_blip_nobody_waits_for_his_place_in_the_spread() -> None:
    pace = Pace(Settings(), "n", "s", 0.0)
    pace.failed(0.0, 0.0)
    pace.acknowledged(4.0)
    assert pace.room(4.0, 0) == 20


def test_a_clean_end_with_the_bus_away_leaves_everything_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    stage = Stage(folder=folder)
    stage.append(3)
    stage.step()  # on their way, without an answer
    stage.bus.away = Unavailable("away")
    stage.append(3)
    stage.step(after_s=1.0)
    lost = stage.sending.close(1.0)
    kept = drained_keys(Spool(SpoolSettings(), folder))
    assert (lost, stage.bus.closed) == (0, True)
    assert kept == [("s", number) for number in range(1, 7)]


def test_a_clean_end_with_the_bus_there_leaves_nothing(tmp_path: Path) -> None:
    stage = Stage(folder=tmp_path / "spool")
    stage.append(3)
    stage.step()
    stage.bus.acknowledge(3)
    lost = stage.sending.close(1.0)
    assert (lost, drained(Spool(SpoolSettings(), tmp_path / "spool"))) == (0, [])


def test_at_the_end_without_a_disk_all_is_tried_once_more_and_the_loss_is_told() -> None:
    back, away = Stage(), Stage()
    for stage in (back, away):
        stage.append(3)
        stage.bus.away = Unavailable("away", retry_after_s=LONG_S)
        stage.step()
    back.bus.away = None
    lost = (back.sending.close(1.0), away.sending.close(1.0))
    assert (back.bus.handed, lost) == ([1, 2, 3], (3, 3))  # sent, and not acknowledged in time


def test_an_earlier_start_is_sent_first_by_the_next(tmp_path: Path) -> None:
    first = Stage(folder=tmp_path / "spool")
    first.bus.away = Unavailable("away")
    first.append(3)
    first.step()
    first.sending.close(1.0)
    second = Stage(folder=tmp_path / "spool")
    second.spool.append(line(100))
    second.step()
    while second.bus.flight:
        second.bus.acknowledge(len(second.bus.flight))
        second.step(after_s=0.1)
    assert second.bus.log == [1, 2, 3, 100]


@pytest.mark.parametrize("where", ["memory", "disk"])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "acknowledge", "give up", "leave", "return", "step"]),
            st.integers(1, 4),
        ),
        max_size=80,
    )
)
def test_over_a_bus_that_loses_the_way_from_some_record_on_all_arrive_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, where: str, steps: list[tuple[str, int]]
) -> None:
    """As Kafka's idempotent producer does: what is given up takes all that was sent after it."""
    folder = tmp_path_factory.mktemp("sending") / "spool" if where == "disk" else None
    stage = Stage(folder=folder, spool=SpoolSettings(disk_after_s=2.0))
    bus = stage.bus
    for step, count in steps:
        if step == "append":
            stage.append(count)
        elif step == "acknowledge":
            bus.acknowledge(min(count, len(bus.flight)))
        elif step == "give up":
            bus.acknowledge(min(count - 1, len(bus.flight)))
            bus.give_up(len(bus.flight))
        elif step == "step":
            stage.step(after_s=float(count))
        else:
            bus.away = Unavailable("away", retry_after_s=0.0) if step == "leave" else None
        assert len(bus.flight) <= AT_ONCE.in_flight_records_max
        assert len(stage.spool) >= stage.appended - len(bus.log)
    bus.away = None
    for _ in range(50):
        stage.step(after_s=20.0)
        bus.acknowledge(len(bus.flight))
    stage.step()
    assert (bus.log, len(stage.spool)) == (list(range(1, stage.appended + 1)), 0)
    stage.spool.close()
