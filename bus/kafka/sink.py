"""Writes to Kafka: idempotent, acknowledged by all replicas in sync, bounded; send does not wait.

The client is made by a thread of its own, which tries until the brokers are there, so that a node's
agent starts (and keeps what it sees) while Kafka is away. The topics to be written are looked up by
that thread too: the library would make the sender wait for them.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from kafka import KafkaProducer

from bus.cloudevents import headers
from bus.codec import MAX_RECORD_BYTES, encode
from bus.kafka.errors import KafkaError, explained, is_passing
from bus.kafka.making import made
from bus.kafka.settings import Settings
from bus.messages import Message
from runtime.clock import Clock
from runtime.errors import FarsideError, Rejected, Unavailable

log = structlog.get_logger()

_FIRST_PAUSE_S = 0.2
_HEADERS_BYTES = 4096


class KafkaReceipt:
    """What became of one record; the client's thread settles it."""

    __slots__ = ("_error", "_taken")

    def __init__(self) -> None:
        """Be on the way."""
        self._taken = False
        self._error: FarsideError | None = None

    def taken(self) -> bool:
        """Tell whether the record is acknowledged; errors as of `bus.transport.Receipt`."""
        if self._error is not None:
            raise self._error
        return self._taken

    def settle(self, error: FarsideError | None) -> None:
        """Be acknowledged, or not."""
        self._error = error
        self._taken = error is None


class KafkaSink:
    """One writer; threads may share it.

    `jitter` draws a factor for each pause between two tries, so that a thousand writers don't come
    at once.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        cluster: str,
        writer: str,
        topics: Iterable[str] = (),
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """Begin to connect; `topics` are looked up in advance, others at their first record."""
        self._settings = settings
        self._clock = clock
        self._cluster = cluster
        self._writer = writer
        self._jitter = jitter
        self._config = settings.client(f"{writer}-writes")
        self._lock = threading.Condition()
        self._producer: Any = None
        self._known: set[str] = set()
        self._wanted: set[str] = set(topics)
        self._problem = f"Kafka at {settings.address} is not connected yet"
        self._bytes = 0
        self._waiting = 0
        self._failures: list[FarsideError] = []
        self._last_error: Exception | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._connect, name="kafka-connect", daemon=True)
        self._thread.start()

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> KafkaReceipt:
        """Hand a message to the client, at once or not at all.

        Errors: `Unavailable` while not connected, while the topic is not known or the buffer is
        full; `Rejected` for a record that is too large.
        """
        record = encode(message)
        if len(record) > MAX_RECORD_BYTES:
            limit = MAX_RECORD_BYTES
            raise Rejected(f"a record of {len(record)} bytes for {topic}: at most {limit} are sent")
        producer = self._ready(topic, len(record))
        receipt = KafkaReceipt()
        with self._lock:
            self._bytes += len(record)
            self._waiting += 1
        try:
            future = producer.send(
                topic,
                value=record,
                key=key.encode(),
                partition=partition,
                headers=headers(message, record, self._cluster, self._writer),
            )
        except (KafkaError, ValueError, AssertionError) as error:
            self._settle(receipt, len(record), None)
            raise self._refused(error, topic, partition) from None
        future.add_callback(lambda _: self._settle(receipt, len(record), None))
        future.add_errback(
            lambda error: self._settle(receipt, len(record), self._meaning(error, producer))
        )
        return receipt

    def flush(self, timeout_s: float) -> None:
        """Wait for the acknowledgement of all that was sent; errors as of `bus.transport.Sink`."""
        with self._lock:
            done = self._lock.wait_for(lambda: self._waiting == 0, timeout_s)
            failures, self._failures = self._failures, []
            waiting = self._waiting
        never = [error for error in failures if isinstance(error, Rejected)]
        if never:
            raise never[0]
        if failures:
            raise failures[0]
        if not done:
            raise Unavailable(
                f"{waiting} records are not acknowledged by Kafka at {self._settings.address}"
            )

    def close(self, timeout_s: float) -> None:
        """Hand over what is on its way for at most `timeout_s` seconds, and let go."""
        self._closed.set()
        with self._lock:
            producer, self._producer = self._producer, None
            self._problem = "the writer is closed"
            self._lock.notify_all()
        if producer is not None:
            self._end(producer, timeout_s)

    def _end(self, producer: Any, timeout_s: float) -> None:  # noqa: ANN401  # no types
        try:
            producer.close(timeout=timeout_s)
        except KafkaError as error:
            log.warning("Kafka's writer did not end in order", why=str(error))

    # --- sending -------------------------------------------------------------------------------

    def _ready(self, topic: str, size: int) -> Any:  # noqa: ANN401  # the library has no types
        with self._lock:
            if self._producer is None:
                raise Unavailable(self._problem, retry_after_s=1.0)
            if self._bytes and self._bytes + size > self._settings.buffer_bytes:
                raise Unavailable(
                    f"{self._bytes} bytes wait for Kafka at {self._settings.address} "
                    f"(bus.kafka.buffer_bytes)",
                    retry_after_s=0.5,
                )
            if topic not in self._known:
                self._wanted.add(topic)
                self._lock.notify_all()
                # A topic that exists is looked up in milliseconds, so the first record is not late.
                if not self._lock.wait_for(lambda: topic in self._known, 0.1):
                    raise Unavailable(
                        f"topic {topic} is not known to Kafka at {self._settings.address}: "
                        "farside topics --create makes it",
                        retry_after_s=1.0,
                    )
            return self._producer

    def _settle(self, receipt: KafkaReceipt, size: int, problem: FarsideError | None) -> None:
        receipt.settle(problem)
        with self._lock:
            self._bytes -= size
            self._waiting -= 1
            if problem is not None and len(self._failures) < 100:
                self._failures.append(problem)
            self._lock.notify_all()

    def _meaning(self, error: Exception, producer: Any) -> FarsideError:  # noqa: ANN401  # no types
        """Return what the failure of a record means to its sender; have the client made anew.

        After a failure that no repeat cures (a record refused, a right withdrawn) the library's
        client never sends again, and gives up what it still holds with that same error object: only
        the first record that fails with it has failed by itself, the others may be sent again.
        """
        problem = explained(error, self._settings.address)
        with self._lock:
            own, self._last_error = error is not self._last_error, error
            if self._producer is producer and not is_passing(error):
                self._producer, self._problem = None, f"the client is made anew: {problem}"
                self._lock.notify_all()
        if not own:
            return Unavailable(f"given up together with another record: {problem}")
        if isinstance(problem, Rejected | Unavailable):
            return problem
        return Unavailable(str(problem))  # rights may be given while we run

    def _refused(self, error: Exception, topic: str, partition: int) -> FarsideError:
        if isinstance(error, KafkaError):
            found = explained(error, self._settings.address)
            return found if isinstance(found, Rejected) else Unavailable(str(found))
        return Unavailable(
            f"{topic} has no partition {partition}: farside topics --create adds what is missing"
        )

    # --- connecting ----------------------------------------------------------------------------

    def _connect(self) -> None:
        """Make the client, and again when it has failed; look up topics whenever one is wanted."""
        pause_s, told = _FIRST_PAUSE_S, ""
        while not self._closed.is_set():
            try:
                producer = self._made()
            except (KafkaError, OSError, ValueError) as error:
                self._problem = str(explained(error, self._settings.address))
                if self._problem != told:
                    log.warning("waiting for Kafka", why=self._problem, writer=self._writer)
                    told = self._problem
                self._clock.wait(self._closed, pause_s * self._jitter())
                pause_s = min(2 * pause_s, self._settings.reconnect_max_s)
                continue
            if told:
                log.info("Kafka is there", address=self._settings.address, writer=self._writer)
            pause_s, told = _FIRST_PAUSE_S, ""
            self._look_up(producer)
            if not self._closed.is_set():
                log.warning("Kafka's writer", why=self._problem, writer=self._writer)
                self._end(producer, 1.0)
                self._clock.wait(self._closed, pause_s * self._jitter())

    def _made(self) -> Any:  # noqa: ANN401  # the library has no types
        settings = self._settings
        return made(
            KafkaProducer,
            **self._config,
            acks="all",
            enable_idempotence=True,
            compression_type=None if settings.compression == "none" else settings.compression,
            linger_ms=settings.linger_ms,
            batch_size=256 << 10,
            max_request_size=MAX_RECORD_BYTES + _HEADERS_BYTES,
            delivery_timeout_ms=int(settings.delivery_timeout_s * 1000),
            max_block_ms=1000,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    def _look_up(self, producer: Any) -> None:  # noqa: ANN401  # the library has no types
        with self._lock:
            first = set(self._wanted)
        for topic in first:
            self._find(producer, topic)
        with self._lock:
            if self._closed.is_set():
                return
            self._producer = producer
            self._lock.notify_all()
        while self._producer is producer:
            with self._lock:
                self._lock.wait_for(
                    lambda: self._wanted - self._known or self._producer is not producer, 60
                )
                missing = self._wanted - self._known
            for topic in missing:
                self._find(producer, topic)
            if self._wanted - self._known:
                self._clock.wait(self._closed, 0.5)

    def _find(self, producer: Any, topic: str) -> None:  # noqa: ANN401  # the library has no types
        try:
            found = producer.partitions_for(topic)
        except (KafkaError, ValueError, AssertionError):
            return
        if found:
            with self._lock:
                self._known.add(topic)
                self._lock.notify_all()
