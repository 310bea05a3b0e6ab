"""A bus that goes away: whose reads fail or bring nothing, whose writes are lost or never answered.

What it keeps, it keeps as the bus of one process does; only the way to it is broken.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from bus.memory import MemoryBus, MemorySource
from bus.messages import Message
from bus.transport import Envelope, Place, Start
from runtime.clock import Clock
from runtime.errors import FarsideError, Rejected, Unavailable

# takes: acknowledged at once. silent: no answer until `answer`. loses: given up, not written.
# deaf: written, but the acknowledgement is lost.
Writing = Literal["takes", "away", "silent", "loses", "deaf", "refuses"]


class UnsteadyBus:
    """A memory bus behind a line that can be cut."""

    def __init__(self, clock: Clock) -> None:
        self.bus = MemoryBus(clock)
        self.reads = True
        self.empty_polls = 0  # so many polls bring nothing though there are records
        self.writes: Writing = "takes"
        self.sent: list[UnsteadyReceipt] = []

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> "UnsteadySource":
        return UnsteadySource(self, self.bus.source(places, start))

    def sink(self) -> "UnsteadySink":
        return UnsteadySink(self)

    def answer(self) -> None:
        """Take what is on its way."""
        for receipt in self.sent:
            receipt.arrive()

    def messages(self, topic: str) -> list[Message]:
        """Return what stands on a topic."""
        return [one.message for one in self.bus.source([topic]).poll(10_000, 0.0)]


class UnsteadyReceipt:
    """What became of one record."""

    def __init__(self, bus: MemoryBus, record: tuple[str, str, Message, int]) -> None:
        self._bus = bus
        self._record = record
        self._there = False
        self.error: FarsideError | None = None

    def arrive(self) -> None:
        if self.error is None and not self._there:
            self._there = True
            self._bus.sink().send(*self._record)

    def taken(self) -> bool:
        if self.error is not None:
            raise self.error
        return self._there


class UnsteadySink:
    """Writes to an unsteady bus."""

    def __init__(self, bus: UnsteadyBus) -> None:
        self._bus = bus

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> UnsteadyReceipt:
        writes = self._bus.writes
        if writes == "away":
            raise Unavailable("the bus is away")
        receipt = UnsteadyReceipt(self._bus.bus, (topic, key, message, partition))
        self._bus.sent.append(receipt)
        if writes in {"takes", "deaf"}:
            receipt.arrive()
        if writes in {"loses", "deaf"}:
            receipt.error = Unavailable("given up")
        if writes == "refuses":
            receipt.error = Rejected("too large")
        return receipt

    def flush(self, timeout_s: float) -> None:  # noqa: ARG002  # the protocol's
        for receipt in self._bus.sent:
            if not receipt.taken():
                raise Unavailable("not acknowledged yet")

    def close(self, timeout_s: float) -> None:
        pass


class UnsteadySource:
    """Reads from an unsteady bus."""

    def __init__(self, bus: UnsteadyBus, source: MemorySource) -> None:
        self._bus = bus
        self._source = source
        self.closed = False

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:  # noqa: ARG002  # the protocol's
        self._check()
        if self._bus.empty_polls:
            self._bus.empty_polls -= 1
            return []
        return self._source.poll(limit, 0.0)

    def reread(self, place: Place, first: int, end: int) -> list[Envelope]:
        self._check()
        return self._source.reread(place, first, end)

    def seek(self, positions: Mapping[Place, int]) -> None:
        self._source.seek(positions)

    def positions(self) -> dict[Place, int]:
        return self._source.positions()

    def lag(self) -> dict[Place, int]:
        self._check()
        return self._source.lag()

    def skipped(self) -> int:
        return self._source.skipped()

    def log(self) -> str:
        return self._source.log()

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if not self._bus.reads:
            raise Unavailable("the bus is away")
