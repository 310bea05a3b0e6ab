"""Records on disk: JSON Lines, one envelope a line, as `up --record` writes and `replay` reads.

Only `message` is required in a line. A missing `appended` is the newest time so far (the time of
the message itself for the first), a missing topic is the one that carries the type, and missing
offsets count up.
"""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

import msgspec

from bus.codec import Codec, Malformed, type_of
from bus.messages import Message
from bus.topics import TELEMETRY, TOPICS
from bus.transport import Envelope, Place
from runtime.clock import Instant
from runtime.errors import Rejected

LINE_BYTES_MAX = 4 << 20
# Where lines say nothing of when the log took them, messages move the time, within reason.
LEAP_S_MAX = 366 * 86_400.0
SANE_LATEST = Instant.parse("2200-01-01T00:00:00Z")


class Broken(NamedTuple):
    """A line that is no record: where, and why."""

    line: int
    reason: str
    detail: str


class _Line(msgspec.Struct):
    message: msgspec.Raw
    topic: str = ""
    partition: int = 0
    offset: int | None = None
    appended: str | None = None
    key: str = ""


def dump(envelope: Envelope) -> bytes:
    """Return the envelope as one line, with its line end."""
    head = msgspec.json.encode(
        {
            "topic": envelope.topic,
            "partition": envelope.partition,
            "offset": envelope.offset,
            "appended": envelope.appended.text(),
            "key": envelope.key,
        },
    )
    return head[:-1] + b',"message":' + _CODEC.to_json(envelope.message) + b"}\n"


def load(lines: Iterable[bytes]) -> Iterator[Envelope | Broken]:
    """Read lines one by one; an empty line is passed over."""
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield reader.read(line)
        except Malformed as error:
            yield Broken(number, error.reason, error.detail)


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Give the lines of a file; of one that is too long only the beginning, with no line end."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        yield line
        while len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            line = file.readline(LINE_BYTES_MAX + 1)


class _Reader:
    """Fills in what a line leaves out."""

    def __init__(self) -> None:
        self._codec = Codec()
        self._newest = Instant(0)
        self._next: dict[Place, int] = {}
        self._decoder = msgspec.json.Decoder(_Line)

    def read(self, line: bytes) -> Envelope:
        if len(line) > LINE_BYTES_MAX:
            reason = "oversized"
            raise Malformed(reason, f"a line of more than {LINE_BYTES_MAX} bytes")
        try:
            parts = self._decoder.decode(line)
            raw = msgspec.json.decode(parts.message)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            reason = "no record"
            raise Malformed(reason, str(error)) from None
        message = self._codec.from_object(raw)
        appended = self._appended(parts.appended, message)
        topic = parts.topic or _topic_of(message)
        place = (topic, parts.partition)
        offset = self._next.get(place, 0) if parts.offset is None else parts.offset
        self._next[place] = offset + 1
        return Envelope(topic, parts.partition, offset, appended, parts.key, message)

    def _appended(self, text: str | None, message: Message) -> Instant:
        if text is not None:
            try:
                appended = Instant.parse(text)
            except Rejected as error:
                reason = "wrong type"
                raise Malformed(reason, str(error)) from None
        else:
            appended = self._newest_with(getattr(message, "time", None))
        self._newest = max(self._newest, appended)
        return appended

    def _newest_with(self, own: object) -> Instant:
        """Return the newest time so far; a time that no running clock shows does not move it."""
        if not isinstance(own, Instant) or own > SANE_LATEST:
            return self._newest
        if self._newest and own > self._newest.plus(LEAP_S_MAX):
            return self._newest
        return max(self._newest, own)


def _topic_of(message: Message) -> str:
    name = type_of(message)
    for topic in TOPICS.values():
        if name in topic.carries:
            return topic.name
    return TELEMETRY


_CODEC = Codec()
