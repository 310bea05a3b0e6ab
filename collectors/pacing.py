"""When one node of many may send, so that all of them together do not overrun a bus that is back.

A plain function of moments: no clock, no thread, no chance but what follows from the node's name.
"""

from typing import Annotated, Literal

import msgspec

from runtime.retries import lot

Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]
# A shorter absence is none: what it leaves behind is no more than one poll of a reader.
_BLIP_S = 5.0
_DOUBLINGS_MAX = 30


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agent.sending]`.

    in_flight_records_max, in_flight_bytes_max: how much is on its way without an acknowledgement at
    most; readers tell a repeat from what was overtaken within 64 records. stall_s: after so long
    without an acknowledgement the bus counts as away.

    pause_s: the pause after the first failure; it doubles up to pause_s_max, and each node takes a
    part of it by lot. When the bus is back after longer than a blip (5 s), a node begins at a
    moment of its own within spread_s (or as long as the bus was away, where that is shorter), and
    sends what waits at catch_up_records_s a second beside what comes in meanwhile.
    """

    in_flight_records_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64
    in_flight_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 30)] = 4 << 20
    stall_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 5.0
    pause_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 0.5
    pause_s_max: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 15.0
    catch_up_records_s: Annotated[float, msgspec.Meta(ge=1, le=100_000)] = 20.0
    spread_s: Seconds = 30.0


class Pace:
    """How many records a node may hand over now, and when it may next."""

    def __init__(
        self, settings: Settings, node: str, start: str, now_s: float, waited_s: float = 0.0
    ) -> None:
        """Begin; `waited_s` is how long the oldest record of an earlier start has waited."""
        self._settings = settings
        self._node = node
        self._start = start
        self.state: Literal["flowing", "away", "catching up"] = "flowing"
        self.away_since_s = now_s
        self._failures = 0
        self._next_s = now_s
        self._allowance = 0.0
        self._counted_s = now_s
        if waited_s > 0:
            self._catch_up(now_s, waited_s)

    def room(self, now_s: float, on_the_way: int) -> int:
        """Return how many records may be handed over now, when so many are on their way."""
        free = self._settings.in_flight_records_max - on_the_way
        if self.state == "flowing":
            return free
        if now_s < self._next_s:
            return 0
        if self.state == "away":  # one record asks whether the bus is back
            return 0 if on_the_way else 1
        self._count(now_s)
        return min(free, int(self._allowance))

    def due_s(self, now_s: float) -> float:
        """Return in how many seconds there may be room again."""
        if self.state == "flowing":
            return 0.0
        if self.state == "away" or now_s < self._next_s:
            return max(self._next_s - now_s, 0.0)
        self._count(now_s)
        return max(1.0 - self._allowance, 0.0) / self._settings.catch_up_records_s

    def came(self, now_s: float, records: int) -> None:
        """Note records that came in: while catching up they are sent on top."""
        if self.state == "catching up" and now_s >= self._next_s:
            self._allowance += records

    def handed_over(self) -> None:
        """Note that a record was handed over."""
        self._allowance -= self.state == "catching up"

    def failed(self, now_s: float, retry_after_s: float) -> None:
        """Note that the bus can't take records now and asks for so much patience."""
        self.stalled(now_s)
        longest_s = min(
            self._settings.pause_s * 2 ** min(self._failures, _DOUBLINGS_MAX),
            self._settings.pause_s_max,
        )
        part = lot(self._node, self._start, self._failures)
        self._failures += 1
        self._next_s = now_s + max(retry_after_s, 0.0) + part * longest_s

    def stalled(self, since_s: float) -> None:
        """Note that the bus has acknowledged nothing since then."""
        if self.state != "away":
            self.state = "away"
            self.away_since_s = since_s
            self._next_s = since_s

    def acknowledged(self, now_s: float) -> None:
        """Note that the bus took a record."""
        self._failures = 0
        if self.state == "away":
            self._catch_up(now_s, now_s - self.away_since_s)

    def emptied(self) -> None:
        """Note that nothing waits any more."""
        if self.state == "catching up":
            self.state = "flowing"

    def hurry(self, now_s: float) -> None:
        """Let go of all patience: the agent ends, and what is not sent now is lost."""
        self.state = "flowing"
        self._next_s = now_s

    def _catch_up(self, now_s: float, away_s: float) -> None:
        self.state = "catching up"
        spread_s = min(self._settings.spread_s, max(away_s - _BLIP_S, 0.0))
        self._next_s = now_s + lot(self._node, "spread") * spread_s
        self._allowance = self._settings.catch_up_records_s if not spread_s else 1.0
        self._counted_s = self._next_s

    def _count(self, now_s: float) -> None:
        """Let the allowance grow with time, to a second's worth at most."""
        rate = self._settings.catch_up_records_s
        grown = self._allowance + max(now_s - self._counted_s, 0.0) * rate
        self._allowance = min(grown, max(rate, self._allowance))
        self._counted_s = max(now_s, self._counted_s)
