"""The kernel log: known faults as they happen, and how many lines were lost.

Reads /dev/kmsg without waiting. Lines that are no known fault are counted and stay on the node.

A record's time is its own clock added to the boot's moment, corrected by what is certain: it was
written after the log was last read to its end, and before now. The kernel's clock drifts by seconds
in a week; this does not.

Source: the kernel's ABI/testing/dev-kmsg.
"""

import contextlib
import errno
import os
import select
import stat
from collections.abc import Iterator
from typing import Annotated

import msgspec

from collectors.base import Collector, FoundLine, Reading
from collectors.cgroups import text_of
from collectors.floods import Floods
from collectors.kernel_faults import Recogniser, found
from collectors.kernel_text import number
from collectors.kmsg import LINE_BYTES_MAX, Parser, Record
from runtime.clock import Instant, nanoseconds
from runtime.errors import Unavailable
from runtime.files import SysTree

PATH = "/dev/kmsg"
_RETRY_S = 60.0  # a log that may not be read today may be tomorrow
_READS_MAX = 4000  # of one look: about as many as a log of 512 KiB holds


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[collect.kernel_log]`.

    from_start: begin with what the log holds already, else with what comes; lines_per_s: how many
    lines of one fault on one device pass in a second (the others are counted in the next).
    """

    from_start: bool = False
    lines_per_s: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 20


class KernelLog:
    """Reads the kernel log of one machine."""

    def __init__(self, settings: Settings, tree: SysTree) -> None:
        """Read from `tree`; the log is opened at once, so that nothing after this is missed."""
        self._from_start = settings.from_start
        self._tree = tree
        self._parser = Parser()
        self._recogniser = Recogniser()
        self._floods = Floods(settings.lines_per_s)
        self._descriptor: int | None = None
        self._waits = False
        self._problem = 0
        self._tried: Instant | None = None
        self._boot_ns: int | None = None
        self._drained: Instant | None = None
        self._next: int | None = None
        self._counts = {"recognised": 0, "unrecognised": 0, "lost": 0}
        self._open()

    def collect(self, now: Instant) -> Reading:
        """Return the faults since the last look; nothing where the log may not be read.

        Errors: `Unavailable` when reading fails on the way; the log is opened again later.
        """
        if self._descriptor is None and not self._retry(now):
            return Reading([], [])
        if self._boot_ns is None:
            self._boot_ns = self._boot(now)
        pieces, to_the_end = self._pieces()
        lines: list[FoundLine] = []
        for piece in pieces:
            for record in self._parser.feed(piece):
                lines += self._take(record, now)
        if to_the_end:
            waited_ns = 0 if self._drained is None else max(int(now) - int(self._drained), 0)
            for line in self._recogniser.overdue(now, waited_ns // 1000):
                lines += self._floods.take(line)
            self._drained = now
        lines += self._floods.ended(now)
        return Reading([], lines)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a record; tell whether one is there."""
        descriptor = self._descriptor
        if descriptor is None or not self._waits:
            select.select([], [], [], timeout_s)
            return False
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        events = poll.poll(timeout_s * 1000)
        if any(event & select.POLLIN for _, event in events):
            return True
        if events:  # nobody writes any more: don't go round in haste
            select.select([], [], [], timeout_s)
        return False

    def cannot_see(self) -> list[str]:
        """Say why the kernel log can't be read."""
        if self._descriptor is None:
            self._open()
        if self._descriptor is not None:
            return []
        why = os.strerror(self._problem).lower()
        if self._problem not in {errno.EACCES, errno.EPERM}:
            return [f"faults in the kernel log: {PATH}: {why} (in a container, pass the device in)"]
        remedy = "run farside as root or with CAP_SYSLOG"
        if text_of(self._tree, "/proc/sys/kernel/dmesg_restrict", 16).strip() == "1":
            remedy += ", or set kernel.dmesg_restrict=0 and make the device readable"
        return [f"faults in the kernel log: {PATH}: {why} ({remedy})"]

    def counts(self) -> dict[str, int]:
        """Return how many records were what."""
        return {
            **self._counts,
            "malformed": self._parser.malformed,
            "held back": self._floods.held,
        }

    def close(self) -> None:
        """Close the log."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    # --- reading -------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self._tree.path(PATH), flags)
        except OSError as error:
            self._fail(error.errno or 0)
            return
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            os.close(descriptor)
            self._fail(errno.EISDIR)
            return
        # A plain file (a captured machine) is always "ready": waiting for it would be a busy loop.
        self._waits = stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)
        # What was read before a failure is known by its numbers, so reading on begins at the start.
        whole = self._from_start or self._next is not None
        with contextlib.suppress(OSError):  # a pipe has no start and no end
            os.lseek(descriptor, 0, os.SEEK_SET if whole else os.SEEK_END)
        self._problem = 0
        self._descriptor = descriptor

    def _fail(self, number_of_error: int) -> None:
        self.close()
        self._problem = number_of_error

    def _retry(self, now: Instant) -> bool:
        if self._tried is None or now < self._tried or now.since(self._tried) >= _RETRY_S:
            self._tried = now
            self._open()
        return self._descriptor is not None

    def _pieces(self) -> tuple[list[bytes], bool]:
        """Read what is there; tell whether it was read to its end, or is enough for one look."""
        found_: list[bytes] = []
        if self._descriptor is None:
            return found_, False
        for _ in range(_READS_MAX):
            try:
                piece = os.read(self._descriptor, LINE_BYTES_MAX)
            except BlockingIOError:
                return found_, True
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # overwritten before it was read: the next number tells how many
                self._fail(error.errno or 0)
                raise Unavailable(f"{PATH}: {os.strerror(self._problem).lower()}") from None
            if not piece:
                return found_, True
            found_.append(piece)
        return found_, False

    # --- understanding -------------------------------------------------------------------------

    def _take(self, record: Record, now: Instant) -> Iterator[FoundLine]:
        """Give the lines that a record is worth: what was lost before it, and its fault."""
        expected = self._next
        if expected is not None and record.sequence < expected:
            return  # read before the log was opened anew
        self._next = record.sequence + 1
        time = self._time(record, now)
        if expected is not None and record.sequence > expected:
            yield from self._floods.take(self._lost(record.sequence - expected, time))
        line = self._recogniser.take(record, time)
        if line is None:
            self._counts["unrecognised"] += 1
        else:
            self._counts["recognised"] += 1
            yield from self._floods.take(line)

    def _lost(self, count: int, time: Instant) -> FoundLine:
        self._counts["lost"] += count
        text = f"{count} lines of the kernel log were overwritten before they could be read"
        fields = {"kind": "lost_lines", "severity": "warning", "count": str(count)}
        return found(text, fields, time)

    def _time(self, record: Record, now: Instant) -> Instant:
        if self._boot_ns is None:
            return now
        time = self._boot_ns + record.time_us * 1000
        if self._drained is not None:
            time = max(time, int(self._drained))
        return Instant(min(time, int(now)))

    def _boot(self, now: Instant) -> int | None:
        """Return the moment of the boot, by the node's uptime; None where it is not told."""
        words = text_of(self._tree, "/proc/uptime", 256).split()
        whole, _, fraction = words[0].partition(".") if words else ("", "", "")
        up_s, hundredths = number(whole), number((fraction + "00")[:2])
        if up_s is None or hundredths is None:
            return None
        return int(now) - nanoseconds(up_s + hundredths / 100)


def build(settings: Settings, tree: SysTree) -> Collector:
    """Return the collector."""
    return KernelLog(settings, tree)
