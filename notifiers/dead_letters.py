"""What could not be told, kept on this machine's disk until a person has seen to it.

One JSON object a line, appended and synced. Beyond `bytes_max` the file is moved to FILE.1 (in
place of an older one) and begun anew, so that two files of that size are the most there is.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bus.codec import Malformed, decode, to_json
from bus.messages import Outcome, Severity
from notifiers.base import Notice, notice_of
from runtime.clock import Instant
from runtime.errors import FarsideError, NotPermitted, Unavailable
from runtime.files import take_lock

BYTES_MAX = 16 << 20


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One line: the notice, and why it did not arrive.

    id: the notice's, as in the header webhook-id. time: when it was given up, changed: when the
    incident came into that state (both RFC 3339). message: an Incident or a Refusal.
    """

    id: str
    time: str
    notifier: str
    outcome: Outcome
    detail: str
    incident: str
    state: str
    changed: str
    severity: Severity
    sentence: str
    message: msgspec.Raw


def letter(notifier: str, notice: Notice, outcome: Outcome, detail: str, now: Instant) -> Letter:
    """Return the line for a notice that was given up."""
    return Letter(
        id=notice.id,
        time=now.text(),
        notifier=notifier,
        outcome=outcome,
        detail=detail,
        incident=notice.incident,
        state=notice.state,
        changed=notice.time.text(),
        severity=notice.severity,
        sentence=notice.sentence,
        message=msgspec.Raw(to_json(notice.message)),
    )


def notices(lines: Iterable[bytes]) -> Iterator[Notice]:
    """Give the notices of a file's lines, to be told again under the same ids.

    A line that a crash cut short is passed over.
    """
    for line in lines:
        try:
            notice = notice_of(decode(bytes(_DECODER.decode(line).message)))
        except (msgspec.DecodeError, Malformed):
            continue
        if notice is not None:
            yield notice


class DeadLetters:
    """A file of letters with one writer, who holds a lock beside it; nothing at all without a path.

    Errors: `Misconfigured` when another process writes it, `NotPermitted` when the folder may not
    be written, `Unavailable` when the disk is full.
    """

    def __init__(self, path: Path | None, bytes_max: int = BYTES_MAX) -> None:
        """Remember where and how much to keep; `open` opens it."""
        self._path = path
        self._bytes_max = bytes_max
        self._lock = -1

    def open(self) -> None:
        """Take the lock, so that a second writer learns of it at its start."""
        if self._path is None or self._lock >= 0:
            return
        self._lock = take_lock(self._path)

    def keep(self, one: Letter) -> None:
        """Append a line and sync it."""
        if self._path is None:
            return
        self.open()
        line = msgspec.json.encode(one) + b"\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._turn_over(len(line))
            descriptor = os.open(self._path, flags, 0o600)
            try:
                _append(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _explained(self._path, error) from None

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _turn_over(self, more_bytes: int) -> None:
        if self._path is None or not self._path.exists():
            return
        if self._path.stat().st_size + more_bytes > self._bytes_max:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))


def _append(descriptor: int, line: bytes) -> None:
    """Write one line whole, on a line of its own; what the disk took in part is taken back."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a crash cut the last one short
        line = b"\n" + line
    if os.write(descriptor, line) < len(line):
        os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, "")
    os.fdatasync(descriptor)


def _explained(path: Path, error: OSError) -> FarsideError:
    reason = os.strerror(error.errno or 0).lower()
    if isinstance(error, PermissionError):
        return NotPermitted(f"{path}: {reason}: give this user the right to its folder")
    return Unavailable(f"{path}: {reason}: make room or set another state_dir", retry_after_s=10.0)


_DECODER = msgspec.json.Decoder(Letter)
