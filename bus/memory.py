"""The bus inside one process: a log for each partition, with offsets and appended times.

Records are kept as bytes and decoded by each reader, and old ones are dropped when a log is full,
so that later code sees what Kafka would give it.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping

from bus.codec import Codec, Malformed, encode
from bus.messages import Message, Reject, Source
from bus.transport import Envelope, Place, Start
from runtime.clock import Clock, Instant

Record = tuple[Instant, str, bytes]


class _Log:
    """One partition: the records from `first` on."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self.records: deque[Record] = deque()
        self.first = 0
        self.bytes = 0
        self.newest = Instant(0)
        self._records_max = records_max
        self._bytes_max = bytes_max

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def begin(self, start: Start) -> int:
        if isinstance(start, Instant):
            older = sum(1 for appended, _, _ in self.records if appended < start)
            return self.first + older
        return self.first if start == "earliest" else self.end

    def append(self, record: Record) -> int:
        self.records.append(record)
        self.bytes += len(record[2])
        while len(self.records) > self._records_max or self.bytes > self._bytes_max:
            self.bytes -= len(self.records.popleft()[2])
            self.first += 1
        return self.end - 1


class MemoryBus:
    """All topics of one process.

    Each partition keeps at most `records_max` records and `bytes_max` bytes; a reader that falls
    behind that goes on at the oldest record left and counts what it skipped.
    """

    def __init__(
        self,
        clock: Clock,
        records_max: int = 50_000,
        bytes_max: int = 32 << 20,
    ) -> None:
        """Start an empty log; its identity is the moment of its start."""
        self._clock = clock
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._logs: dict[Place, _Log] = {}
        self._more = threading.Condition()
        self.log = f"memory-{clock.now().text()}"

    def append(self, topic: str, key: str, record: bytes, partition: int = 0) -> int:
        """Take a record as bytes and return its offset; appended times never go backwards."""
        with self._more:
            log = self._of((topic, partition))
            log.newest = max(log.newest, self._clock.now())
            offset = log.append((log.newest, key, record))
            self._more.notify_all()
            return offset

    def sink(self) -> "MemorySink":
        """Return a writer."""
        return MemorySink(self)

    def source(
        self,
        places: Iterable[str | Place],
        start: Start = "earliest",
    ) -> "MemorySource":
        """Return a reader of these topics (partition 0) or (topic, partition) places."""
        wanted = [place if isinstance(place, tuple) else (place, 0) for place in places]
        with self._more:
            logs = {place: self._of(place) for place in wanted}
            positions = {place: log.begin(start) for place, log in logs.items()}
        return MemorySource(self, positions)

    def read(
        self, positions: dict[Place, int], limit: int
    ) -> tuple[list[tuple[Place, int, Record]], int]:
        """Take up to `limit` records at these positions, moving them; also return what was gone."""
        taken: list[tuple[Place, int, Record]] = []
        gone = 0
        for place, position in positions.items():
            log = self._of(place)
            at = min(max(position, log.first), log.end)
            gone += max(log.first - position, 0)
            count = min(limit - len(taken), log.end - at)
            taken.extend(
                (place, log.first + index, log.records[index])
                for index in range(at - log.first, at - log.first + count)
            )
            positions[place] = at + count
        return taken, gone

    def wait(self, positions: dict[Place, int], timeout_s: float) -> None:
        """Wait until a record is there beyond one of the positions."""
        with self._more:
            self._more.wait_for(lambda: self.pending(positions), timeout_s)

    def pending(self, positions: Mapping[Place, int]) -> bool:
        """Tell whether any of these positions lies before the end of its log."""
        return any(self._of(place).end > position for place, position in positions.items())

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the next offset that each log will give."""
        with self._more:
            return {place: self._of(place).end for place in places}

    def locked(self) -> threading.Condition:
        """Return the lock that guards all logs."""
        return self._more

    def _of(self, place: Place) -> _Log:
        log = self._logs.get(place)
        if log is None:
            log = self._logs[place] = _Log(self._records_max, self._bytes_max)
        return log


class Taken:
    """The receipt of a bus that takes everything at once."""

    def taken(self) -> bool:
        """Tell that it has."""
        return True


_TAKEN = Taken()


class MemorySink:
    """Writes to a `MemoryBus`; a record is acknowledged as soon as `send` returns."""

    def __init__(self, bus: MemoryBus) -> None:
        """Write to `bus`."""
        self._bus = bus

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Taken:
        """Append the message."""
        self._bus.append(topic, key, encode(message), partition)
        return _TAKEN

    def flush(self, timeout_s: float) -> None:
        """Return at once: nothing is ever on its way."""

    def close(self, timeout_s: float) -> None:
        """Return at once: there is nothing to let go of."""


class MemorySource:
    """Reads from a `MemoryBus`; one reader belongs to one thread."""

    def __init__(self, bus: MemoryBus, positions: dict[Place, int]) -> None:
        """Start at these next offsets."""
        self._bus = bus
        self._positions = positions
        self._skipped = 0
        self._codec = Codec()

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
        """Return up to `limit` records, waiting for the first at most `timeout_s` seconds."""
        self._bus.wait(self._positions, timeout_s)
        return self._read(self._positions, limit)

    def reread(self, place: Place, first: int, end: int) -> list[Envelope]:
        """Return the records from offset `first` up to `end` that still exist."""
        at = {place: first}
        taken = [one for one in self._read(at, max(end - first, 0)) if one.offset < end]
        self._positions[place] = end
        return taken

    def _read(self, positions: dict[Place, int], limit: int) -> list[Envelope]:
        with self._bus.locked():
            taken, gone = self._bus.read(positions, limit)
        self._skipped += gone
        return [
            opened(self._codec, place, offset, appended, key, record)
            for place, offset, (appended, key, record) in taken
        ]

    def seek(self, positions: Mapping[Place, int]) -> None:
        """Continue at these next offsets."""
        self._positions.update(
            {place: offset for place, offset in positions.items() if place in self._positions},
        )

    def positions(self) -> dict[Place, int]:
        """Return the next offset of each partition."""
        return dict(self._positions)

    def lag(self) -> dict[Place, int]:
        """Return how many records each partition holds that were not read yet."""
        ends = self._bus.ends(self._positions)
        return {place: ends[place] - offset for place, offset in self._positions.items()}

    def skipped(self) -> int:
        """Return how many records were gone before they could be read."""
        return self._skipped

    def log(self) -> str:
        """Return the identity of the log."""
        return self._bus.log

    def close(self) -> None:
        """Return at once: there is nothing to give back."""


def opened(
    codec: Codec,
    place: Place,
    offset: int,
    appended: Instant,
    key: str,
    record: bytes,
) -> Envelope:
    """Decode a record; what can't be decoded becomes an envelope that carries a `Reject`."""
    topic, partition = place
    message: Message
    try:
        message = codec.decode(record)
    except Malformed as error:
        message = Reject(
            reason=error.reason,
            detail=error.detail[:200],
            source=Source(partition=partition, offset=offset),
            first_bytes=record[: Reject.FIRST_BYTES],
            size=len(record),
            time=appended,
            topic=topic,
        )
    return Envelope(topic, partition, offset, appended, key, message)
