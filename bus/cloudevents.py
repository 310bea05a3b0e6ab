"""The headers of a record: CloudEvents 1.0 in Kafka's binary mode.

The content is the message alone, so that who knows our types needs no envelope; who does not,
learns from the headers what it is, from whom, and how it is encoded. `ce_cluster` is our extension.

Source: CloudEvents 1.0.2, Kafka protocol binding.
"""

import hashlib

from bus.codec import type_of
from bus.messages import TELEMETRY_TYPES, Message
from runtime.clock import Instant

Headers = list[tuple[str, bytes]]
_TIMES = ("time", "updated", "finished", "issued", "opened", "since")
JSON = b"application/json"
MESSAGEPACK = b"application/msgpack"


def headers(message: Message, record: bytes, cluster: str, writer: str) -> Headers:
    """Return the headers of `record`, the bytes of `message`; `writer` is a role and where it is.

    The id follows from the content: the same message sent once more has the same id.
    """
    found: Headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", hashlib.sha256(record).hexdigest()[:16].encode()),
        ("ce_source", f"/farside/{cluster}/{writer}".encode()),
        ("ce_type", f"farside.{type_of(message)}.v{message.version}".encode()),
        ("ce_cluster", cluster.encode()),
        ("content-type", MESSAGEPACK if isinstance(message, TELEMETRY_TYPES) else JSON),
    ]
    moment = time_of(message)
    if moment is not None:
        found.append(("ce_time", moment.text().encode()))
    return found


def time_of(message: Message) -> Instant | None:
    """Return the moment that a message speaks of, None where it names none."""
    for name in _TIMES:
        moment = getattr(message, name, None)
        if isinstance(moment, Instant):
            return moment
    return None
