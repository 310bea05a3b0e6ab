"""Hands a node's records to the bus: in order, bounded, each until it is acknowledged.

One step: see what became of what is on its way → hand over what there is room for → write to disk
what has waited too long. A record leaves the spool only when the bus has acknowledged it (or
refused it for good). What was given up is sent again, before anything newer and not before all that
is on its way is answered, so that nothing overtakes it again.
"""

from collections import Counter, deque
from typing import NamedTuple

from bus.topics import TELEMETRY
from bus.transport import Receipt, Sink
from collectors.pacing import Pace, Settings
from collectors.spool import Kept, Spool
from runtime import logs
from runtime.clock import Clock
from runtime.errors import FarsideError, Rejected, Unavailable

_STEP_RECORDS_MAX = 500
_LOOK_S = 0.5  # how often a step is taken though nothing asks for one
_SHORTEST_S = 0.001  # between two steps: rounding must not make a step that moves nothing
_ANSWER_S = 0.05  # how often it is looked for an answer that something waits for


class Sent(NamedTuple):
    """A record on its way."""

    kept: Kept
    receipt: Receipt
    since_s: float


class Sending:
    """The records of one node on their way to the bus; `step` belongs to one thread at a time.

    `counts` holds what was sent (by kind), refused, given up, and how often a bus that was away
    was asked.
    """

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        sink: Sink,
        clock: Clock,
        *,
        node: str,
        start: str,
        partition: int = 0,
    ) -> None:
        """Begin; what an earlier start left in the spool is sent first."""
        self._settings = settings
        self._spool = spool
        self._sink = sink
        self._clock = clock
        self._node = node
        self._partition = partition
        oldest = spool.oldest()
        waited_s = 0.0 if oldest is None else max(clock.now().since(oldest), _SHORTEST_S)
        self._pace = Pace(settings, node, start, clock.monotonic(), waited_s)
        self._flight: deque[Sent] = deque()
        self._flight_bytes = 0
        self._answer_first = False
        self._told_away = False
        self._why = ""
        self._seen = spool.newest
        self.counts: Counter[str] = Counter()
        self._log = logs.get(worker="agent")

    @property
    def away(self) -> bool:
        """Tell whether the bus takes no records now."""
        return self._pace.state == "away"

    def step(self) -> float:
        """Do what can be done now; return in how many seconds there is more to do."""
        now_s = self._clock.monotonic()
        newest = self._spool.newest
        self._pace.came(now_s, newest - self._seen)
        self._seen = newest
        self._settle(now_s)
        self._hand_over(now_s)
        if not self._spool.waits:
            self._pace.emptied()
        self._tell(now_s)
        self._spool.keep(now_s)
        return self._due_s(now_s)

    def close(self, timeout_s: float) -> int:
        """Send or save what is left within about `timeout_s`; return how many records are lost.

        What the bus has not acknowledged by then is on disk; where there is none, all is tried
        once more.
        """
        end_s = self._clock.monotonic() + timeout_s / 2
        if not self._spool.durable:
            self._pace.hurry(self._clock.monotonic())
        left = -1
        while self._spool.waits and left != len(self._spool) and self._clock.monotonic() < end_s:
            left = len(self._spool)
            self._hand_over(self._clock.monotonic())
            self._flush(end_s)
        self._flush(end_s)
        self._spool.save(self._clock.monotonic())
        self._sink.close(timeout_s / 2)
        self._settle(self._clock.monotonic())
        return self._spool.close()

    def _flush(self, end_s: float) -> None:
        try:
            self._sink.flush(max(end_s - self._clock.monotonic(), 0.0))
        except FarsideError as error:
            self._why = str(error)
        self._settle(self._clock.monotonic())

    # --- what is on its way --------------------------------------------------------------------

    def _settle(self, now_s: float) -> None:
        """Take out of the flight what is answered; the bus answers in order."""
        while self._flight:
            sent = self._flight[0]
            try:
                if not sent.receipt.taken():
                    if now_s - sent.since_s >= self._settings.stall_s:
                        self._pace.stalled(sent.since_s)
                        self._why = f"no answer for {self._settings.stall_s:g} s"
                    break
            except Rejected as error:
                self._refused(sent.kept, error)
            except Unavailable as error:
                self._answer_first = True
                self.counts["given up"] += 1
                self._spool.give_back(sent.kept)
                self._failed(now_s, error)
            else:
                self.counts[sent.kept.kind] += 1
                self._spool.done(sent.kept)
                self._pace.acknowledged(now_s)
            self._flight.popleft()
            self._flight_bytes -= sent.kept.travel_bytes
        if not self._flight:
            self._answer_first = False

    def _hand_over(self, now_s: float) -> None:
        """Send while there is room, the oldest first."""
        for _ in range(_STEP_RECORDS_MAX):
            if self._answer_first or self._pace.room(now_s, len(self._flight)) < 1:
                return
            kept = self._spool.take()
            if kept is None:
                return
            limit = self._settings.in_flight_bytes_max
            if self._flight and self._flight_bytes + kept.travel_bytes > limit:
                self._spool.give_back(kept)
                return
            if not self._send(kept, now_s):
                return
            self._settle(now_s)

    def _send(self, kept: Kept, now_s: float) -> bool:
        """Hand one record over; tell whether the bus is there."""
        self.counts["asked"] += self.away
        try:
            receipt = self._sink.send(TELEMETRY, self._node, kept.record, self._partition)
        except Unavailable as error:
            self._spool.give_back(kept)
            self._failed(now_s, error)
            return False
        except Rejected as error:
            self._refused(kept, error)
            return True
        except BaseException:
            self._spool.give_back(kept)  # a bug in a client must not cost a record
            raise
        self._flight.append(Sent(kept, receipt, now_s))
        self._flight_bytes += kept.travel_bytes
        self._pace.handed_over()
        return True

    def _refused(self, kept: Kept, error: Rejected) -> None:
        self.counts["refused"] += 1
        self._spool.done(kept)
        self._log.warning("the bus refused a record", why=str(error))

    def _failed(self, now_s: float, error: Unavailable) -> None:
        self._pace.failed(now_s, error.retry_after_s)
        self._why = str(error)

    def _tell(self, now_s: float) -> None:
        """Say once that the bus is away, and once that it is back."""
        if self.away and not self._told_away:
            self._told_away = True
            self._log.warning("the bus is away; records are kept", why=self._why)
        elif not self.away and self._told_away:
            self._told_away = False
            away_s = round(now_s - self._pace.away_since_s, 1)
            self._log.info("the bus takes records again", away_s=away_s, waiting=len(self._spool))

    def _due_s(self, now_s: float) -> float:
        times = [_LOOK_S, self._spool.due_s(now_s)]
        if self._flight and (self._spool.waits or self._pace.state != "flowing"):
            times.append(_ANSWER_S)
        elif self._spool.waits:
            times.append(self._pace.due_s(now_s))
        return max(min(times), _SHORTEST_S)
