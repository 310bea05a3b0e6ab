"""Gives readers and writers of one Kafka."""

from collections.abc import Callable, Iterable

from bus.kafka.admin import Admin
from bus.kafka.identity import Logs
from bus.kafka.membership import Membership
from bus.kafka.settings import Settings
from bus.kafka.sink import KafkaSink
from bus.kafka.source import KafkaSource
from bus.transport import Place, Start
from runtime.clock import Clock


class KafkaBus:
    """The bus of one process; `role` names it in headers and to the brokers."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        cluster: str,
        role: str,
        writes: Iterable[str] = (),
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """Connect nothing yet; `writes` are the topics that this process will write."""
        self._settings = settings
        self._clock = clock
        self._cluster = cluster
        self._role = role
        self._writes = tuple(writes)
        self._jitter = jitter
        self.admin = Admin(settings, role)
        self._logs = Logs(self.admin, clock, settings.look_s)

    @property
    def address(self) -> str:
        """Return where the brokers are."""
        return self._settings.address

    def sink(self) -> KafkaSink:
        """Return a writer; it begins to connect at once."""
        return KafkaSink(
            self._settings,
            self._clock,
            cluster=self._cluster,
            writer=self._role,
            topics=self._writes,
            jitter=self._jitter,
        )

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> KafkaSource:
        """Return a reader of these topics (all their partitions) or places."""
        return KafkaSource(self._settings, self._logs, places, reader=self._role, start=start)

    def membership(
        self,
        topic: str,
        group: str,
        released: Callable[[frozenset[int]], None],
    ) -> Membership:
        """Return a member of a group that shares the partitions of a topic."""
        return Membership(
            self._settings,
            self._logs,
            self._clock,
            topic=topic,
            group=group,
            released=released,
        )

    def ready(self, topics: Iterable[str]) -> None:
        """Return when the brokers answer and these topics are there.

        Errors: `Unavailable` where they are not (yet), `NotPermitted` where we are not let in.
        """
        self._logs.looked(topics)

    def close(self) -> None:
        """Let go of what readers and writers share."""
        self._logs.close()
        self.admin.close()
