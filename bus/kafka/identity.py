"""Which log a topic is: its identifier changes when the topic is deleted and made anew.

One thread looks again and again, so that readers can ask without waiting.
"""

import hashlib
import threading
from collections.abc import Iterable

import structlog

from bus.kafka.admin import Admin, Described
from runtime.clock import Clock
from runtime.errors import FarsideError, Unavailable

log = structlog.get_logger()


class Logs:
    """The identities of topics, as they were seen last."""

    def __init__(self, admin: Admin, clock: Clock, look_s: float) -> None:
        """Look every `look_s` seconds, once something was asked for."""
        self._admin = admin
        self._clock = clock
        self._look_s = look_s
        self._lock = threading.Lock()
        self._seen: dict[str, Described] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def identity(self, topics: Iterable[str]) -> str:
        """Return the identity of these topics together, as of the last look."""
        with self._lock:
            names = [f"{topic}={self._seen[topic].identity}" for topic in topics]
        return f"kafka-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}"

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic that was looked at has."""
        with self._lock:
            return self._seen[topic].partitions

    def looked(self, topics: Iterable[str]) -> str:
        """Look now; return the identity.

        Errors: `Unavailable` when the brokers are away or a topic is not there (yet).
        """
        wanted = list(topics)
        found = self._admin.describe(wanted)
        missing = [topic for topic in wanted if topic not in found]
        if missing:
            raise Unavailable(
                f"missing on Kafka: {', '.join(missing)}; farside topics --create makes them"
            )
        with self._lock:
            self._seen.update(found)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="kafka-look", daemon=True)
                self._thread.start()
        return self.identity(wanted)

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look(self) -> None:
        while not self._clock.wait(self._closed, self._look_s):
            with self._lock:
                topics = list(self._seen)
            try:
                found = self._admin.describe(topics)
            except FarsideError:
                continue  # readers notice by themselves that the brokers are away
            with self._lock:
                # A topic that is gone for a moment keeps its identity until another one is there.
                self._seen.update(found)
