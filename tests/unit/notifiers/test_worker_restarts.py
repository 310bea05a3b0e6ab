"""The notifier's worker over a bus that goes away, and over its own restarts.

Whatever happens: each notice is told, at least once and nearly always once, in order, or kept as a
dead letter.
"""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bus.messages import Delivery, Incident, IncidentState
from bus.records import load
from bus.topics import COMMANDS, DELIVERIES, INCIDENTS
from notifiers.base import Notice, notice_of
from notifiers.worker import NotifierWorker, Settings
from runtime.clock import Instant, ManualClock
from runtime.errors import Misconfigured, Rejected, Unavailable
from runtime.metrics import Metrics
from tests.unit.notifiers.notices import START, Ear, incident
from tests.unit.notifiers.unsteady import UnsteadyBus, Writing


class Desk:
    """A bus and people who are told; `start` makes the worker anew, as after a kill.

    Each has a file of its own for dead letters: of a killed one the kernel would free the lock.
    """

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(START)
        self.bus = UnsteadyBus(self.clock)
        self.folder = folder / "state"
        self._starts = 0
        self.metrics = Metrics()
        self.beats: Callable[[int], None] = lambda _: None
        self._count = 0
        self.ear = Ear()
        self.start()

    def start(
        self,
        *,
        durable: bool = True,
        settings: Settings | None = None,
        letters: Path | None = None,
        past: UnsteadyBus | None = None,
    ) -> None:
        """Make the worker anew; its people stay the same."""
        self.letters = letters or self.folder / f"dead-letters-{self._starts}.jsonl"
        self._starts += 1
        self.source = self.bus.source([INCIDENTS, COMMANDS])
        self.worker = NotifierWorker(
            self.ear,
            source=self.source,
            sink=self.bus.sink(),
            clock=self.clock,
            settings=settings,
            metrics=self.metrics,
            past=(past or self.bus).source([DELIVERIES]),
            dead_letters=self.letters,
            durable=durable,
            beat=self._beat,
        )

    def _beat(self) -> None:
        self._count += 1
        self.beats(self._count)

    def give(self, *incidents: Incident) -> None:
        for one in incidents:
            self.bus.bus.sink().send(INCIDENTS, one.id, one)

    def turns(self, count: int = 1) -> None:
        """Take turns while a second passes before each."""
        for _ in range(count):
            self.clock.advance(1.0)
            self.worker.turn(self.source.poll(1_000, 0.0), self.clock.now())

    def told(self) -> list[str]:
        return [state for _, state in self.ear.heard]

    def deliveries(self) -> list[tuple[str, str]]:
        found = self.bus.messages(DELIVERIES)
        return [(one.state, one.outcome) for one in found if isinstance(one, Delivery)]

    def kept(self) -> list[dict[str, Any]]:
        """Return the dead letters."""
        if not self.letters.exists():
            return []
        return [json.loads(line) for line in self.letters.read_bytes().splitlines()]

    def letters_total(self) -> float:
        return self.metrics.value("farside_dead_letters_total", notifier="ear")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


AWAY = Unavailable("the pager is away")


def test_nothing_is_told_before_it_is_known_what_was_told(desk: Desk) -> None:
    desk.worker.start()
    desk.give(incident())
    desk.turns()
    desk.start()
    desk.bus.reads, desk.bus.empty_polls = False, 3

    def beats(count: int) -> None:
        desk.bus.reads = count > 30

    desk.beats = beats
    assert desk.worker.start()
    desk.turns()
    assert desk.told() == ["open"]


def test_who_is_stopped_while_waiting_for_the_deliveries_tells_nothing(desk: Desk) -> None:
    desk.give(incident())
    deliveries, stop = UnsteadyBus(desk.clock), threading.Event()
    deliveries.reads = False

    def beats(count: int) -> None:
        if count > 30:
            stop.set()

    desk.beats = beats
    desk.start(past=deliveries)
    desk.worker.run(stop)
    assert (desk.told(), desk.deliveries(), desk.ear.closed) == ([], [], True)


def test_a_turn_is_bounded_so_that_what_is_new_is_seen(desk: Desk) -> None:
    desk.worker.start()
    desk.beats = lambda _: desk.clock.advance(1.0)  # each notice takes a second
    desk.give(*(incident(name=f"i{number}") for number in range(10)))
    desk.turns()
    assert len(desk.told()) < 5
    desk.turns(9)
    assert len(desk.told()) == 10


def test_what_waits_at_a_stop_is_told_by_the_next_start_where_the_bus_lasts(desk: Desk) -> None:
    desk.worker.start()
    desk.ear.failing["i1"] = AWAY
    desk.give(incident("open"), incident("acting", after_s=1))
    desk.turns(2)
    desk.worker.stop()
    assert (desk.deliveries(), desk.kept()) == ([], [])
    desk.start()
    desk.ear.failing.clear()
    desk.worker.start()
    desk.turns()
    assert desk.told() == ["open", "acting"]


def test_what_waits_at_a_stop_is_kept_as_a_dead_letter_where_the_bus_ends_too(desk: Desk) -> None:
    desk.start(durable=False)
    desk.worker.start()
    desk.ear.failing["i1"] = AWAY
    desk.give(incident())
    desk.turns()
    desk.worker.stop()
    assert [(one["outcome"], one["detail"]) for one in desk.kept()] == [
        ("failed", "stopped before it could be told")
    ]


class Killed(BaseException):
    """A kill: nobody catches it."""


def test_a_kill_between_telling_and_noting_tells_once_more_under_the_same_id(desk: Desk) -> None:
    desk.worker.start()
    ids = []

    def tell(notice: Notice, now: Instant) -> None:  # noqa: ARG001  # the protocol's
        ids.append(notice.id)
        if len(ids) == 1:
            raise Killed

    desk.ear.tell = tell  # type: ignore[method-assign]
    desk.give(incident())
    with pytest.raises(Killed):
        desk.turns()
    desk.start()
    desk.worker.start()
    desk.turns(2)
    assert len(ids) == 2
    assert len(set(ids)) == 1


@pytest.mark.parametrize("writes", ["away", "silent", "loses", "deaf"])
def test_deliveries_arrive_when_the_bus_is_back_and_nothing_is_told_again(
    desk: Desk, writes: Writing
) -> None:
    desk.worker.start()
    desk.bus.writes = writes
    states: tuple[IncidentState, ...] = ("open", "acting", "contained")
    for after_s, state in enumerate(states):
        desk.give(incident(state, after_s=after_s))
        desk.turns(3)
    desk.bus.writes = "takes"
    desk.bus.answer()
    desk.turns(150)
    assert desk.told() == list(states)
    assert list(dict.fromkeys(desk.deliveries())) == [(state, "done") for state in states]


def test_a_delivery_that_the_bus_refuses_for_good_holds_nobody_up(desk: Desk) -> None:
    desk.worker.start()
    desk.bus.writes = "refuses"
    desk.give(incident("open"))
    desk.turns()
    desk.bus.writes = "takes"
    desk.give(incident("acting", after_s=1))
    desk.turns()
    assert desk.deliveries() == [("acting", "done")]


def test_while_incidents_can_not_be_read_what_waits_is_told(desk: Desk) -> None:
    desk.ear.failing["i1"] = AWAY
    desk.give(incident())
    stop = threading.Event()

    def beats(_: int) -> None:
        now_s = desk.clock.monotonic()
        desk.bus.reads = now_s < 3 or now_s > 200
        if now_s > 60:
            desk.ear.failing.clear()
        if now_s > 190:
            stop.set()
        desk.clock.advance(0.25)

    desk.beats = beats
    desk.worker.run(stop)
    assert desk.told() == ["open"]


# --- dead letters --------------------------------------------------------------------------------


def test_what_is_given_up_is_kept_whole_with_its_reason(desk: Desk) -> None:
    desk.worker.start()
    desk.ear.failing["i1"] = AWAY
    desk.give(incident(severity="critical", sentence="it leaks"))
    desk.turns(700)
    (one,) = desk.kept()
    made = notice_of(incident(severity="critical", sentence="it leaks"))
    assert made is not None
    assert {name: one[name] for name in one if name not in {"time", "message"}} == {
        "id": made.id,
        "notifier": "ear",
        "outcome": "failed",
        "detail": "the pager is away",
        "incident": "i1",
        "state": "open",
        "changed": START.text(),
        "severity": "critical",
        "sentence": "it leaks",
    }
    assert desk.deliveries() == [("open", "failed")]
    assert desk.letters_total() == 1


def test_a_dead_letter_holds_the_message_as_records_hold_it(desk: Desk) -> None:
    desk.worker.start()
    desk.ear.failing["i1"] = Rejected("no such receiver")
    desk.give(incident())
    desk.turns()
    line = json.dumps({"message": desk.kept()[0]["message"]}).encode()
    (read,) = load([line])
    assert getattr(read, "message", None) == incident()


def test_the_last_try_is_at_the_moment_of_giving_up_whatever_the_receiver_asks_for(
    desk: Desk,
) -> None:
    desk.start(settings=Settings(give_up_s=100.0))
    desk.worker.start()
    desk.ear.failing["i1"] = Unavailable("busy", retry_after_s=3_000.0)
    desk.give(incident())
    desk.turns(99)
    assert desk.kept() == []
    desk.turns(3)
    assert [one["outcome"] for one in desk.kept()] == ["failed"]


def test_refused_and_expired_notices_are_dead_letters_and_told_ones_are_none(desk: Desk) -> None:
    desk.start(settings=Settings(age_limit_s=60.0))
    desk.worker.start()
    desk.ear.failing["i1"] = Rejected("no such receiver")
    desk.give(incident(), incident(name="i2"))
    desk.turns()
    desk.clock.advance(100.0)
    desk.give(incident(name="i3"))
    desk.turns()
    assert [(one["incident"], one["outcome"]) for one in desk.kept()] == [
        ("i1", "refused"), ("i3", "expired"),
    ]  # fmt: skip


def test_what_was_given_up_before_a_restart_is_given_up_once(desk: Desk) -> None:
    desk.worker.start()
    desk.ear.failing["i1"] = Rejected("no such receiver")
    desk.give(incident())
    desk.turns()
    desk.worker.stop()
    desk.start(letters=desk.letters)
    desk.worker.start()
    desk.turns()
    assert len(desk.kept()) == 1


def test_what_lies_further_back_than_a_start_looks_is_passed_over(desk: Desk) -> None:
    desk.start(settings=Settings(look_back_s=7_200.0))
    desk.worker.start()
    desk.clock.advance(7_300.0)
    desk.give(incident())
    desk.turns()
    assert (desk.told(), desk.kept(), desk.deliveries()) == ([], [], [])


def test_the_file_is_turned_over_when_it_is_full_and_nothing_is_lost_of_the_newest(
    desk: Desk,
) -> None:
    desk.start(settings=Settings(dead_letters_bytes_max=1 << 16))
    desk.worker.start()
    names = [f"i{number}" for number in range(150)]
    desk.ear.failing = dict.fromkeys(names, Rejected("no such receiver"))
    desk.give(*(incident(name=name, sentence="x" * 400) for name in names))
    desk.turns(2)
    before = desk.letters.with_name(desk.letters.name + ".1")
    assert desk.letters.stat().st_size <= 1 << 16
    assert before.stat().st_size <= 1 << 16
    older = [json.loads(line)["incident"] for line in before.read_bytes().splitlines()]
    kept = older + [one["incident"] for one in desk.kept()]
    assert kept == names[-len(kept) :]


def test_a_line_that_a_crash_cut_short_does_not_spoil_the_next(desk: Desk) -> None:
    desk.letters.parent.mkdir()
    desk.letters.write_bytes(b'{"id":"notice_1","ti')
    desk.worker.start()
    desk.ear.failing["i1"] = Rejected("no such receiver")
    desk.give(incident())
    desk.turns()
    torn, whole = desk.letters.read_bytes().splitlines()
    assert torn == b'{"id":"notice_1","ti'
    assert json.loads(whole)["incident"] == "i1"


def test_only_this_user_reads_the_file(desk: Desk) -> None:
    desk.worker.start()
    desk.ear.failing["i1"] = Rejected("no such receiver")
    desk.give(incident())
    desk.turns()
    assert desk.letters.stat().st_mode & 0o777 == 0o600


def test_a_second_writer_of_the_same_file_is_refused_at_its_start(desk: Desk) -> None:
    desk.worker.start()
    first, letters = desk.worker, desk.letters
    desk.start(letters=letters)
    with pytest.raises(Misconfigured, match="state_dir"):
        desk.worker.start()
    first.stop()
    assert desk.worker.start()


def test_a_dead_letter_that_can_not_be_kept_holds_nobody_up(desk: Desk) -> None:
    desk.worker.start()
    desk.letters.mkdir()  # a folder where the file should be: not to be written, even by root
    desk.ear.failing["i1"] = Rejected("no such receiver")
    desk.give(incident(), incident(name="i2"))
    desk.turns()
    assert sorted(desk.deliveries()) == [("open", "done"), ("open", "refused")]
    assert desk.letters_total() == 0


def test_without_a_file_what_could_not_be_told_is_noted_all_the_same(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    worker = NotifierWorker(
        desk.ear, source=desk.source, sink=desk.bus.sink(), clock=desk.clock, metrics=desk.metrics
    )
    desk.ear.failing["i1"] = Rejected("no such receiver")
    desk.give(incident())
    worker.turn(desk.source.poll(10, 0.0), desk.clock.now())
    assert desk.deliveries() == [("open", "refused")]
    assert list(tmp_path.iterdir()) == []
