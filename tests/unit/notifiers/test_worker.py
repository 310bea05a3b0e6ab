"""What people are told, in which order, how often, and what is noted of it."""

import threading

from bus.memory import MemoryBus
from bus.messages import Delivery, IncidentState, Message, Refusal
from bus.topics import COMMANDS, DELIVERIES, HEALTH, INCIDENTS
from notifiers.worker import NotifierWorker, Settings
from runtime.clock import ManualClock
from runtime.errors import Rejected, Unavailable
from runtime.metrics import Metrics
from tests.unit.notifiers.notices import START, Ear, incident, refusal

Deliveries = list[tuple[str, str, str]]


class Desk:
    """A worker with its bus, a clock that is moved by hand, and the deliveries so far."""

    def __init__(self, settings: Settings | None = None, bus: MemoryBus | None = None) -> None:
        self.clock = ManualClock(START)
        self.bus = bus or MemoryBus(self.clock)
        self.ear = Ear()
        self.metrics = Metrics()
        self.source = self.bus.source([INCIDENTS, COMMANDS, HEALTH])
        self.worker = NotifierWorker(
            self.ear,
            source=self.source,
            sink=self.bus.sink(),
            clock=self.clock,
            settings=settings,
            metrics=self.metrics,
            past=self.bus.source([DELIVERIES]),
        )
        self._deliveries = self.bus.source([DELIVERIES], "latest")

    def give(self, *messages: Message) -> None:
        for message in messages:
            topic = COMMANDS if isinstance(message, Refusal) else INCIDENTS
            self.bus.sink().send(topic, "i1", message)

    def turn(self, *messages: Message) -> Deliveries:
        """Give messages, take a turn, and return the new deliveries."""
        self.give(*messages)
        self.worker.turn(self.source.poll(1_000, 0.0), self.clock.now())
        return self.deliveries()

    def deliveries(self) -> Deliveries:
        found = [envelope.message for envelope in self._deliveries.poll(1_000, 0.0)]
        return [(d.incident, d.state, d.outcome) for d in found if isinstance(d, Delivery)]

    def wait(self, duration_s: float) -> None:
        self.clock.advance(duration_s)


def test_each_change_of_state_is_told_once_and_noted() -> None:
    desk = Desk()
    assert desk.turn(incident("open"), incident("open"), incident("acting", after_s=1)) == [
        ("i1", "open", "done"),
        ("i1", "acting", "done"),
    ]
    assert desk.turn(incident("open"), incident("acting", after_s=1)) == []
    assert desk.ear.heard == [("i1", "open"), ("i1", "acting")]


def test_a_state_that_an_incident_comes_back_to_is_told_again() -> None:
    desk = Desk()
    states: tuple[IncidentState, ...] = ("open", "contained", "open", "contained")
    desk.turn(*(incident(state, after_s=t) for t, state in enumerate(states)))
    assert [state for _, state in desk.ear.heard] == list(states)


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    before = Desk()
    before.turn(incident("open"), incident("acting", after_s=1), refusal())
    after = Desk(bus=before.bus)
    after.worker.start()
    after.turn(incident("contained", after_s=2))
    assert after.ear.heard == [("i1", "contained")]


def test_a_refusal_is_told_once_for_its_incident_action_and_reason() -> None:
    desk = Desk()
    desk.turn(refusal("off"), refusal("off", after_s=5), refusal("budget"), refusal("off", "i2"))
    assert desk.ear.heard == [
        ("i1", "refused freeze: off"),
        ("i1", "refused freeze: budget"),
        ("i2", "refused freeze: off"),
    ]


def test_a_reason_that_changes_for_ever_is_told_so_many_times() -> None:
    desk = Desk(Settings(refusals_max=3))
    desk.turn(*(refusal(f"{n} of 3 nodes isolated") for n in range(10)))
    assert len(desk.ear.heard) == 3


def test_what_can_not_be_told_now_is_told_later_in_order_and_others_do_not_wait() -> None:
    desk = Desk()
    desk.ear.failing["i1"] = Unavailable("the pager is away")
    first = desk.turn(incident("open"), incident("acting", after_s=1), incident("open", "i2"))
    assert first == [("i2", "open", "done")]
    desk.ear.failing.clear()
    assert desk.turn() == []  # the pause is not over
    desk.wait(2)
    assert desk.turn() == [("i1", "open", "done"), ("i1", "acting", "done")]


def test_after_the_time_to_give_up_a_delivery_is_noted_as_failed() -> None:
    desk = Desk(Settings(give_up_s=100.0))
    desk.ear.failing["i1"] = Unavailable("the pager is away")
    assert desk.turn(incident()) == []
    desk.wait(101)
    assert desk.turn() == [("i1", "open", "failed")]
    assert desk.metrics.value("farside_deliveries_total", notifier="ear", outcome="failed") == 1


def test_what_will_never_be_taken_is_noted_as_refused_at_once() -> None:
    desk = Desk()
    desk.ear.failing["i1"] = Rejected("no such receiver")
    assert desk.turn(incident()) == [("i1", "open", "refused")]


def test_what_is_too_old_is_not_told() -> None:
    desk = Desk(Settings(age_limit_s=60.0))
    desk.wait(61)
    assert desk.turn(incident()) == [("i1", "open", "expired")]
    assert desk.ear.heard == []


def test_more_notices_than_may_wait_are_noted_as_failed() -> None:
    desk = Desk(Settings(waiting_max=1))
    desk.ear.failing["i1"] = Unavailable("the pager is away")
    desk.turn(incident())
    assert desk.turn(incident("open", "i2")) == [("i2", "open", "failed")]


def test_at_the_stop_what_is_there_is_still_told_and_what_waits_is_noted() -> None:
    desk = Desk()
    desk.ear.failing["i1"] = Unavailable("the pager is away")
    desk.give(incident(), incident("open", "i2"))
    stop = threading.Event()
    stop.set()
    desk.worker.run(stop)
    assert desk.deliveries() == [("i2", "open", "done"), ("i1", "open", "failed")]
    assert desk.ear.closed
