"""Records for the tests of the spool, and what a crash leaves of its folder."""

import os
import shutil
from pathlib import Path

from bus.messages import LogLine, SampleBatch
from bus.samples import Samples
from collectors.spool import Kept, Spool
from runtime.clock import Instant

LAYOUT = Samples.of([("m", "d", 1.0)]).layout
Key = tuple[str, int]  # start and sequence


def batch(sequence: int, start: str = "s") -> SampleBatch:
    return SampleBatch(
        cluster="c",
        node="n",
        boot="b",
        start=start,
        time=Instant(sequence),
        sequence=sequence,
        samples=Samples(LAYOUT, b"\0" * 8),
    )


def line(sequence: int, text: str = "t", start: str = "s") -> LogLine:
    return LogLine(
        cluster="c",
        node="n",
        boot="b",
        start=start,
        time=Instant(sequence),
        sequence=sequence,
        source="kernel",
        text=text,
    )


def key(kept: Kept) -> Key:
    return kept.record.start, kept.record.sequence


def drained(spool: Spool) -> list[int]:
    """Take and acknowledge everything; return the sequence numbers."""
    return [sequence for _, sequence in drained_keys(spool)]


def drained_keys(spool: Spool) -> list[Key]:
    found = []
    while (kept := spool.take()) is not None:
        found.append(key(kept))
        spool.done(kept)
    return found


def killed(folder: Path) -> Path:
    """Return what a kill at this moment leaves: all that was written, and no lock."""
    left = folder.with_name(folder.name + "'")
    shutil.copytree(folder, left)
    return left


def segments(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in {".batch", ".line"})


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)
