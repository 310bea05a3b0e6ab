"""Records in memory, in the order of their numbers; telemetry goes before log lines when it must.

The caller guards it with a lock; nothing here takes longer than the records are many.
"""

from collections import deque
from typing import Literal, NamedTuple

from bus.messages import LogLine, SampleBatch
from bus.samples import Layout

Record = SampleBatch | LogLine
Kind = Literal["batch", "line"]
KINDS: tuple[Kind, Kind] = ("batch", "line")  # in the order in which they are given up
_OVERHEAD_BYTES = 400  # of one record as Python keeps it, about
_TRAVEL_BYTES = 200  # of one record's other fields on the wire, about


class Kept:
    """A record that the bus has not acknowledged yet.

    `number` orders all records of a node, over its agent's starts; `since_s` is when it came (the
    monotonic clock); `place` is where on disk it lies, None while it is in memory alone.
    """

    __slots__ = ("bytes", "number", "place", "record", "since_s")

    def __init__(self, number: int, record: Record, since_s: float, size: int) -> None:
        """Be in memory alone."""
        self.number = number
        self.record = record
        self.since_s = since_s
        self.bytes = size
        self.place: Place | None = None

    @property
    def kind(self) -> Kind:
        """Return what is counted under."""
        return kind_of(self.record)

    @property
    def travel_bytes(self) -> int:
        """Return about how many bytes the bus will carry."""
        record = self.record
        if isinstance(record, LogLine):
            return _TRAVEL_BYTES + len(record.text) + _words(record)
        samples = record.samples
        return _TRAVEL_BYTES + len(samples.layout.names) + len(samples.values)


class Place(NamedTuple):
    """Where on disk a record lies: the segment's kind and serial number, and the offset in it."""

    kind: Kind
    serial: int
    offset: int


class Waiting:
    """The records that were not handed to the bus and are in memory alone."""

    def __init__(self) -> None:
        """Begin empty."""
        self._queues: dict[Kind, deque[Kept]] = {kind: deque() for kind in KINDS}
        self._records = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._records

    def append(self, kept: Kept) -> None:
        """Take a record, newer than all others."""
        self._queues[kept.kind].append(kept)
        self._records += 1
        self.bytes += kept.bytes

    def put_back(self, kept: list[Kept]) -> None:
        """Take records again, all of them older than the others."""
        for one in reversed(kept):
            self._queues[one.kind].appendleft(one)
            self._records += 1
            self.bytes += one.bytes

    def head(self) -> Kept | None:
        """Return the oldest record, None where there is none."""
        heads = [queue[0] for queue in self._queues.values() if queue]
        return min(heads, key=lambda kept: kept.number, default=None)

    def pop(self) -> Kept | None:
        """Take the oldest record out."""
        head = self.head()
        return None if head is None else self._popped(self._queues[head.kind])

    def drain(self) -> list[Kept]:
        """Take all records out, the oldest first."""
        both = [kept for queue in self._queues.values() for kept in queue]
        for queue in self._queues.values():
            queue.clear()
        self._records = self.bytes = 0
        return sorted(both, key=lambda kept: kept.number)

    def give_up(self) -> Kept | None:
        """Take out what is worth least: the oldest telemetry, log lines where there is none."""
        for queue in self._queues.values():
            if queue:
                return self._popped(queue)
        return None

    def _popped(self, queue: deque[Kept]) -> Kept:
        kept = queue.popleft()
        self._records -= 1
        self.bytes -= kept.bytes
        return kept


class Sizes:
    """How much memory each record takes; the names that batches share are counted once."""

    def __init__(self) -> None:
        """Have seen no names."""
        self._layout: Layout | None = None

    def of(self, record: Record) -> int:
        """Return about how many bytes of memory one more record takes."""
        if isinstance(record, LogLine):
            return _OVERHEAD_BYTES + 2 * (len(record.text) + _words(record))
        layout, size = record.samples.layout, len(record.samples.values)
        if layout is not self._layout:
            self._layout = layout
            size += 3 * len(layout.names)
        return _OVERHEAD_BYTES + size


def kind_of(record: Record) -> Kind:
    """Return what a record is counted under."""
    return "batch" if isinstance(record, SampleBatch) else "line"


def _words(line: LogLine) -> int:
    return sum(len(name) + len(value) for name, value in line.fields.items())
