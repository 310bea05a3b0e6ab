"""What a bus is to the rest: a record with its place, a source to read, a sink to write."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from bus.messages import Message
from runtime.clock import Instant

Place = tuple[str, int]  # topic, partition
# Where a reader without a position begins; a moment means the first record appended at or after it.
Start = Literal["earliest", "latest"] | Instant


class Envelope(NamedTuple):
    """A message, its place in the log, and the moment when the log took it."""

    topic: str
    partition: int
    offset: int
    appended: Instant
    key: str
    message: Message


class Source(Protocol):
    """Reads topics in the order of each partition; one reader belongs to one thread."""

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
        """Return up to `limit` records, waiting for the first at most `timeout_s` seconds.

        A record that can't be decoded arrives as an envelope whose message is a `Reject`.
        Errors: `Unavailable` when the bus can't be read now.
        """

    def reread(self, place: Place, first: int, end: int) -> list[Envelope]:
        """Return the records from offset `first` up to `end` (exclusive) that still exist.

        The position afterwards is `end`. Errors: `Unavailable` when the bus can't be read now.
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
        """Return the identity of the log: offsets of another log mean nothing here.

        It changes while running when a topic is deleted and made anew; reading then begins at the
        new log's start.
        """

    def close(self) -> None:
        """Give the reader's connections back; it is not used afterwards."""


class Receipt(Protocol):
    """What became of one record that was sent."""

    def taken(self) -> bool:
        """Tell whether the bus has acknowledged it; False while it is on its way.

        Errors: `Rejected` when the bus never will (too large), `Unavailable` when it was given up
        and may be sent again.
        """


class Sink(Protocol):
    """Writes records; what `send` took before `flush` returned will be read."""

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Receipt:
        """Hand a message over; records of one partition are taken in the order of sending.

        Errors: `Unavailable` where the bus can't take it now, `Rejected` where it never will.
        """

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was sent is acknowledged.

        Errors: `Unavailable` when the time is over before that, or when something that was sent
        since the last flush was given up; `Rejected` when something was refused for good.
        """

    def close(self, timeout_s: float) -> None:
        """Hand over what is on its way for at most `timeout_s` seconds, and let go."""


class Bus(Protocol):
    """Gives readers and writers; each belongs to one thread."""

    def sink(self) -> Sink:
        """Return a writer."""

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> Source:
        """Return a reader of these topics (all their partitions) or (topic, partition) places."""
