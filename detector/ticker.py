"""Ticks: what makes a cell's time move though its nodes are silent."""

import msgspec

from bus.messages import Tick, Watermark
from bus.topics import TELEMETRY
from bus.transport import Receipt, Sink
from detector.outputs import Output
from runtime.clock import NANOSECONDS, Clock, Instant


class Ticker:
    """Writes a tick into a cell's telemetry once a second, so that time moves in silence too.

    At most one tick is on its way: where the bus is stuck, they don't pile up before what matters.
    """

    def __init__(self, cell: str, partition: int, sink: Sink, clock: Clock) -> None:
        """Tick for one cell."""
        self._cell = cell
        self._partition = partition
        self._sink = sink
        self._clock = clock
        self._second = 0
        self._last: Receipt | None = None

    def tick(self) -> float:
        """Write a tick when a second has begun; return the seconds until the next one.

        Errors: `Unavailable` and `Rejected`, of this tick or of the last one; it counts as written,
        since one that is late tells of no moment that the next one does not.
        """
        now = self._clock.now()
        second = int(now) // NANOSECONDS
        if second > self._second:
            self._second = second
            last, self._last = self._last, None
            if last is not None and not last.taken():
                self._last = last
            else:
                tick = Tick(cell=self._cell, time=now)
                self._last = self._sink.send(TELEMETRY, self._cell, tick, self._partition)
        return ((second + 1) * NANOSECONDS - int(now)) / NANOSECONDS

    def stamp(self, output: Output) -> Output:
        """Stamp a watermark with the time of the log's head, which only the edge knows."""
        if isinstance(output.message, Watermark):
            head = Instant(max(self._clock.now(), output.message.head_time))
            message = msgspec.structs.replace(output.message, head_time=head)
            return output._replace(message=message)
        return output
