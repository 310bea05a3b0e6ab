"""What the bus has not acknowledged: memory first, the disk behind it, one order over both.

A record passes `append` → `take` (it is handed to the bus) → `done` (acknowledged, or refused for
good); `give_back` is for what was given up on the way: it is taken again before anything newer.
`keep` writes to disk what has waited too long. Everything on disk is older than everything that is
in memory alone.

`append` may be called from any thread and does no more than move memory (under a lock that nobody
holds while he reads, writes or waits; `keep` holds it longest, for as long as it takes to move
`records_max` references, about a millisecond). All else belongs to the one thread that sends.
"""

import bisect
import threading
from pathlib import Path
from typing import NamedTuple

from bus.codec import Codec, Malformed
from bus.messages import LogLine, SampleBatch
from collectors.spool.disk import Disk, Head
from collectors.spool.memory import Kept, Kind, Place, Record, Sizes, Waiting
from collectors.spool.settings import Settings
from runtime import logs
from runtime.clock import Instant
from runtime.errors import Unavailable

_DISK_PAUSE_S = 10.0  # after a failure, before the disk is tried again


class Count(NamedTuple):
    """How many records are where: in memory alone, on disk, on their way to the bus."""

    memory: int
    disk: int
    flight: int


class Spool:
    """The records of one node in their order, over its agent's starts."""

    def __init__(self, settings: Settings | None = None, folder: Path | None = None) -> None:
        """Take up what an earlier start left in `folder`; without one, keep in memory alone.

        Errors: `Misconfigured` when another agent has the folder.
        """
        self._settings = settings or Settings()
        self._log = logs.get(worker="agent")
        self._lock = threading.Lock()
        self._codec = Codec()
        self._sizes = Sizes()
        self._waiting = Waiting()
        self._out: dict[int, Kept] = {}
        self._out_bytes = 0
        self._again: list[Kept] = []
        self._head: tuple[Head, Record] | None = None
        self._given_up: dict[Kind, int] = {"batch": 0, "line": 0}
        self._failing = False
        self._disk_again_s = 0.0
        self._sync_s: float | None = None
        self._marked_s = 0.0
        self.disk_failures = 0
        self._unreadable = 0
        self._disk = self._opened(folder) if self._settings.disk else None
        self._number = self._disk.newest if self._disk is not None else 0

    def _opened(self, folder: Path | None) -> Disk | None:
        if folder is None:
            return None
        try:
            disk = Disk(folder, self._settings.disk_bytes_max)
        except Unavailable as error:
            self.disk_failures += 1
            self._log.warning(
                "records are kept in memory alone until the next start", why=str(error)
            )
            return None
        if disk.unread or disk.damaged or disk.lost:
            self._log.info(
                "records of an earlier start are sent first",
                records=disk.unread,
                damaged=disk.damaged,
                lost=disk.lost,
            )
        return disk

    # --- what is there -------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many records the bus has not acknowledged."""
        return sum(self.count())

    @property
    def newest(self) -> int:
        """Return the number of the newest record: how many came, over all starts."""
        return self._number

    @property
    def waits(self) -> bool:
        """Tell whether a record can be taken."""
        return bool(self._again or self._waiting or (self._disk is not None and self._disk.unread))

    @property
    def durable(self) -> bool:
        """Tell whether there is a disk to keep records on."""
        return self._disk is not None

    @property
    def bytes(self) -> int:
        """Return about how much memory is in use."""
        return self._waiting.bytes + self._out_bytes

    @property
    def disk_bytes(self) -> int:
        """Return how much room on disk is in use."""
        return 0 if self._disk is None else self._disk.bytes

    @property
    def dropped(self) -> dict[Kind, int]:
        """Return how many records were given up for room, by kind."""
        on_disk = self._disk.dropped if self._disk is not None else {}
        return {kind: count + on_disk.get(kind, 0) for kind, count in self._given_up.items()}

    @property
    def damaged(self) -> int:
        """Return how many places on disk held no record that could be read."""
        return self._unreadable + (0 if self._disk is None else self._disk.damaged)

    @property
    def lost(self) -> int:
        """Return about how many records of the start before went with it: in memory alone."""
        return 0 if self._disk is None else self._disk.lost

    def count(self) -> Count:
        """Return how many records are where; what was given up counts by where it lies."""
        on_disk = 0 if self._disk is None else self._disk.unread
        back_on_disk = sum(1 for kept in self._again if kept.place is not None)
        back = len(self._again)
        return Count(
            memory=len(self._waiting) + back - back_on_disk,
            disk=on_disk + back_on_disk,
            flight=len(self._out) - back,
        )

    def oldest(self) -> Instant | None:
        """Return when the oldest unacknowledged record happened."""
        for kept in self._out.values():
            return kept.record.time
        head = self._disk_head()
        if head is not None:
            return head[1].time
        with self._lock:
            first = self._waiting.head()
        return None if first is None else first.record.time

    # --- a record's way ------------------------------------------------------------------------

    def append(self, record: Record, now_s: float = 0.0) -> None:
        """Keep a record; drop what no longer fits, the new one itself if need be."""
        with self._lock:
            self._number += 1
            self._waiting.append(Kept(self._number, record, now_s, self._sizes.of(record)))
            while self._too_much(1):
                kept = self._waiting.give_up()
                if kept is None:
                    return
                self._given_up[kept.kind] += 1

    def take(self) -> Kept | None:
        """Return the oldest record that is not on its way: what was given back comes first."""
        if self._again:
            return self._again.pop(0)
        head = self._disk_head()
        if head is not None and self._disk is not None:
            kept = Kept(head[0].frame.number, head[1], 0.0, self._sizes.of(head[1]))
            kept.place = head[0].place
            self._disk.take(head[0])
            self._head = None
            self._hand_out(kept)
            return kept
        with self._lock:
            waiting = self._waiting.pop()
            if waiting is not None:
                self._hand_out(waiting)
        return waiting

    def give_back(self, kept: Kept) -> None:
        """Take back what was not acknowledged; it is taken again in its order."""
        bisect.insort(self._again, kept, key=lambda one: one.number)

    def done(self, kept: Kept) -> None:
        """Forget a record that was taken: the bus has it, or never will."""
        if self._out.pop(kept.number, None) is not None:
            self._out_bytes -= kept.bytes
            if kept.place is not None and self._disk is not None:
                self._disk.settle(kept.place)

    def _hand_out(self, kept: Kept) -> None:
        self._out[kept.number] = kept
        self._out_bytes += kept.bytes

    def _too_much(self, parts: int) -> bool:
        """Tell whether more than one of so many parts of the memory is in use."""
        held = len(self._waiting) + len(self._out)
        limits = self._settings
        return held * parts > limits.records_max or self.bytes * parts > limits.bytes_max

    # --- the disk ------------------------------------------------------------------------------

    def keep(self, now_s: float) -> None:
        """Write what has waited too long, and see that the disk has it for certain."""
        disk = self._disk
        if disk is None or now_s < self._disk_again_s:
            return
        try:
            if self._must_write(disk, now_s):
                self._write(disk)
            if disk.unsynced:
                self._sync_s = self._sync_s or now_s + self._settings.sync_s
                if now_s >= self._sync_s:
                    disk.sync()
                    self._sync_s = None
            if now_s >= self._marked_s:
                disk.mark(len(self))
                self._marked_s = now_s + self._settings.sync_s
        except Unavailable as error:
            self._disk_failed(error, now_s)
        else:
            if self._failing:
                self._failing = False
                self._log.info("records can be written to disk again")

    def due_s(self, now_s: float) -> float:
        """Return in how many seconds `keep` has something to do."""
        if self._disk is None:
            return float("inf")
        since_s = self._memory_since_s()
        times = [self._sync_s] if self._sync_s is not None else []
        if since_s is not None:
            times.append(since_s + self._settings.disk_after_s)
        due_s = min(times, default=float("inf"))
        return max(max(due_s, self._disk_again_s) - now_s, 0.0)

    def save(self, now_s: float) -> None:
        """Write everything to disk, and wait until it is there."""
        if self._disk is not None:
            try:
                self._write(self._disk)
                self._disk.sync()
                self._sync_s = None
            except Unavailable as error:
                self._disk_failed(error, now_s)

    def close(self) -> int:
        """Give the folder back; return how many unacknowledged records are not on disk."""
        if self._disk is not None:
            try:
                self._disk.mark(len(self))
            except Unavailable as error:
                self._disk_failed(error, 0.0)
            self._disk.close()
            self._disk = None
        unwritten = sum(1 for kept in self._out.values() if kept.place is None)
        return unwritten + len(self._waiting)

    def _must_write(self, disk: Disk, now_s: float) -> bool:
        since_s = self._memory_since_s()
        if since_s is None:
            return False
        if disk.unread or now_s - since_s >= self._settings.disk_after_s:
            return True
        return self._too_much(2)

    def _memory_since_s(self) -> float | None:
        """Return since when the oldest record is in memory alone."""
        for kept in self._out.values():
            if kept.place is None:
                return kept.since_s
        with self._lock:
            first = self._waiting.head()
        return None if first is None else first.since_s

    def _write(self, disk: Disk) -> None:
        """Write all that is in memory alone, the oldest first: what is on its way leads."""
        for kept in self._out.values():
            if kept.place is None:
                kept.place = self._written(disk, kept, handed_out=True)
        with self._lock:
            waiting = self._waiting.drain()
        written = 0
        try:
            for kept in waiting:
                self._written(disk, kept, handed_out=False)
                written += 1
        finally:
            with self._lock:
                self._waiting.put_back(waiting[written:])

    def _written(self, disk: Disk, kept: Kept, *, handed_out: bool) -> Place:
        record = self._codec.encode(kept.record)
        return disk.write(kept.kind, kept.number, record, handed_out=handed_out)

    def _disk_head(self) -> tuple[Head, Record] | None:
        """Return the oldest record on disk; what is no record of ours is passed over."""
        if self._head and self._disk and not self._disk.holds(self._head[0].place):
            self._head = None  # dropped for room
        while self._head is None and self._disk is not None:
            head = self._disk.head()
            if head is None:
                return None
            try:
                record = self._codec.decode(head.frame.record)
            except Malformed:
                record = None
            if isinstance(record, SampleBatch | LogLine):
                self._head = (head, record)
            else:
                self._unreadable += 1
                self._disk.take(head)
                self._disk.settle(head.place)
        return self._head

    def _disk_failed(self, error: Unavailable, now_s: float) -> None:
        self.disk_failures += 1
        self._disk_again_s = now_s + _DISK_PAUSE_S
        if not self._failing:
            self._failing = True
            self._log.warning("records are kept in memory alone", why=str(error))
