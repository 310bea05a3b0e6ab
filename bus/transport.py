"""What a bus is to the rest: a record with its place, a source to read, a sink to write."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from bus.messages import Message
from runtime.clock import Instant

Place = tuple[str, int]  # topic, partition


class Envelope(NamedTuple):
    """A message, its place in the log, and the moment when the log took it."""

    topic: str
    partition: int
    offset: int
    appended: Instant
    key: str
    message: Message


class Source(Protocol):
    """Reads topics in the order of each partition."""

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
        """Return up to `limit` records, waiting for the first at most `timeout_s` seconds.

        A record that can't be decoded arrives as an envelope whose message is a `Reject`.
        """

    def seek(self, positions: Mapping[Place, int]) -> None:
        """Continue at these next offsets; below a log's start reading goes on at its start."""

    def positions(self) -> dict[Place, int]:
        """Return the next offset of each partition."""

    def lag(self) -> dict[Place, int]:
        """Return how many records each partition holds that were not read yet."""

    def skipped(self) -> int:
        """Return how many records were gone before they could be read."""

    def log(self) -> str:
        """Return the identity of the log: offsets of another log mean nothing here."""


class Sink(Protocol):
    """Writes records; what `send` took before `flush` returned will be read."""

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> None:
        """Hand a message over; `Unavailable` where the bus can't take it now."""

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was sent is acknowledged; `Unavailable` when the time is over."""
