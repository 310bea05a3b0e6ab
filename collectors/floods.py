"""Flood control: of one fault on one device only so many lines a second, the rest as a count."""

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from collectors.base import FoundLine
from runtime.clock import NANOSECONDS, Instant

_KEYS_MAX = 1024


class Stream(msgspec.Struct):
    """One fault on one device: the second that runs, what passed in it, what is held back."""

    second: int
    passed: int = 0
    held: int = 0
    last: FoundLine | None = None


class Floods:
    """Lets `lines_per_s` lines of one kind, code and device pass in each second of their time.

    What is held back is added to the `count` of the next line that passes, or told by `ended` when
    none follows; nothing is lost to the sum.
    """

    def __init__(self, lines_per_s: int) -> None:
        """Know nothing yet."""
        self._lines_per_s = lines_per_s
        self._streams: OrderedDict[tuple[str, str, str], Stream] = OrderedDict()
        self.held = 0

    def take(self, line: FoundLine) -> Iterator[FoundLine]:
        """Give the line on, with the count of those held back before it; or hold it back."""
        fields = line.fields
        key = (fields.get("kind", ""), fields.get("code", ""), fields.get("device", ""))
        second = int(line.time) // NANOSECONDS
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(second)
            if len(self._streams) > _KEYS_MAX:
                yield from _told(self._streams.popitem(last=False)[1])
        self._streams.move_to_end(key)
        if second != stream.second:
            stream.second, stream.passed = second, 0
        if stream.passed >= self._lines_per_s:
            stream.held += _count(line)
            stream.last = line
            self.held += 1
            return
        stream.passed += 1
        if stream.held:
            line = line._replace(fields={**fields, "count": str(stream.held + _count(line))})
            stream.held, stream.last = 0, None
        yield line

    def ended(self, now: Instant) -> Iterator[FoundLine]:
        """Give what was held back in streams whose second is over, and forget quiet ones."""
        for key, stream in list(self._streams.items()):
            if int(now) // NANOSECONDS > stream.second + 1:
                yield from _told(stream)
                del self._streams[key]


def _told(stream: Stream) -> Iterator[FoundLine]:
    if stream.last is not None:
        fields = {**stream.last.fields, "count": str(stream.held)}
        yield stream.last._replace(fields=fields)


def _count(line: FoundLine) -> int:
    text = line.fields.get("count", "1")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 1
