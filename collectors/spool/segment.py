r"""One file of the spool: frames of one record each, with length and checksum.

    farside spool 1\n | length, checksum, number | record | length, checksum, number | record | …

The checksum covers number and record. A crash can leave the last frame torn; a frame whose length
can be believed and whose checksum is wrong is passed over alone.
"""

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collectors.spool.memory import Kind

MAGIC = b"farside spool 1\n"
RECORD_BYTES_MAX = 1_000_000  # what a record of the bus may hold
_HEAD = struct.Struct("<IIQ")  # bytes of the record, checksum, the record's number
_NUMBER = struct.Struct("<Q")


class Frame(NamedTuple):
    """A record as it lies in a file."""

    offset: int
    end: int
    number: int
    record: bytes


class Damage(NamedTuple):
    """Bytes that hold no record; reading goes on at `end`."""

    offset: int
    end: int


def framed(number: int, record: bytes) -> bytes:
    """Return a record as a frame."""
    return _HEAD.pack(len(record), _checksum(number, record), number) + record


def frames(content: bytes) -> Iterator[Frame | Damage]:
    """Give what a file holds, in its order."""
    if not content.startswith(MAGIC):
        if content:
            yield Damage(0, len(content))
        return
    at = len(MAGIC)
    while at < len(content):
        end = _end(content[at : at + _HEAD.size], at, len(content))
        found = _judged(content[at:end], at)
        yield found
        at = found.end


def _end(head: bytes, at: int, size: int) -> int:
    """Return where the frame at offset `at` ends; `size` where its head can't be believed."""
    if len(head) < _HEAD.size:
        return size
    length = int(_HEAD.unpack(head)[0])
    end = at + _HEAD.size + length
    return end if length <= RECORD_BYTES_MAX and end <= size else size


def _judged(content: bytes, at: int) -> Frame | Damage:
    if len(content) >= _HEAD.size:
        length, checksum, number = _HEAD.unpack_from(content)
        record = content[_HEAD.size :]
        if length == len(record) and checksum == _checksum(number, record):
            return Frame(at, at + len(content), number, record)
    return Damage(at, at + len(content))


def _checksum(number: int, record: bytes) -> int:
    return zlib.crc32(record, zlib.crc32(_NUMBER.pack(number)))


class Segment:
    """A file with a reader in it: frames before `read_at` were handed out or are done with.

    `unread` counts the frames that were not; `outstanding` holds the offsets of those that were
    and are not acknowledged. OSError comes through: the folder's owner knows what to do.
    """

    def __init__(self, path: Path, kind: Kind, serial: int) -> None:
        """Name the file; `create` or `load` fills it."""
        self.path = path
        self.kind: Kind = kind
        self.serial = serial
        self.size = 0
        self.unread = 0
        self.read_at = len(MAGIC)
        self.outstanding: dict[int, None] = {}
        self.newest = 0
        self.damaged = 0
        self._file = -1

    @property
    def done(self) -> bool:
        """Tell whether everything in it is acknowledged."""
        return not self.unread and not self.outstanding

    @property
    def acknowledged_to(self) -> int:
        """Return the offset below which everything is acknowledged."""
        return next(iter(self.outstanding), self.read_at)

    def create(self) -> None:
        """Make the file; it must not be there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o600)
        try:
            _write(self._file, MAGIC)
        except OSError:
            self.delete()
            raise
        self.size = len(MAGIC)

    def load(self, acknowledged_to: int) -> None:
        """Take up the file of an earlier start, without what was acknowledged."""
        content = self.path.read_bytes()
        self.size = len(content)
        self.read_at = len(MAGIC)
        for found in frames(content):
            if isinstance(found, Damage):
                self.damaged += 1
                continue
            self.newest = max(self.newest, found.number)
            if found.offset >= acknowledged_to:
                self.unread += 1
            else:
                self.read_at = found.end

    def append(self, number: int, record: bytes, *, handed_out: bool) -> int:
        """Write a record and return its offset; one that was handed out is not to be read again."""
        offset, frame = self.size, framed(number, record)
        try:
            _write(self._opened(), frame)
        except OSError:
            # What was written of it would hide what follows.
            os.ftruncate(self._opened(), offset)
            os.lseek(self._opened(), offset, os.SEEK_SET)
            raise
        self.size += len(frame)
        self.newest = number
        if handed_out:
            self.outstanding[offset] = None
            self.read_at = self.size
        else:
            self.unread += 1
        return offset

    def peek(self) -> Frame | None:
        """Return the next unread frame; what is damaged is passed over and counted."""
        while self.unread:
            found = self._read(self.read_at)
            if isinstance(found, Frame):
                return found
            self.read_at = found.end
            if found.end >= self.size:  # these were whole when they were counted
                self.damaged += self.unread
                self.unread = 0
        return None

    def take(self, frame: Frame) -> None:
        """Hand out the frame that `peek` returned."""
        self.unread -= 1
        self.read_at = frame.end
        self.outstanding[frame.offset] = None

    def sync(self) -> None:
        """Wait until the disk has everything for certain."""
        os.fdatasync(self._opened())

    def release(self) -> None:
        """Let go of the open file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def delete(self) -> None:
        """Remove the file."""
        self.release()
        with contextlib.suppress(OSError):  # it is read again at the next start, no worse
            self.path.unlink(missing_ok=True)

    def _read(self, at: int) -> Frame | Damage:
        file = self._opened()
        end = _end(os.pread(file, _HEAD.size, at), at, self.size)
        if end - at > _HEAD.size + RECORD_BYTES_MAX:
            return Damage(at, end)
        return _judged(os.pread(file, end - at, at), at) if end > at else Damage(at, self.size)

    def _opened(self) -> int:
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            os.lseek(self._file, self.size, os.SEEK_SET)
        return self._file


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
