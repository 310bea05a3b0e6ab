"""Nodes that are not there: they tell of themselves over the product's own writer.

And what a stranger sees: the records of a topic, read with the plain client.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self, TypeVar

from kafka import KafkaConsumer, TopicPartition

from bus.codec import decode
from bus.kafka import KafkaBus
from bus.messages import LogLine, SampleBatch
from bus.samples import Samples
from bus.topics import TELEMETRY
from bus.transport import Receipt, Sink
from runtime.clock import Instant, SystemClock
from runtime.errors import Unavailable
from runtime.wait import wait_until

CLUSTER = "test"
OFF_BUS = {
    "kind": "gpu_off_bus",
    "code": "79",
    "severity": "fatal",
    "meaning": "GPU has fallen off the bus",
}
WAIT_S = 60.0
T = TypeVar("T")


def batch(node: str, sequence: int, time: Instant, *, start: str = "s1") -> SampleBatch:
    """Return a batch of a healthy node."""
    values = [
        ("memory_total_bytes", "", 64e9),
        ("memory_available_bytes", "", 48e9 + 1e6 * (sequence % 7)),
    ]
    return SampleBatch(
        cluster=CLUSTER,
        node=node,
        boot=f"boot-{node}",
        start=start,
        sequence=sequence,
        time=time,
        samples=Samples.of(values),
    )


def off_bus(node: str, sequence: int, time: Instant, *, gpu: str, start: str = "s1") -> LogLine:
    """Return the kernel's line on a GPU that fell off the bus."""
    return LogLine(
        cluster=CLUSTER,
        node=node,
        boot=f"boot-{node}",
        start=start,
        sequence=sequence,
        time=time,
        source="kernel",
        text=f"NVRM: Xid (PCI:{gpu}): 79, GPU has fallen off the bus.",
        fields=OFF_BUS | {"device": gpu},
    )


def insist(ask: Callable[[], T], timeout_s: float = WAIT_S, what: str = "the bus takes it") -> T:
    """Ask until the bus is there, and return the answer."""
    answer: list[T] = []

    def asked() -> bool:
        try:
            answer.append(ask())
        except Unavailable:
            return False
        return True

    wait_until(asked, timeout_s, what=what)
    return answer[0]


class Said(NamedTuple):
    """A record that the bus's writer took, and what became of it."""

    message: SampleBatch | LogLine
    receipt: Receipt


class Nodes:
    """Some nodes of one cell that say something once a period, from a thread of their own.

    As an agent does, a node keeps what the bus doesn't take, and sends it first, in order.
    """

    def __init__(
        self, bus: KafkaBus, names: Iterable[str], *, period_s: float = 1.0, partition: int = 0
    ) -> None:
        """Begin to talk in the cell of this partition; the bus is closed with the nodes."""
        self._bus = bus
        self.said: list[Said] = []
        self._sink: Sink = bus.sink()
        self._clock = SystemClock()
        self._period_s = period_s
        self._partition = partition
        self._talking = dict.fromkeys(names, 0)
        self._waiting: deque[SampleBatch | LogLine] = deque()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def fail(self, node: str, gpu: str) -> None:
        """Let a node's kernel say that this GPU fell off the bus."""
        with self._lock:
            sequence = self._next(node)
            self._waiting.append(off_bus(node, sequence, self._clock.now(), gpu=gpu))
            self._send()

    def hush(self, *names: str) -> None:
        """Let these nodes (none given: all) fall silent."""
        with self._lock:
            for name in names or list(self._talking):
                del self._talking[name]

    def finish(self, timeout_s: float = WAIT_S) -> list[SampleBatch | LogLine]:
        """Say no more; wait until all that was said is acknowledged, and return it in order."""
        self._stop.set()
        self._thread.join(10.0)
        wait_until(self._is_settled, timeout_s, what="all that nodes said is acknowledged")
        return self.acknowledged()

    def acknowledged(self) -> list[SampleBatch | LogLine]:
        """Return what is acknowledged now, in the order of sending."""
        return [one.message for one in list(self.said) if one.receipt.taken()]

    def close(self) -> None:
        """Say no more."""
        self._stop.set()
        self._thread.join(10.0)
        self._sink.close(5.0)
        self._bus.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_settled(self) -> bool:
        with self._lock:
            self._send()
            return not self._waiting and all(one.receipt.taken() for one in self.said)

    def _run(self) -> None:
        while not self._clock.wait(self._stop, self._period_s):
            with self._lock:
                now = self._clock.now()
                for node in self._talking:
                    self._waiting.append(batch(node, self._next(node), now))
                self._send()

    def _next(self, node: str) -> int:
        self._talking[node] += 1
        return self._talking[node]

    def _send(self) -> None:
        while self._waiting:
            message = self._waiting[0]
            try:
                receipt = self._sink.send(TELEMETRY, message.node, message, self._partition)
            except Unavailable:
                return
            self._waiting.popleft()
            self.said.append(Said(message, receipt))


def plain(bootstrap: list[str], topic: str, partition: int = 0) -> Iterator[Any]:
    """Give all records that a partition holds now, as the plain client has them."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False,
                             reconnect_backoff_max_ms=1000)  # fmt: skip
    try:
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = insist(lambda: consumer.end_offsets([place])[place])
        while consumer.position(place) < end:
            for records in consumer.poll(timeout_ms=500).values():
                yield from records
    finally:
        consumer.close()


def newest(bootstrap: list[str]) -> Instant:
    """Return when the log took the newest record of telemetry."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        place = TopicPartition(TELEMETRY, 0)
        consumer.assign([place])
        consumer.seek(place, consumer.end_offsets([place])[place] - 1)
        found = wait_until(lambda: consumer.poll(timeout_ms=500).get(place), WAIT_S)
        return Instant(found[-1].timestamp * 1_000_000)
    finally:
        consumer.close()


def told(bootstrap: list[str]) -> list[tuple[str, str, int]]:
    """Return (node, start, sequence) of every record of nodes, in the order of the log."""
    messages = (decode(record.value) for record in plain(bootstrap, TELEMETRY))
    return [
        (one.node, one.start, one.sequence)
        for one in messages
        if isinstance(one, SampleBatch | LogLine)
    ]


def by_node(records: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], list[int]]:
    """Return the numbers of each start of each node, in their order."""
    found: dict[tuple[str, str], list[int]] = {}
    for node, start, sequence in records:
        found.setdefault((node, start), []).append(sequence)
    return found


def names_of(messages: Iterable[SampleBatch | LogLine]) -> list[tuple[str, str, int]]:
    """Return (node, start, sequence) of messages."""
    return [(one.node, one.start, one.sequence) for one in messages]
