"""Which partitions of a topic are ours, where several processes share them as a group.

Only the ownership comes from the group: records are read by a reader of their own, from the
position in the owner's checkpoint. So what is asked of the group never fetches a record.
"""

from collections.abc import Callable, Iterable
from typing import Any

import structlog
from kafka import ConsumerRebalanceListener, KafkaConsumer

from bus.kafka.errors import KafkaError, explained
from bus.kafka.identity import Logs
from bus.kafka.making import made
from bus.kafka.settings import Settings
from runtime.clock import Clock
from runtime.errors import Unavailable

log = structlog.get_logger()


class Membership:
    """One member of a group; it belongs to one thread, which has to ask again and again.

    A member that does not ask for `bus.kafka.session_s` seconds loses what it had to the others.
    """

    def __init__(  # what a member is made of
        self,
        settings: Settings,
        logs: Logs,
        clock: Clock,
        *,
        topic: str,
        group: str,
        released: Callable[[frozenset[int]], None],
    ) -> None:
        """Join `group` for `topic`; `released` is called before partitions go to somebody else."""
        self._settings = settings
        self._logs = logs
        self._clock = clock
        self._topic = topic
        self._released = released
        self._session_s = settings.session_s
        self._config = settings.client(f"{group}-member") | {"group_id": group}
        self._consumer: Any = None
        self._own: frozenset[int] = frozenset()
        self._empty_since_s = clock.monotonic()

    def own(self, timeout_s: float) -> frozenset[int]:
        """Take part in the group for at most `timeout_s` seconds; return the partitions of ours.

        Errors: `Unavailable` when the brokers are away; what was ours stays so until they are back.
        """
        try:
            if self._consumer is None:
                self._join()
            self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=1)
            assigned = self._consumer.assignment()
            self._consumer.pause(*assigned)
        except KafkaError as error:
            raise Unavailable(str(explained(error, self._settings.address))) from None
        self._own = frozenset(one.partition for one in assigned)
        self._mind_emptiness()
        return self._own

    def close(self) -> None:
        """Leave the group, so that the others need not wait for our silence."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=2000)

    def _join(self) -> None:
        # A member that joins before its metadata knows the topic may be left without partitions.
        self._logs.looked([self._topic])
        consumer = made(
            KafkaConsumer,
            **self._config,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            allow_auto_create_topics=False,
            session_timeout_ms=int(self._session_s * 1000),
            heartbeat_interval_ms=max(int(self._session_s * 100), 100),
            max_poll_interval_ms=max(int(self._session_s * 1000), 60_000),
            metrics_enabled=False,
        )
        consumer.partitions_for_topic(self._topic)
        consumer.subscribe([self._topic], listener=_Listener(self._give_back))
        self._consumer = consumer
        self._empty_since_s = self._clock.monotonic()

    def _give_back(self, partitions: Iterable[Any]) -> None:
        gone = frozenset(one.partition for one in partitions) & self._own
        if gone:
            self._own -= gone
            self._released(gone)

    def _mind_emptiness(self) -> None:
        """A healthy group may leave a member without partitions for ever: then join again.

        Where there are more members than partitions that is rightly so, and costs one rejoin a
        while.
        """
        if self._own:
            self._empty_since_s = self._clock.monotonic()
        elif self._clock.monotonic() - self._empty_since_s > 4 * self._session_s:
            log.info("no partitions from the group for a while; joining again", topic=self._topic)
            self.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Hears of rebalances inside the client's poll."""

    def __init__(self, revoked: Callable[[Iterable[Any]], None]) -> None:
        self._revoked = revoked

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Partitions go to somebody else now."""
        self._revoked(revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Partitions came; `own` returns them."""
