"""Makes clients of the library, and leaves nothing behind when that fails."""

from collections.abc import Callable
from typing import Any

from kafka.net import KafkaNetClient


def made(kind: Callable[..., Any], **config: object) -> Any:  # noqa: ANN401  # no types
    """Return a client of the library.

    A client whose making fails (no broker answers) would keep its thread and its sockets; whoever
    tries again for hours would have thousands of them. So they are closed here.
    """
    connections: list[Any] = []

    def connection(**given: object) -> Any:  # noqa: ANN401  # no types
        connections.append(KafkaNetClient(**given))
        return connections[-1]

    try:
        return kind(kafka_client=connection, **config)
    except BaseException:
        for one in connections:
            one.close()
        raise
