"""What is asked of the cluster itself: which topics there are, and to make what is missing."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError

from bus.kafka.errors import KafkaError, explained
from bus.kafka.making import made
from bus.kafka.settings import Settings
from runtime.errors import Unavailable


class Described(NamedTuple):
    """A topic that has a leader for each partition."""

    identity: str
    partitions: int


class FoundTopic(NamedTuple):
    """A topic as it is: `config` holds every value by Kafka's own names."""

    name: str
    partitions: int
    replicas: int
    config: dict[str, str]
    leaders: bool


class Admin:
    """One connection for questions, made when first asked; threads may share it.

    Errors of all: `Unavailable` when the brokers can't be reached, `NotPermitted` without the
    right, `Rejected` and `Misconfigured` where the wish itself is wrong.
    """

    def __init__(self, settings: Settings, name: str = "admin") -> None:
        """Ask as `name`."""
        self._settings = settings
        self._config = settings.client(name)
        self._client: Any = None
        self._lock = threading.Lock()

    def describe(self, topics: Iterable[str]) -> dict[str, Described]:
        """Return those of these topics that exist and have a leader for each partition."""
        wanted = list(topics)
        found = self._asked(lambda client: client.describe_topics(wanted))
        return {
            topic["name"]: Described(str(topic["topic_id"]), len(topic["partitions"]))
            for topic in found
            if topic["error_code"] == 0 and topic["partitions"] and _led(topic)
        }

    def find(self) -> dict[str, FoundTopic]:
        """Return all topics of farside with their configuration."""
        topics = [
            topic
            for topic in self._asked(lambda client: client.describe_topics())
            if topic["name"].startswith("farside.") and topic["error_code"] == 0
        ]
        if not topics:
            return {}
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic["name"]) for topic in topics]
        configs = self._asked(lambda client: client.describe_configs(asked, config_filter="all"))
        return {
            topic["name"]: FoundTopic(
                name=topic["name"],
                partitions=len(topic["partitions"]),
                replicas=min(len(one["replica_nodes"]) for one in topic["partitions"]),
                config={
                    key: str(entry["value"])
                    for key, entry in configs["topic"].get(topic["name"], {}).items()
                    if entry["value"] is not None
                },
                leaders=_led(topic),
            )
            for topic in topics
        }

    def create(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Make a topic and wait for its leaders; one that is there already is left as it is."""
        wish = {
            name: {
                "num_partitions": partitions,
                "replication_factor": replicas,
                "configs": dict(config),
            }
        }

        def make(client: Any) -> None:  # noqa: ANN401  # the library has no types
            with contextlib.suppress(TopicAlreadyExistsError):
                client.create_topics(wish)
            client.wait_for_topics([name])

        self._asked(make)

    def alter_config(self, name: str, config: Mapping[str, str]) -> None:
        """Set these values of a topic, and no others."""
        wish = [ConfigResource(ConfigResourceType.TOPIC, name, dict(config))]
        self._asked(lambda client: client.alter_configs(wish))

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` of them."""
        self._asked(lambda client: client.create_partitions({name: total}))

    def brokers(self) -> int:
        """Return how many brokers there are."""
        return len(self._asked(lambda client: client.describe_cluster())["brokers"])

    def cluster_id(self) -> str:
        """Return the identifier that the brokers share."""
        return str(self._asked(lambda client: client.describe_cluster())["cluster_id"])

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _asked(self, ask: Callable[[Any], Any]) -> Any:  # noqa: ANN401  # the library has no types
        with self._lock:
            try:
                if self._client is None:
                    self._client = made(KafkaAdminClient, **self._config)
                return ask(self._client)
            except KafkaError as error:
                raise explained(error, self._settings.address) from None
            except (OSError, ValueError) as error:
                raise Unavailable(f"Kafka at {self._settings.address}: {error}") from None


def _led(topic: Mapping[str, Any]) -> bool:
    return all(one["leader_id"] >= 0 for one in topic["partitions"])
