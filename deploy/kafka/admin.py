"""What the launcher and the tests ask of a cluster: who is there, who leads, topics made anew."""

import contextlib
import functools
from collections.abc import Iterator

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from bus.topics import TOPICS
from runtime.errors import Unavailable
from runtime.wait import wait_until

_RENEW_S = 60.0


@contextlib.contextmanager
def client(*addresses: str) -> Iterator[KafkaAdminClient]:
    """Give an admin client of the plain listener; its errors become `Unavailable`."""
    found = None
    try:
        found = KafkaAdminClient(
            bootstrap_servers=list(addresses),
            client_id="farside-launcher",
            bootstrap_timeout_ms=3000,
            request_timeout_ms=10_000,
            reconnect_backoff_max_ms=1000,
        )
        yield found
    except (KafkaError, OSError) as error:
        raise Unavailable(
            f"Kafka at {', '.join(addresses)}: {type(error).__name__}: {error}"
        ) from None
    finally:
        if found is not None:
            found.close()


def brokers(address: str) -> frozenset[int]:
    """Return the ids of the brokers that the one at `address` knows to be there."""
    with client(address) as asked:
        return frozenset(one["broker_id"] for one in asked.describe_cluster()["brokers"])


def leader(addresses: list[str], topic: str, partition: int) -> int:
    """Return the id of the broker that leads a partition; `Unavailable` where there is none."""
    with client(*addresses) as asked:
        for found in asked.describe_topics([topic]):
            for one in found["partitions"]:
                if one["partition_index"] == partition and one["leader_id"] >= 0:
                    return int(one["leader_id"])
    raise Unavailable(f"{topic}/{partition} has no leader now")


def renew(addresses: list[str], *, cells: int = 1, copies: int = 1) -> None:
    """Make all topics of the product anew and empty; return when every partition has a leader."""
    with client(*addresses) as asked:
        old = TOPICS.keys() & set(asked.list_topics())
        if old:
            asked.delete_topics(sorted(old))
            wait_until(
                lambda: not TOPICS.keys() & set(asked.list_topics()),
                _RENEW_S,
                what="the topics of the test before are gone",
            )
        asked.create_topics(
            {
                topic.name: {
                    "num_partitions": topic.partitions or cells,
                    "replication_factor": copies,
                    "configs": topic.config(copies),
                }
                for topic in TOPICS.values()
            }
        )
    for address in addresses:
        with client(address) as asked:
            wait_until(
                functools.partial(_is_led, asked, cells),
                _RENEW_S,
                what=f"{address} knows a leader of every partition",
            )


def _is_led(asked: KafkaAdminClient, cells: int) -> bool:
    """Tell whether this broker knows every topic with a leader for each of its partitions."""
    found = {one["name"]: one for one in asked.describe_topics(sorted(TOPICS))}
    return (
        all(
            sum(part["leader_id"] >= 0 for part in found[topic.name]["partitions"])
            == (topic.partitions or cells)
            for topic in TOPICS.values()
            if topic.name in found
        )
        and found.keys() >= TOPICS.keys()
    )
