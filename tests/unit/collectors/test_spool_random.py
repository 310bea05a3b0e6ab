"""The spool under any order of events, crashes among them: nothing is lost in silence."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.spool import Kept, Settings, Spool
from tests.unit.collectors.spooling import Key, batch, key, killed, line, segments

STEPS = ("batch", "line", "take", "done", "back", "keep", "save", "kill", "cut", "end")
ORDINARY = STEPS[:6]


class Life:
    """A spool beside what it should hold.

    `unacknowledged` are the records of all starts that must still be delivered; `written` and
    `synced` those of them that a kill, or a power cut, may not take; `repeats` those that may be
    delivered once more (acknowledged, but not marked) or, after a power cut, may have survived.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = itertools.count()
        self.appended: list[Key] = []
        self.unacknowledged: set[Key] = set()
        self.written: set[Key] = set()
        self.synced: set[Key] = set()
        self.repeats: set[Key] = set()
        self.acknowledged: set[Key] = set()
        self.gone: set[Key] = set()
        self.sizes: dict[str, int] = {}
        self.now_s = 0.0
        self.begin()

    def begin(self) -> None:
        self.start = f"{next(self.starts):04d}"
        self.sequence = 0
        self.flight: list[Kept] = []
        self.spool = Spool(Settings(disk_after_s=0.0, sync_s=2.0), self.folder)

    def step(self, step: str, choice: int) -> None:
        self.now_s += 1.0
        if step in {"batch", "line"}:
            self.append(step)
        elif step == "take":
            self.take()
        elif step in {"done", "back"} and self.flight:
            kept = self.flight.pop(choice % len(self.flight))
            (self.acknowledge if step == "done" else self.spool.give_back)(kept)
        elif step == "keep":
            self.spool.keep(self.now_s)
            self.written = set(self.unacknowledged)
        elif step == "save":
            self.save()
        elif step == "kill":
            self.crash(killed(self.folder), self.written)
        elif step == "cut":
            self.crash(self.power_cut(choice), self.synced)
        elif step == "end":
            self.save()
            assert self.spool.close() == 0
            self.repeats = set(self.appended) - self.unacknowledged
            self.begin()

    def append(self, kind: str) -> None:
        self.sequence += 1
        make = batch if kind == "batch" else line
        self.spool.append(make(self.sequence, start=self.start), self.now_s)
        self.appended.append((self.start, self.sequence))
        self.unacknowledged.add((self.start, self.sequence))

    def take(self) -> None:
        """What is taken is the oldest that is not on its way; a repeat lies before it."""
        due = min(self.unacknowledged - {key(kept) for kept in self.flight}, default=None)
        kept = self.spool.take()
        if kept is None:
            assert due is None
            return
        if key(kept) in self.repeats:
            assert due is None or key(kept) < due
            self.repeats.discard(key(kept))
            self.unacknowledged.add(key(kept))
        else:
            assert key(kept) == due
        self.flight.append(kept)

    def acknowledge(self, kept: Kept) -> None:
        self.spool.done(kept)
        self.acknowledged.add(key(kept))
        self.unacknowledged.discard(key(kept))

    def save(self) -> None:
        self.spool.save(self.now_s)
        self.written = self.synced = set(self.unacknowledged)
        self.sizes = {path.name: path.stat().st_size for path in segments(self.folder)}

    def crash(self, left: Path, safe: set[Key]) -> None:
        self.spool.close()  # gives its open files back; the next one reads what was left before
        self.folder = left
        safe &= self.unacknowledged
        self.gone |= self.unacknowledged - safe
        self.repeats = set(self.appended) - safe
        self.unacknowledged, self.written, self.synced = set(safe), set(safe), set(safe)
        self.begin()
        self.sizes = {path.name: path.stat().st_size for path in segments(self.folder)}

    def power_cut(self, choice: int) -> Path:
        """What was not synced may be there in part, or be followed by bytes that mean nothing."""
        left = killed(self.folder)
        for path in segments(left):
            size, sure = path.stat().st_size, self.sizes.get(path.name, 0)
            os.truncate(path, sure + choice % (size - sure + 1))
            if choice % 3 == 0 and path.stat().st_size < size:
                with path.open("ab") as file:
                    file.write(b"\0" * 20)
        return left

    def finish(self) -> None:
        """Deliver everything that is left."""
        while (kept := self.spool.take()) is not None:
            self.spool.give_back(kept)
            self.take()
            self.acknowledge(self.flight.pop())
        for kept in list(self.flight):
            self.acknowledge(kept)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1000)), max_size=60))
def test_whatever_happens_each_record_is_delivered_in_order_or_was_in_memory_alone(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    life = Life(tmp_path_factory.mktemp("spool") / "s")
    for step, choice in steps:
        life.step(step, choice)
    life.finish()
    assert life.unacknowledged == set()
    assert life.acknowledged | life.gone == set(life.appended)
    assert (len(life.spool), life.spool.bytes, segments(life.folder)) == (0, 0, [])
    life.spool.close()


@given(
    st.lists(st.sampled_from(ORDINARY), max_size=150),
    st.integers(4, 40),
    st.sampled_from(["disk", "memory"]),
)
def test_within_any_bounds_what_was_sent_and_what_was_dropped_is_all_there_was(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], records_max: int, where: str
) -> None:
    bounds = Settings(
        records_max=records_max, disk=where == "disk", disk_after_s=0.0, disk_bytes_max=2048
    )
    spool = Spool(bounds, tmp_path_factory.mktemp("spool"))
    added, sent, flight = 0, [], list[Kept]()
    for step in steps:
        if step in {"batch", "line"}:
            added += 1
            spool.append(batch(added) if step == "batch" else line(added))
        elif step == "take" and len(flight) < 3 and (kept := spool.take()) is not None:
            flight.append(kept)
        elif step == "done" and flight:
            kept = flight.pop(0)
            spool.done(kept)
            sent.append(kept.record.sequence)
        elif step == "back":
            for kept in flight:
                spool.give_back(kept)
            flight = []
        elif step == "keep":
            spool.keep(float(added))
        assert spool.disk_bytes <= 2048
        assert spool.count().memory + spool.count().flight <= records_max + 3
        assert len(spool) + len(sent) + sum(spool.dropped.values()) == added
    for kept in flight:
        spool.give_back(kept)
    while (rest := spool.take()) is not None:
        spool.done(rest)
        sent.append(rest.record.sequence)
    dropped = sum(spool.dropped.values())
    spool.close()
    assert (sent, len(sent) + dropped) == (sorted(sent), added)
