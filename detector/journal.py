"""The order in which the decider took its inputs, turn by turn, on disk.

It reads several topics, and nothing orders them against each other. A turn's line is synced before
anything of that turn is published; after a crash the turns are repeated from here, so that the
same records in the same order give the same incidents, identifiers and commands.

A line is eight digits of checksum, a space and one JSON object. Files are begun anew at a size and
at each start, so that a torn end is never written behind; they are named by their first turn.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bus.transport import Envelope, Place
from runtime.errors import NotPermitted, Unavailable

BYTES_MAX = 128 << 20
SEGMENTS_MAX = 200  # each start begins one
_LOG_CHARS_MAX = 40
_DIGITS = 12
_SUM_CHARS = 8


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Records of one partition that were taken one after the other: offsets first to end - 1.

    `count` is how many they were: a compacted topic has holes.
    """

    topic: str
    partition: int
    first: int
    end: int
    count: int

    @property
    def place(self) -> Place:
        """Return the partition as a source names it."""
        return self.topic, self.partition

    def __str__(self) -> str:
        last = self.end - 1
        which = f"offset {last}" if self.first == last else f"offsets {self.first} to {last}"
        return f"{self.topic} {self.partition}: {which}"


class Turn(msgspec.Struct, frozen=True):
    """What one turn took, in the order in which it was stepped, and from which log."""

    turn: int
    log: str
    ranges: tuple[Range, ...]


class Found(NamedTuple):
    """One line of the journal: its turn, or a sentence on what is wrong with it."""

    turn: Turn | None
    problem: str = ""


def log_mark(identity: str) -> str:
    """Return the identity of a log as a journal names it: itself, or a digest of a long one."""
    if len(identity) <= _LOG_CHARS_MAX:
        return identity
    return hashlib.blake2b(identity.encode(), digest_size=10).hexdigest()


def ranges_of(envelopes: Iterable[Envelope]) -> tuple[Range, ...]:
    """Return the ranges of records in the order in which they stand."""
    ranges: list[Range] = []
    for one in envelopes:
        last = ranges[-1] if ranges else None
        if last is not None and last.place == (one.topic, one.partition):
            ranges[-1] = Range(last.topic, last.partition, last.first, one.offset + 1,
                               last.count + 1)  # fmt: skip
        else:
            ranges.append(Range(one.topic, one.partition, one.offset, one.offset + 1, 1))
    return tuple(ranges)


class Journal:
    """The journal of one owner in a folder: append, sync, read back, drop what is old.

    `bytes_max` bounds what is kept: whole files go, the oldest first, never one with a turn that a
    checkpoint may still need.
    """

    def __init__(self, folder: Path, owner: str, bytes_max: int = BYTES_MAX) -> None:
        """Use `folder/owner.journal.…`; nothing is opened before the first sync."""
        self._folder = folder
        self._owner = owner
        self._bytes_max = bytes_max
        self._segment_bytes = max(bytes_max // 16, 1)
        self._waiting: list[Turn] = []
        self._descriptor: int | None = None
        self._written = 0

    @property
    def unsynced(self) -> int:
        """Return how many turns were appended since the last sync."""
        return len(self._waiting)

    @property
    def kept_bytes(self) -> int:
        """Return how much is on disk."""
        return sum(_size(path) for path in segments(self._folder, self._owner))

    def append(self, turn: Turn) -> None:
        """Note a turn; `sync` writes it."""
        self._waiting.append(turn)

    def sync(self) -> None:
        """Have everything on disk for certain.

        Errors: `Unavailable` when the disk is full or fails, `NotPermitted` without the right; what
        was appended is kept and the next call tries again, in a file of its own: whether a disk
        that failed once has the rest of an old one is not known.
        """
        if not self._waiting:
            return
        block = b"".join(_line(turn) for turn in self._waiting)
        try:
            if self._descriptor is None or self._written >= self._segment_bytes:
                self._begin()
            _write(self._descriptor, block)
        except OSError as error:
            self.close()
            raise _explained(self._folder, error) from None
        self._written += len(block)
        self._waiting.clear()

    def _begin(self) -> None:
        self.close()
        path = self._folder / f"{self._owner}.journal.{self._waiting[0].turn:0{_DIGITS}d}"
        # A file of this name holds nothing but what is about to be written again.
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._written = 0
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def drop(self, turn: int) -> None:
        """Drop the oldest files while there are too many, none with a turn after `turn`."""
        paths = segments(self._folder, self._owner)
        sizes = [_size(path) for path in paths]
        total, number = sum(sizes), len(paths)
        for path, size, after in zip(paths, sizes, paths[1:], strict=False):
            if total <= self._bytes_max and number <= SEGMENTS_MAX:
                return
            if first_turn(after) > turn + 1:
                return
            with contextlib.suppress(OSError):  # it is tried again at the next checkpoint
                path.unlink(missing_ok=True)
            total, number = total - size, number - 1

    def read(self, behind: Callable[[Turn], bool] = lambda _: False) -> Iterator[Found]:
        """Give the turns, the oldest first; files before one that begins `behind` are left out."""
        paths = segments(self._folder, self._owner)
        begin = 0
        for place in range(len(paths) - 1, 0, -1):
            first = next(
                (found.turn for found in read(paths[place : place + 1]) if found.turn), None
            )
            if first is not None and behind(first):
                begin = place
                break
        return read(paths[begin:])

    def forget_unsynced(self) -> None:
        """Forget what was appended and not synced: those turns will be taken anew."""
        self._waiting.clear()
        self.close()

    def close(self) -> None:
        """Let go of the file; what was not synced stays noted."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def segments(folder: Path, owner: str) -> list[Path]:
    """Return an owner's files, the oldest first."""
    found = [
        path for path in folder.glob(f"{owner}.journal.*") if path.suffix[1:].isdecimal()
    ]  # fmt: skip
    return sorted(found, key=first_turn)


def first_turn(path: Path) -> int:
    """Return the turn with which a file begins, as its name says."""
    return int(path.suffix[1:])


def read(paths: Sequence[Path]) -> Iterator[Found]:
    """Give the turns of these files, each once; a torn end is passed over without a word.

    Errors: `NotPermitted` where a file may not be read, `Unavailable` where the disk fails.
    """
    newest = 0
    for path in paths:
        try:
            with path.open("rb") as file:
                lines = enumerate(file, start=1)
                for number, line in lines:
                    turn = _turn(line)
                    if turn is not None and turn.turn > newest:
                        newest = turn.turn
                        yield Found(turn)
                    elif turn is None and line.endswith(b"\n"):
                        yield Found(None, f"{path}: line {number} is damaged and passed over")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _explained(path, error, "read") from None


def _line(turn: Turn) -> bytes:
    text = msgspec.json.encode(turn)
    return b"%s %s\n" % (_sum(text), text)


def _turn(line: bytes) -> Turn | None:
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != _sum(text):
        return None
    try:
        return msgspec.json.decode(text, type=Turn)
    except (msgspec.DecodeError, ValueError):
        return None


def _sum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_SUM_CHARS // 2).hexdigest().encode()


def _write(descriptor: int | None, block: bytes) -> None:
    if descriptor is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _explained(path: Path, error: OSError, what: str = "written") -> Unavailable | NotPermitted:
    reason = os.strerror(error.errno or 0).lower()
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return NotPermitted(
            f"the journal in {path} can't be {what} ({reason}): give this user the right to it"
        )
    return Unavailable(
        f"the journal in {path} can't be {what} ({reason}): make room, or set another state_dir",
        retry_after_s=10.0,
    )
