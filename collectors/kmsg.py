r"""The records of /dev/kmsg, from bytes: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,…];text`.

Lines that begin with a blank belong to the record before them (its device, in keys and values) and
are passed over. The kernel writes what is not printable ASCII as `\x0a`; that is turned back here.

Source: the kernel's ABI/testing/dev-kmsg.
"""

import re
from typing import NamedTuple

from collectors.kernel_text import number

LINE_BYTES_MAX = 8192
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Record(NamedTuple):
    """One record: who wrote it (facility 0 is the kernel), how urgent, its place, time and text."""

    facility: int
    level: int
    sequence: int
    time_us: int
    text: str


class Parser:
    """Turns bytes, in whatever pieces they come, into records; never fails.

    What is no record is counted in `malformed`; of a line beyond `LINE_BYTES_MAX` the rest is cut.
    """

    def __init__(self) -> None:
        """Begin at the start of a line."""
        self.malformed = 0
        self._rest = b""
        self._cutting = False

    def feed(self, piece: bytes) -> list[Record]:
        """Take bytes; return the records that they complete."""
        *lines, rest = (self._rest + piece).split(b"\n")
        found = []
        for line in lines:
            # The end of a line whose beginning was taken already.
            if not self._cutting:
                found += self._record(line)
            self._cutting = False
        if len(rest) > LINE_BYTES_MAX:
            if not self._cutting:
                found += self._record(rest)
            self._cutting = True
            rest = b""
        self._rest = rest
        return found

    def _record(self, line: bytes) -> list[Record]:
        if not line or line.startswith(b" "):
            return []
        head, mark, body = line[:LINE_BYTES_MAX].partition(b";")
        fields = [number(word) for word in head.decode("ascii", "replace").split(",")[:3]]
        if not mark or len(fields) < 3:
            self.malformed += 1
            return []
        priority, sequence, time_us = fields
        if priority is None or sequence is None or time_us is None:
            self.malformed += 1
            return []
        text = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), body)
        return [
            Record(priority >> 3, priority & 7, sequence, time_us, text.decode("utf-8", "replace"))
        ]
