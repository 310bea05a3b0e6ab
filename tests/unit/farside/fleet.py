"""A log for the tests of what people look at: the composed record of tests/unit/view, appended."""

from collections.abc import Iterable

from bus.memory import MemoryBus, MemorySink, MemorySource
from bus.messages import Message
from bus.topics import TELEMETRY
from bus.transport import Envelope, Place, Start
from runtime.clock import Instant, ManualClock
from tests.unit.view.composed import CELL, NODE, START, record

__all__ = ["CELL", "NODE", "START", "Log", "record"]


class Log:
    """A bus with records of chosen moments; the clock stands where the last one was appended.

    A reader of telemetry as a whole reads `partitions` of it, as Kafka's does.
    """

    def __init__(self, envelopes: Iterable[Envelope] = (), partitions: int = 1) -> None:
        self.clock = ManualClock(START)
        self.bus = MemoryBus(self.clock)
        self._partitions = partitions
        for one in envelopes:
            self.add(one.appended, one.topic, one.key, one.message, one.partition)

    def add(
        self, appended: Instant, topic: str, key: str, message: Message, partition: int = 0
    ) -> None:
        self.clock.advance(appended.since(self.clock.now()))
        self.bus.sink().send(topic, key, message, partition)

    def sink(self) -> MemorySink:
        raise NotImplementedError("people's tools only read")

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> MemorySource:
        wanted: list[str | Place] = []
        for one in places:
            if one == TELEMETRY:
                wanted += [(TELEMETRY, number) for number in range(self._partitions)]
            else:
                wanted.append(one)
        return self.bus.source(wanted, start)
