"""The spool's disk, on real files: what a crash leaves, in which order, and what bounds it."""

import contextlib
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.spool import Settings, Spool
from collectors.spool.segment import MAGIC, Damage, framed, frames
from runtime.errors import Misconfigured
from runtime.process import start
from tests.unit.collectors.spooling import (
    batch,
    cut,
    drained,
    drained_keys,
    killed,
    line,
    segments,
)

AT_ONCE = Settings(disk_after_s=0.0)
SMALL = Settings(disk_after_s=0.0, disk_bytes_max=1 << 16)  # segments of 4 KiB
SOON_S = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def filled(folder: Path, count: int, settings: Settings = AT_ONCE) -> Spool:
    """Return a spool with so many batches, all of them written."""
    spool = Spool(settings, folder)
    for number in range(1, count + 1):
        spool.append(batch(number))
    spool.keep(0.0)
    return spool


def test_what_the_bus_takes_in_time_never_touches_the_disk(folder: Path) -> None:
    spool = Spool(Settings(disk_after_s=3.0), folder)
    for second in range(10):
        spool.append(batch(second), float(second))
        spool.keep(second + 0.5)
        drained(spool)
    spool.keep(20.0)
    assert segments(folder) == []


def test_what_waits_too_long_goes_to_disk_with_all_that_is_younger(folder: Path) -> None:
    spool = Spool(Settings(disk_after_s=3.0), folder)
    spool.append(batch(1), 0.0)
    spool.append(batch(2), 2.0)
    spool.keep(2.9)
    early = spool.count()
    spool.keep(3.0)
    late = spool.count()
    spool.append(batch(3), 3.1)
    spool.keep(3.1)  # behind what is on disk nothing waits for its own time
    assert [early, late, spool.count()] == [(2, 0, 0), (0, 2, 0), (0, 3, 0)]
    assert spool.bytes == 0


def test_what_is_on_its_way_goes_to_disk_too_and_is_not_sent_twice(folder: Path) -> None:
    spool = Spool(AT_ONCE, folder)
    for number in (1, 2, 3):
        spool.append(batch(number))
    on_its_way = spool.take()
    spool.keep(0.0)
    after_a_kill = Spool(AT_ONCE, killed(folder))
    assert on_its_way is not None
    spool.done(on_its_way)
    assert (drained(after_a_kill), drained(spool)) == ([1, 2, 3], [2, 3])


def test_a_full_memory_goes_to_disk_before_anything_is_dropped(folder: Path) -> None:
    spool = Spool(Settings(records_max=10, disk_after_s=60.0), folder)
    for number in range(1, 31):
        spool.append(batch(number))
        spool.keep(0.0)
    assert (spool.dropped, drained(spool)) == ({"batch": 0, "line": 0}, list(range(1, 31)))


def test_an_earlier_start_is_sent_first_with_its_own_names_and_numbers(folder: Path) -> None:
    first = Spool(AT_ONCE, folder)
    for number in (1, 2):
        first.append(batch(number, start="a"))
        first.append(line(number + 10, start="a"))
    first.save(0.0)
    first.close()
    second = Spool(AT_ONCE, folder)
    second.append(batch(1, start="b"))
    second.save(0.0)
    second.close()
    third = Spool(AT_ONCE, folder)
    third.append(line(1, start="c"))
    sent = drained_keys(third)
    assert sent == [("a", 1), ("a", 11), ("a", 2), ("a", 12), ("b", 1), ("c", 1)]


@given(st.data())
def test_a_torn_end_is_passed_over_and_all_before_it_is_there(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("torn") / "spool"
    filled(folder, 5)
    left = killed(folder)
    (segment,) = segments(left)
    content = segment.read_bytes()
    size = data.draw(st.integers(0, len(content)))
    cut(segment, size)
    whole = [found for found in frames(content) if found.end <= size]
    spool = Spool(AT_ONCE, left)
    spool.append(batch(99, start="next"))
    torn = size not in {0, len(MAGIC), *(found.end for found in whole)}
    assert (spool.damaged, drained(spool)) == (int(torn), [*range(1, len(whole) + 1), 99])


def test_a_record_damaged_in_the_middle_costs_itself_alone(folder: Path) -> None:
    filled(folder, 5)
    left = killed(folder)
    (segment,) = segments(left)
    content = bytearray(segment.read_bytes())
    third = list(frames(bytes(content)))[2]
    content[third.end - 1] ^= 0xFF
    segment.write_bytes(content)
    spool = Spool(AT_ONCE, left)
    assert (spool.damaged, drained(spool)) == (1, [1, 2, 4, 5])


@given(st.binary(max_size=200))
def test_any_bytes_in_a_segment_are_frames_or_damage_up_to_the_end(garbage: bytes) -> None:
    content = MAGIC + framed(1, b"one") + garbage
    found = list(frames(content))
    ends = [one.end for one in found]
    assert (ends, ends[-1], found[0].offset) == (sorted(ends), len(content), len(MAGIC))
    assert not isinstance(found[0], Damage)


def test_bytes_that_are_no_record_of_ours_are_passed_over_and_counted(folder: Path) -> None:
    folder.mkdir()
    strange = MAGIC + framed(1, b"not a message") + framed(2, b"")
    (folder / "0000000000000001.batch").write_bytes(strange)
    (folder / "0000000000000002.line").write_bytes(b"something else altogether")
    (folder / "a note of the admin").write_text("kept")
    spool = Spool(AT_ONCE, folder)
    spool.append(batch(1))
    assert (drained(spool), spool.damaged) == ([1], 3)
    assert (folder / "a note of the admin").read_text() == "kept"


def test_a_file_stays_until_all_in_it_is_acknowledged(folder: Path) -> None:
    spool = filled(folder, 3)
    taken = [spool.take() for _ in range(3)]
    there = []
    for kept in (taken[2], taken[0], taken[1]):
        assert kept is not None
        there.append(len(segments(folder)))
        spool.done(kept)
    assert (there, segments(folder)) == ([1, 1, 1], [])


def test_what_was_acknowledged_before_a_restart_is_not_sent_again(folder: Path) -> None:
    spool = filled(folder, 5)
    for _ in range(3):
        kept = spool.take()
        assert kept is not None
        spool.done(kept)
    spool.save(0.0)
    spool.close()
    assert drained(Spool(AT_ONCE, folder)) == [4, 5]


def test_a_kill_repeats_at_most_what_was_acknowledged_since_the_last_mark(folder: Path) -> None:
    spool = filled(folder, 5)
    for now_s in (2.0, 4.0):
        kept = spool.take()
        assert kept is not None
        spool.done(kept)
        if now_s < 3.0:
            spool.keep(now_s)
    assert drained(Spool(AT_ONCE, killed(folder))) == [2, 3, 4, 5]


def test_a_mark_that_is_torn_is_no_mark(folder: Path) -> None:
    spool = filled(folder, 3)
    kept = spool.take()
    assert kept is not None
    spool.done(kept)
    spool.save(0.0)
    spool.close()
    cut(folder / "position", 20)
    assert drained(Spool(AT_ONCE, folder)) == [1, 2, 3]


def test_what_a_kill_took_from_memory_is_counted_by_the_next_start(folder: Path) -> None:
    spool = Spool(Settings(disk_after_s=3.0), folder)
    for number in range(1, 8):
        spool.append(batch(number), 0.0)
    spool.keep(0.0)
    after = Spool(AT_ONCE, killed(folder))
    assert (after.lost, len(after)) == (7, 0)


def test_nothing_counts_as_lost_after_a_clean_end(folder: Path) -> None:
    spool = Spool(Settings(disk_after_s=3.0), folder)
    for number in range(1, 8):
        spool.append(batch(number), 0.0)
    spool.keep(0.0)
    spool.save(0.0)
    left = spool.close()
    after = Spool(AT_ONCE, folder)
    assert (left, after.lost, len(after)) == (0, 0, 7)


def test_a_second_agent_is_refused_the_folder_with_a_sentence(folder: Path) -> None:
    first = Spool(AT_ONCE, folder)
    with pytest.raises(Misconfigured, match=r"another agent keeps its records in .*state_dir"):
        Spool(AT_ONCE, folder)
    first.close()
    Spool(AT_ONCE, folder).close()


def test_without_a_folder_and_with_disk_off_everything_stays_in_memory(folder: Path) -> None:
    nowhere, off = Spool(AT_ONCE), Spool(Settings(disk=False, disk_after_s=0.0), folder)
    for spool in (nowhere, off):
        spool.append(batch(1))
        spool.keep(10.0)
        spool.save(10.0)
    assert (nowhere.count(), off.count(), folder.exists()) == ((1, 0, 0), (1, 0, 0), False)


def test_of_too_much_on_disk_old_telemetry_goes_first_and_lines_stay(folder: Path) -> None:
    spool = Spool(SMALL, folder)
    for number in range(1, 1001):
        spool.append(line(number) if number % 100 == 0 else batch(number))
        spool.keep(0.0)
    fits = spool.disk_bytes <= SMALL.disk_bytes_max
    sent = drained(spool)
    dropped = spool.dropped
    assert fits
    assert [number for number in sent if number % 100 == 0] == list(range(100, 1001, 100))
    assert sent == sorted(sent)
    assert (sent[-1], dropped["line"], len(sent) + dropped["batch"]) == (1000, 0, 1000)
    assert 0 < dropped["batch"] < 900


def test_of_too_many_lines_on_disk_the_oldest_go(folder: Path) -> None:
    spool = Spool(SMALL, folder)
    for number in range(1, 201):
        spool.append(line(number, "x" * 1000))
        spool.keep(0.0)
    dropped = spool.dropped["line"]
    assert (dropped > 0, drained(spool)) == (True, list(range(dropped + 1, 201)))


def test_what_is_on_its_way_while_its_file_is_dropped_is_still_acknowledged(folder: Path) -> None:
    spool = filled(folder, 1, SMALL)
    first = spool.take()
    for number in range(2, 1001):
        spool.append(batch(number))
        spool.keep(0.0)
    assert first is not None
    spool.give_back(first)
    again = spool.take()
    assert again is first
    spool.done(again)
    assert len(drained(spool)) + 1 + spool.dropped["batch"] == 1000


@contextlib.contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Let no file grow beyond `room` bytes: writes end short, then fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_is_told_once_and_counted_and_memory_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = Spool(AT_ONCE, folder)
    with full_disk(100):
        for number in range(1, 31):
            spool.append(batch(number))
            spool.keep(20.0 * number)
    told = capsys.readouterr()
    files = segments(folder)
    assert (told.out + told.err).count("records are kept in memory alone") == 1
    assert (spool.disk_failures, spool.count(), files) == (30, (30, 0, 0), [])


def test_a_disk_that_has_room_again_is_used_again_behind_what_it_holds(folder: Path) -> None:
    spool = Spool(AT_ONCE, folder)
    with full_disk(1000):  # a few records fit, one does in part
        for number in range(1, 11):
            spool.append(batch(number))
        spool.keep(0.0)
    some = spool.count()
    spool.keep(1.0)  # left alone for a while
    same = spool.count()
    spool.append(batch(11))
    spool.keep(30.0)
    left = Spool(AT_ONCE, killed(folder))
    assert (0 < some.disk < 10, same == some, spool.count()) == (True, True, (0, 11, 0))
    assert (left.damaged, drained(left), drained(spool)) == (0, [*range(1, 12)], [*range(1, 12)])


def test_a_folder_that_cannot_be_used_is_told_and_memory_goes_on(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file stands in the way")
    spool = Spool(AT_ONCE, tmp_path / "spool")
    spool.append(batch(1))
    spool.keep(0.0)
    assert (spool.durable, spool.disk_failures, drained(spool)) == (False, 1, [1])


def test_a_folder_that_is_taken_away_costs_what_was_in_it_and_no_more(folder: Path) -> None:
    spool = filled(folder, 3)
    shutil.rmtree(folder)
    spool.append(batch(4))
    sent = drained(spool)
    assert (set(sent) >= {4}, sent == sorted(sent)) == (True, True)


CHILD = """
import sys
from pathlib import Path
from collectors.spool import Settings, Spool
from tests.unit.collectors.spooling import batch
spool = Spool(Settings(disk_after_s=0.0), Path(sys.argv[1]))
number = 0
while True:
    number += 1
    spool.append(batch(number))
    spool.keep(number / 1000)
    print(number, flush=True)
"""


def test_after_a_real_kill_all_that_was_said_to_be_written_is_there(folder: Path) -> None:
    root = Path(__file__).parents[3]
    with start([sys.executable, "-c", CHILD, str(folder)], output="pipe", cwd=root) as child:
        lines = child.lines()
        said = [int(next(lines)) for _ in range(2000)]
        child.kill()
        # The last line may be cut short, which makes a smaller number of it.
        said += [int(text) for text in lines if text]
        child.wait(SOON_S)
    sent = drained(Spool(AT_ONCE, folder))
    assert sent == list(range(1, len(sent) + 1))
    assert len(sent) >= max(said)
