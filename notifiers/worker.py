"""Takes incidents (and refusals) from the bus, has one notifier tell them, and notes deliveries.

Each notifier has a worker of its own, with its own position in the topics and its own thread, so
that a slow or absent one holds up nobody else. Within it the notices of an incident keep their
order: one that can't be told now is tried again with growing pauses, later ones of that incident
wait behind it, those of others don't; what can't be told within `give_up_s` is noted as failed.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from bus.messages import Delivery, Outcome
from bus.topics import COMMANDS, DELIVERIES, INCIDENTS
from bus.transport import Envelope, Sink, Source
from notifiers.base import REFUSED, Notice, Notifier, notice_of
from runtime import logs
from runtime.clock import Clock, Instant
from runtime.errors import FarsideError, Unavailable
from runtime.metrics import Metrics
from runtime.words import duration_text, plain_text

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long telling is tried, what is too old to tell, and how much is kept waiting.

    `age_limit_s` counts from the change of state by this machine's clock. `refusals_max` is per
    incident: a reason with a number in it may change for ever.
    """

    age_limit_s: Positive = 3600.0
    give_up_s: Positive = 600.0
    pause_s: Positive = 1.0
    pause_s_max: Positive = 60.0
    poll_s: Positive = 0.5
    poll_records_max: Count = 256
    waiting_max: Count = 1_000
    incidents_max: Count = 10_000
    refusals_max: Count = 20
    deliveries_max: Count = 10_000


@dataclass
class Waiting:
    """A notice on its way."""

    notice: Notice
    since: Instant
    due_s: float = 0.0
    tries: int = 0


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

    `past` (optional) reads DELIVERIES from its earliest record once, at the start, to learn what
    was told before.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        source: Source,
        sink: Sink,
        clock: Clock,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
        past: Source | None = None,
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
        self._beat = beat
        self._waiting: dict[str, deque[Waiting]] = {}
        self._told: OrderedDict[str, Told] = OrderedDict()
        self._outbox: deque[Delivery] = deque()
        self._log = logs.get(worker=self.name)
        self._outcomes = (metrics or Metrics()).counter(
            "farside_deliveries_total",
            "Notices told or not, by notifier and outcome",
            ("notifier", "outcome"),
        )

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then tell what is already there once more and close."""
        self.start()
        while not stop.is_set():
            self._beat()
            self.turn(self._poll(stop, self._settings.poll_s), self._clock.now())
        self.turn(self._poll(stop, 0.0), self._clock.now())
        self.stop()

    def start(self) -> None:
        """Learn what was told before."""
        if self._past is not None:
            while envelopes := self._past.poll(self._settings.poll_records_max, 0.0):
                self.learn(envelopes)

    def stop(self) -> None:
        """Note as failed what could not be told until now, and close the notifier."""
        now = self._clock.now()
        for queue in self._waiting.values():
            for waiting in queue:
                self._conclude(waiting.notice, "failed", "stopped before it could be told", now)
        self._waiting.clear()
        self._send()
        self._notifier.close()

    def learn(self, envelopes: Iterable[Envelope]) -> None:
        """Take from the deliveries topic what this notifier told."""
        for envelope in envelopes:
            delivery = envelope.message
            if (
                isinstance(delivery, Delivery)
                and delivery.notifier == self._notifier.name
                and delivery.outcome == "done"
            ):
                self._note(delivery.incident, delivery.state, delivery.time)

    def turn(self, envelopes: Iterable[Envelope], now: Instant) -> None:
        """Tell what is new, try again what was put off, hand over the deliveries."""
        for envelope in envelopes:
            notice = notice_of(envelope.message)
            if notice is not None and envelope.topic in {INCIDENTS, COMMANDS}:
                self._admit(notice, now)
        for incident in list(self._waiting):
            self._work_off(incident, now)
        self._send()

    def _poll(self, stop: threading.Event, timeout_s: float) -> list[Envelope]:
        try:
            return self._source.poll(self._settings.poll_records_max, timeout_s)
        except Unavailable as error:
            self._log.warning("incidents can't be read now", reason=str(error))
            self._clock.wait(stop, error.retry_after_s)
            return []

    def _admit(self, notice: Notice, now: Instant) -> None:
        if not self._notifier.wants(notice) or not self._is_new(notice):
            return
        age_s = now.since(notice.time)
        if age_s > self._settings.age_limit_s:
            self._conclude(notice, "expired", f"{duration_text(age_s)} old, too old to tell", now)
            return
        if sum(map(len, self._waiting.values())) >= self._settings.waiting_max:
            limit = self._settings.waiting_max
            self._conclude(notice, "failed", f"{limit} notices are waiting already", now)
            return
        self._waiting.setdefault(notice.incident, deque()).append(Waiting(notice, now))

    def _is_new(self, notice: Notice) -> bool:
        """Tell whether a notice says what was neither told yet nor waits to be told.

        A state that an incident comes back to is told again; a record that the decider published
        once more after a crash is not, because it is not newer than what was told.
        """
        before = self._told.get(notice.incident, Told())
        told = Told(set(before.states), before.last, before.time)
        for waiting in self._waiting.get(notice.incident, ()):
            told.add(waiting.notice.state, waiting.notice.time)
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

    def _work_off(self, incident: str, now: Instant) -> None:
        """Tell an incident's notices in order, until one must be tried again later."""
        queue = self._waiting[incident]
        while queue:
            self._beat()
            waiting = queue[0]
            if self._clock.monotonic() < waiting.due_s or not self._tried(waiting, now):
                return
            queue.popleft()
        del self._waiting[incident]

    def _tried(self, waiting: Waiting, now: Instant) -> bool:
        """Try to tell a notice; return whether that is settled, one way or the other."""
        try:
            self._notifier.tell(waiting.notice, now)
        except Unavailable as error:
            if now.since(waiting.since) < self._settings.give_up_s:
                self._put_off(waiting, error)
                return False
            self._conclude(waiting.notice, "failed", str(error), now)
        except FarsideError as error:
            self._conclude(waiting.notice, "refused", str(error), now)
        else:
            self._note(waiting.notice.incident, waiting.notice.state, waiting.notice.time)
            self._conclude(waiting.notice, "done", "", now)
        return True

    def _put_off(self, waiting: Waiting, error: Unavailable) -> None:
        pause_s = self._settings.pause_s * 2.0 ** min(waiting.tries, 20)
        pause_s = min(max(pause_s, error.retry_after_s), self._settings.pause_s_max)
        waiting.tries += 1
        waiting.due_s = self._clock.monotonic() + pause_s

    def _conclude(self, notice: Notice, outcome: Outcome, detail: str, now: Instant) -> None:
        if outcome in {"failed", "refused"}:
            self._log.warning(
                "not told", incident=notice.incident, state=notice.state, reason=detail
            )
        self._outcomes.labels(self._notifier.name, outcome).inc()
        while len(self._outbox) >= self._settings.deliveries_max:
            self._outbox.popleft()
        self._outbox.append(
            Delivery(
                incident=notice.incident,
                notifier=self._notifier.name,
                outcome=outcome,
                time=now,
                state=notice.state,
                detail=plain_text(detail, 300),
            )
        )

    def _send(self) -> None:
        """Hand the deliveries over; what the bus doesn't take now waits for the next turn."""
        sent: list[Delivery] = []
        try:
            while self._outbox:
                self._sink.send(DELIVERIES, self._outbox[0].incident, self._outbox[0])
                sent.append(self._outbox.popleft())
            if sent:
                self._sink.flush(5.0)
        except Unavailable as error:
            self._outbox.extendleft(reversed(sent))
            self._log.warning("deliveries wait", count=len(self._outbox), reason=str(error))
