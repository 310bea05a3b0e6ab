"""Takes incidents (and refusals) from the bus, has one notifier tell them, and notes deliveries.

Each notifier has a worker of its own, with its own position in the topics and its own thread, so
that a slow or absent one holds up nobody else. Within it the notices of an incident keep their
order: one that can't be told now is tried again with growing pauses, later ones of that incident
wait behind it, those of others don't.

What can't be told within `give_up_s`, was refused for good or came too late is noted as such, and
kept as a dead letter. A delivery is kept until the bus has acknowledged it. After a kill between
telling and noting a notice is told once more, under the same id.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from bus.messages import Delivery, Outcome
from bus.topics import COMMANDS, DELIVERIES, INCIDENTS
from bus.transport import Envelope, Receipt, Sink, Source
from notifiers.base import REFUSED, Notice, Notifier, notice_of
from notifiers.dead_letters import DeadLetters, letter
from runtime import logs
from runtime.clock import Clock, Instant
from runtime.errors import FarsideError, Unavailable
from runtime.metrics import Metrics
from runtime.retries import Lanes, Outbox, Patience, Retry, Waiting, read_through
from runtime.words import duration_text, plain_text

Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]
Pause = Annotated[float, msgspec.Meta(gt=0, le=3_600)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
DETAIL_CHARS_MAX = 300


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long telling is tried, what is too old to tell, and how much is kept waiting.

    `age_limit_s` counts from the change of state by this machine's clock. `look_back_s`: a start
    reads notices from so far back; older ones are passed over without a word. `refusals_max` is per
    incident: a reason with a number in it may change for ever.

    Pauses between tries are drawn from 0 to `pause_s`, doubled each time up to `pause_s_max`, on
    top of what the receiver asks for; the last try is at `give_up_s`. `turn_s`: after so long no
    further notice is begun in a turn, so that new ones are seen. `stop_s`: how long a stop goes on
    telling, and how long it waits for the last deliveries to be acknowledged.
    """

    age_limit_s: Seconds = 3600.0
    look_back_s: Annotated[float, msgspec.Meta(ge=60, le=2_592_000)] = 86_400.0
    give_up_s: Seconds = 600.0
    pause_s: Pause = 1.0
    pause_s_max: Pause = 60.0
    turn_s: Pause = 2.0
    stop_s: Pause = 2.0
    poll_s: Annotated[float, msgspec.Meta(gt=0, le=10)] = 0.5
    poll_records_max: Count = 256
    waiting_max: Count = 1_000
    incidents_max: Count = 10_000
    refusals_max: Count = 20
    deliveries_max: Count = 10_000
    dead_letters_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 30)] = 16 << 20


@dataclass
class Told:
    """What was told of one incident."""

    states: set[str] = field(default_factory=set)
    last: str = ""
    time: int = 0

    def add(self, state: str, time: int) -> None:
        """Note one more; refusals don't count as a state that the incident was in."""
        self.states.add(state)
        if not state.startswith(REFUSED):
            self.last, self.time = state, max(self.time, time)


class NotifierWorker:
    """The consumer of the incidents and commands topics in front of one notifier.

    `past` (optional) reads DELIVERIES from its earliest record to its end, at the start, to learn
    what was told before. `dead_letters` is the file for what could not be told. `durable`: the bus
    outlives this process, so what waits at a stop is told by the next start.
    """

    def __init__(  # noqa: PLR0913  # the composition root names each part
        self,
        notifier: Notifier,
        *,
        source: Source,
        sink: Sink,
        clock: Clock,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
        past: Source | None = None,
        dead_letters: Path | None = None,
        durable: bool = False,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Tell through `notifier`; `beat` shows life."""
        self.name = f"notifier-{notifier.name}"
        self._notifier = notifier
        self._source = source
        self._sink = sink
        self._clock = clock
        self._settings = settings or Settings()
        self._past = past
        self._letters = DeadLetters(dead_letters, self._settings.dead_letters_bytes_max)
        self._durable = durable
        self._beat = beat
        self._log = logs.get(worker=self.name)
        self._lanes: Lanes[Notice] = Lanes(
            self._settings.pause_s, self._settings.pause_s_max, self._settings.waiting_max
        )
        self._told: OrderedDict[str, Told] = OrderedDict()
        self._reading = self._patience("incidents can't be read")
        self._outbox: Outbox[Delivery] = Outbox(
            self._hand_over,
            self._settings.deliveries_max,
            self._patience("deliveries can't be sent"),
        )
        self._stop = threading.Event()
        self._count(metrics or Metrics())

    def _patience(self, what: str) -> Patience:
        retry = Retry(f"{self.name} {what}", self._settings.pause_s, self._settings.pause_s_max)
        return Patience(what, retry, self._log)

    def _count(self, metrics: Metrics) -> None:
        self._outcomes = metrics.counter(
            "farside_deliveries_total",
            "Notices told or not, by notifier and outcome",
            ("notifier", "outcome"),
        )
        letters = metrics.counter(
            "farside_dead_letters_total",
            "Notices kept because they could not be told",
            ("notifier",),
        )
        waiting = metrics.gauge(
            "farside_notices_waiting", "Notices that wait to be told", ("notifier",)
        )
        self._kept = letters.labels(self._notifier.name)
        self._queued = waiting.labels(self._notifier.name)

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then tell what is already there once more and close."""
        self._stop = stop
        if self.start(stop):
            while not stop.is_set():
                self._beat()
                self.turn(self._poll(stop, self._settings.poll_s), self._clock.now())
            self._stop = threading.Event()
            self.turn(self._poll(stop, 0.0), self._clock.now())
        self.stop()

    def start(self, stop: threading.Event | None = None) -> bool:
        """Learn what was told before, waiting while the bus can't be read.

        Returns whether that is known; it isn't when `stop` was set before.
        """
        try:
            self._letters.open()
        except Unavailable as error:  # a full disk must not keep people from being told
            self._log.error("dead letters can't be kept now", reason=str(error))
        if self._past is not None:
            if not read_through(
                self._past,
                self.learn,
                patience=self._patience("nothing is told: earlier deliveries can't be read"),
                clock=self._clock,
                stop=stop or threading.Event(),
                meanwhile=self._beat,
            ):
                return False
            self._past.close()
            self._past = None
        return True

    def stop(self) -> None:
        """Note what could not be told until now, send the last deliveries, and let go of all."""
        now = self._clock.now()
        left = self._lanes.clear()
        if left and self._durable:
            self._log.info("notices are left to the next start", count=len(left))
        elif left:
            for notice in left:
                self._conclude(notice, "failed", "stopped before it could be told", now)
        self._send_last()
        self._notifier.close()
        self._letters.close()
        self._source.close()
        self._sink.close(self._settings.stop_s)

    def learn(self, envelopes: Iterable[Envelope]) -> None:
        """Take from the deliveries topic what this notifier told, or gave up."""
        for envelope in envelopes:
            delivery = envelope.message
            if isinstance(delivery, Delivery) and delivery.notifier == self._notifier.name:
                self._note(delivery.incident, delivery.state, delivery.changed or delivery.time)

    def turn(self, envelopes: Iterable[Envelope], now: Instant) -> None:
        """Tell what is new, try again what was put off, hand over the deliveries."""
        for envelope in envelopes:
            notice = notice_of(envelope.message)
            if notice is not None and envelope.topic in {INCIDENTS, COMMANDS}:
                self._admit(notice, now)
        end_s = self._clock.monotonic() + self._settings.turn_s
        self._lanes.work(
            self._settle,
            self._clock.monotonic,
            lambda: not self._stop.is_set() and self._clock.monotonic() <= end_s,
        )
        self._queued.set(len(self._lanes))
        self._send()

    def _poll(self, stop: threading.Event, timeout_s: float) -> list[Envelope]:
        """Return new records; while the bus is away, none after as long as a poll takes."""
        if not self._reading.due(self._clock.monotonic()):
            self._clock.wait(stop, timeout_s)
            return []
        try:
            envelopes = self._source.poll(self._settings.poll_records_max, timeout_s)
        except Unavailable as error:
            self._reading.failed(error, self._clock.monotonic())
            return []
        self._reading.well(self._clock.monotonic())
        return envelopes

    def _admit(self, notice: Notice, now: Instant) -> None:
        age_s = now.since(notice.time)
        if age_s > self._settings.look_back_s or not self._notifier.wants(notice):
            return
        if not self._is_new(notice):
            return
        if age_s > self._settings.age_limit_s:
            self._conclude(notice, "expired", f"{duration_text(age_s)} old, too old to tell", now)
        elif self._lanes.full:
            limit = self._settings.waiting_max
            self._conclude(notice, "failed", f"{limit} notices are waiting already", now)
        else:
            self._lanes.add(notice.incident, notice.id, notice, self._clock.monotonic())

    def _is_new(self, notice: Notice) -> bool:
        """Tell whether a notice says what was neither told yet nor waits to be told.

        A state that an incident comes back to is told again; a record that the decider published
        once more after a crash is not, because it is not newer than what was told.
        """
        before = self._told.get(notice.incident, Told())
        told = Told(set(before.states), before.last, before.time)
        for waiting in self._lanes.lane(notice.incident):
            told.add(waiting.item.state, waiting.item.time)
        if notice.word == REFUSED:
            refused = sum(state.startswith(REFUSED) for state in told.states)
            return notice.state not in told.states and refused < self._settings.refusals_max
        if notice.state not in told.states:
            return True
        return notice.state != told.last and notice.time > told.time

    def _note(self, incident: str, state: str, time: Instant) -> None:
        told = self._told.setdefault(incident, Told())
        self._told.move_to_end(incident)
        told.add(state, time)
        while len(self._told) > self._settings.incidents_max:
            self._told.popitem(last=False)

    def _settle(self, waiting: Waiting[Notice], due: bool) -> bool:  # noqa: FBT001  # the lanes'
        """Tell a notice, or give it up; return whether that is settled."""
        self._beat()
        if not due:
            return False
        now = self._clock.now()
        end_s = waiting.since_s + self._settings.give_up_s
        try:
            self._notifier.tell(waiting.item, now)
        except Unavailable as error:
            now_s = self._clock.monotonic()
            if now_s < end_s:
                # The last try is at the very end, whatever the pauses and the receiver's wishes.
                waiting.retry = waiting.retry.failed(now_s, error.retry_after_s).at_last(end_s)
                return False
            self._conclude(waiting.item, "failed", str(error), now)
        except FarsideError as error:
            self._conclude(waiting.item, "refused", str(error), now)
        else:
            self._conclude(waiting.item, "done", "", now)
        return True

    def _conclude(self, notice: Notice, outcome: Outcome, detail: str, now: Instant) -> None:
        """Note what became of a notice: on disk first where a person has to see to it."""
        detail = plain_text(detail, DETAIL_CHARS_MAX)
        if outcome != "done":
            self._log.warning(
                "not told",
                incident=notice.incident,
                state=notice.state,
                outcome=outcome,
                reason=detail,
            )
            self._keep(notice, outcome, detail, now)
        self._outcomes.labels(self._notifier.name, outcome).inc()
        self._note(notice.incident, notice.state, notice.time)
        self._outbox.add(
            Delivery(
                incident=notice.incident,
                notifier=self._notifier.name,
                outcome=outcome,
                time=now,
                state=notice.state,
                detail=detail,
                changed=notice.time,
            )
        )

    def _keep(self, notice: Notice, outcome: Outcome, detail: str, now: Instant) -> None:
        try:
            self._letters.keep(letter(self._notifier.name, notice, outcome, detail, now))
        except FarsideError as error:
            self._log.error("a dead letter could not be kept", reason=str(error))
        else:
            self._kept.inc()

    def _hand_over(self, delivery: Delivery) -> Receipt:
        return self._sink.send(DELIVERIES, delivery.incident, delivery)

    def _send(self) -> None:
        """Hand the deliveries over; what the bus hasn't acknowledged is sent again later."""
        lost = self._outbox.dropped
        self._outbox.step(self._clock.monotonic())
        if self._outbox.dropped > lost:
            count = self._outbox.dropped - lost
            self._log.error("deliveries given up", count=count, reason=self._outbox.why)

    def _send_last(self) -> None:
        """Send what is left, and wait for its acknowledgement for at most `stop_s`."""
        self._outbox.last(self._sink.flush, self._clock.monotonic, self._settings.stop_s)
        if len(self._outbox):
            count, why = len(self._outbox), self._outbox.why
            self._log.warning("deliveries are not acknowledged", count=count, reason=why)
