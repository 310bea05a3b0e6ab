"""What the bus can't take now: kept in memory, in order, within bounds.

A record leaves only when the bus has taken it. Where there are too many, the oldest telemetry is
dropped first and log lines last, and each one dropped is counted.
"""

from collections import deque
from typing import Annotated, NamedTuple

import msgspec

from bus.messages import LogLine, SampleBatch
from bus.samples import Layout

_OVERHEAD_BYTES = 400  # of one record as Python keeps it, about


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is kept: an hour of a second's batches, in at most 16 MiB."""

    records_max: Annotated[int, msgspec.Meta(ge=1)] = 3600
    bytes_max: Annotated[int, msgspec.Meta(ge=1 << 16)] = 16 << 20


class _Kept(NamedTuple):
    record: SampleBatch | LogLine
    bytes: int


class Spool:
    """Records in the order of their numbers; used under its owner's lock."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Begin empty."""
        self._settings = settings or Settings()
        self._batches: deque[_Kept] = deque()
        self._lines: deque[_Kept] = deque()
        self._bytes = 0
        self._layout: Layout | None = None
        self.dropped = {"batch": 0, "line": 0}

    def __len__(self) -> int:
        return len(self._batches) + len(self._lines)

    @property
    def bytes(self) -> int:
        """Return about how much memory is in use."""
        return self._bytes

    def append(self, record: SampleBatch | LogLine) -> None:
        """Keep a record; drop what no longer fits, the new one itself if need be."""
        kept = _Kept(record, self._size(record))
        (self._batches if isinstance(record, SampleBatch) else self._lines).append(kept)
        self._bytes += kept.bytes
        while len(self) > self._settings.records_max or self._bytes > self._settings.bytes_max:
            self._drop()

    def head(self) -> SampleBatch | LogLine | None:
        """Return the oldest record, None where there is none; `taken` lets it go."""
        queue = self._oldest()
        return queue[0].record if queue else None

    def taken(self) -> None:
        """Forget the oldest record: the bus has it."""
        queue = self._oldest()
        if queue:
            self._bytes -= queue.popleft().bytes

    def _oldest(self) -> deque[_Kept]:
        if not self._batches or not self._lines:
            return self._batches or self._lines
        batch, line = self._batches[0].record, self._lines[0].record
        return self._batches if batch.sequence < line.sequence else self._lines

    def _drop(self) -> None:
        kind, queue = ("batch", self._batches) if self._batches else ("line", self._lines)
        self._bytes -= queue.popleft().bytes
        self.dropped[kind] += 1

    def _size(self, record: SampleBatch | LogLine) -> int:
        if isinstance(record, LogLine):
            words = sum(len(name) + len(value) for name, value in record.fields.items())
            return _OVERHEAD_BYTES + 2 * (len(record.text) + words)
        layout, size = record.samples.layout, len(record.samples.values)
        if layout is not self._layout:  # batches share the names; they are counted once
            self._layout = layout
            size += 3 * len(layout.names)
        return _OVERHEAD_BYTES + size
