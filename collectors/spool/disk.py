"""The spool's folder: numbered files of telemetry and of log lines, read in one order.

    0000000000000001.batch  0000000000000002.line  …   one writer, append-only, never reopened to
                                                       write by a later start
    position                                           what of them is acknowledged; see `_Mark`
    lock                                               held by the agent that owns the folder

Telemetry and lines lie apart so that the oldest telemetry can go first when there is too much; the
record's numbers join them again. A file is removed when everything in it is acknowledged.
"""

import contextlib
import fcntl
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collectors.spool.memory import KINDS, Kind, Place
from collectors.spool.segment import Frame, Segment
from runtime.errors import Misconfigured, Unavailable

_NAME = re.compile(r"(\d{16})\.(batch|line)")
_SEGMENT_BYTES_MAX = 1 << 20
_MARK = struct.Struct("<QQQQQQ")
_SUM = struct.Struct("<I")


class _Mark(NamedTuple):
    """Up to where each kind is acknowledged, which serial comes next, how much was outstanding."""

    serial: int
    batch_serial: int
    batch_offset: int
    line_serial: int
    line_offset: int
    outstanding: int

    def acknowledged(self, kind: Kind) -> tuple[int, int]:
        """Return the serial and the offset below which everything of this kind is acknowledged."""
        if kind == "batch":
            return self.batch_serial, self.batch_offset
        return self.line_serial, self.line_offset


class Head(NamedTuple):
    """The oldest record that was not handed out, and where it lies."""

    place: Place
    frame: Frame


class Disk:
    """The segments of one folder; used by one thread at a time.

    `dropped` counts records that were given up for room, by kind; `damaged` places that held no
    record (a torn end after a crash); `lost` about how many records of the start before were in
    memory alone when it was killed. Errors of every call: `Unavailable` when the disk is full,
    fails or may not be written.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Take the folder and look what an earlier start left.

        Errors: `Misconfigured` when another agent has it, `Unavailable` when it can't be used.
        """
        self._folder = folder
        self._bytes_max = bytes_max
        self._segment_bytes = min(_SEGMENT_BYTES_MAX, bytes_max // 16)
        self._segments: dict[Kind, dict[int, Segment]] = {kind: {} for kind in KINDS}
        self._active: dict[Kind, Segment | None] = dict.fromkeys(KINDS)
        self._unsynced: set[Segment] = set()
        self._folder_changed = False
        self._marked: _Mark | None = None
        self._serial = 1
        self._position = -1
        self.bytes = 0  # room that the files take
        self.dropped: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        self.damaged = 0
        self.lost = 0
        with _explained(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(folder)
        try:
            with _explained(folder):
                self._load()
        except BaseException:
            self.close()
            raise

    @property
    def unread(self) -> int:
        """Return how many records were not handed out yet."""
        return sum(segment.unread for segment in self._all())

    @property
    def newest(self) -> int:
        """Return the highest number of a record, 0 where there is none."""
        return max((segment.newest for segment in self._all()), default=0)

    @property
    def unsynced(self) -> bool:
        """Tell whether something was written that the disk may not have for certain."""
        return bool(self._unsynced)

    def write(self, kind: Kind, number: int, record: bytes, *, handed_out: bool) -> Place:
        """Append a record; the oldest are dropped when there is no more room for all."""
        with _explained(self._folder):
            segment = self._writable(kind)
            before = segment.size
            try:
                offset = segment.append(number, record, handed_out=handed_out)
            except OSError:
                self._active[kind] = None  # the next try begins a new file
                if segment.done:
                    self._remove(segment)
                raise
        self.bytes += segment.size - before
        self._unsynced.add(segment)
        self._bound()
        return Place(kind, segment.serial, offset)

    def head(self) -> Head | None:
        """Return the oldest record that was not handed out."""
        heads = [head for kind in KINDS if (head := self._head(kind)) is not None]
        return min(heads, key=lambda head: head.frame.number, default=None)

    def take(self, head: Head) -> None:
        """Hand out what `head` returned."""
        self._segments[head.place.kind][head.place.serial].take(head.frame)

    def settle(self, place: Place) -> None:
        """Forget a record: the bus has it, or never will."""
        segment = self._segments[place.kind].get(place.serial)
        if segment is not None:
            segment.outstanding.pop(place.offset, None)
            if segment.done:
                self._remove(segment)

    def holds(self, place: Place) -> bool:
        """Tell whether a record is still there: it may have been dropped for room."""
        return place.serial in self._segments[place.kind]

    def sync(self) -> None:
        """Wait until the disk has everything for certain."""
        with _explained(self._folder):
            for segment in list(self._unsynced):
                segment.sync()
                self._unsynced.discard(segment)
                if segment is not self._active[segment.kind]:
                    segment.release()
            if self._folder_changed:
                _sync_folder(self._folder)
                self._folder_changed = False

    def mark(self, outstanding: int) -> None:
        """Note what is acknowledged, and how many records are not, wherever they are."""
        mark = _Mark(
            self._serial, *self._acknowledged("batch"), *self._acknowledged("line"), outstanding
        )
        if mark == self._marked:
            return
        content = _MARK.pack(*mark)
        with _explained(self._folder):
            os.pwrite(self._position, content + _SUM.pack(zlib.crc32(content)), 0)
        self._marked = mark

    def close(self) -> None:
        """Give the folder back."""
        for segment in self._all():
            segment.release()
        for file in (self._position, self._lock):
            if file >= 0:
                os.close(file)
        self._position = self._lock = -1

    # --- segments ------------------------------------------------------------------------------

    def _all(self) -> Iterator[Segment]:
        for segments in self._segments.values():
            yield from segments.values()

    def _oldest(self, kind: Kind) -> Segment | None:
        return next(iter(self._segments[kind].values()), None)

    def _writable(self, kind: Kind) -> Segment:
        segment = self._active[kind]
        if segment is None or segment.size >= self._segment_bytes:
            serial = self._serial
            segment = Segment(self._folder / f"{serial:016d}.{kind}", kind, serial)
            segment.create()
            self._serial += 1
            self._segments[kind][serial] = self._active[kind] = segment
            self._folder_changed = True
            self.bytes += segment.size
        return segment

    def _remove(self, segment: Segment) -> None:
        segment.delete()
        del self._segments[segment.kind][segment.serial]
        if self._active[segment.kind] is segment:
            self._active[segment.kind] = None
        self._unsynced.discard(segment)
        self.bytes -= segment.size

    def _bound(self) -> None:
        """Drop the oldest telemetry, and lines where there is none, until all fits."""
        for kind in KINDS:
            while self.bytes > self._bytes_max and (segment := self._oldest(kind)) is not None:
                self.dropped[kind] += segment.unread
                self._remove(segment)

    def _head(self, kind: Kind) -> Head | None:
        for segment in list(self._segments[kind].values()):
            before = segment.damaged
            try:
                frame = segment.peek()
            except OSError:
                segment.damaged += segment.unread
                segment.unread, frame = 0, None
            self.damaged += segment.damaged - before
            if frame is not None:
                return Head(Place(kind, segment.serial, frame.offset), frame)
            if segment.done and segment is not self._active[kind]:
                self._remove(segment)
        return None

    # --- what an earlier start left ------------------------------------------------------------

    def _load(self) -> None:
        self._position = os.open(
            self._folder / "position", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        mark = _read_mark(self._position)
        for name in sorted(path.name for path in self._folder.iterdir()):
            found = _NAME.fullmatch(name)
            if found is not None:
                kind: Kind = "batch" if found[2] == "batch" else "line"
                self._load_segment(Segment(self._folder / name, kind, int(found[1])), mark)
        self._serial = max(self._serial, mark.serial)
        self.lost = max(mark.outstanding - self.unread, 0)
        self._bound()

    def _load_segment(self, segment: Segment, mark: _Mark) -> None:
        serial, offset = mark.acknowledged(segment.kind)
        self._serial = max(self._serial, segment.serial + 1)
        if segment.serial < serial:
            segment.delete()
            return
        try:
            segment.load(offset if segment.serial == serial else 0)
        except OSError:
            self.damaged += 1  # left where it is: a person may still read it
            return
        self.damaged += segment.damaged
        if segment.done:
            segment.delete()
            return
        self._segments[segment.kind][segment.serial] = segment
        self.bytes += segment.size

    def _acknowledged(self, kind: Kind) -> tuple[int, int]:
        segment = self._oldest(kind)
        return (0, 0) if segment is None else (segment.serial, segment.acknowledged_to)


def _read_mark(file: int) -> _Mark:
    """Return the mark; an empty one where there is none that can be trusted."""
    content = os.pread(file, _MARK.size + _SUM.size, 0)
    if len(content) == _MARK.size + _SUM.size:
        body, checksum = content[: _MARK.size], _SUM.unpack(content[_MARK.size :])[0]
        if checksum == zlib.crc32(body):
            return _Mark(*_MARK.unpack(body))
    return _Mark(1, 0, 0, 0, 0, 0)


def _locked(folder: Path) -> int:
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise Misconfigured(
            f"another agent keeps its records in {folder}: stop it, or give each a "
            "[farside] state_dir of its own"
        ) from None
    except OSError:
        os.close(file)
        raise
    return file


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise Unavailable(
            f"{folder} can't be used ({reason}): make room there or give this user the right to it"
        ) from None
