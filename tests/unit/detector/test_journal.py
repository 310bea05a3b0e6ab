"""The journal on disk: in order, whole or passed over, bounded, never dropped too early."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages import Tick
from bus.transport import Envelope
from detector.journal import Journal, Range, Turn, log_mark, ranges_of, segments
from runtime.clock import Instant
from runtime.errors import NotPermitted, Unavailable


def turn(number: int, log: str = "log-1") -> Turn:
    return Turn(number, log, (Range("farside.suspicions", 0, number, number + 1, 1),))


def written(folder: Path, *numbers: int, bytes_max: int = 1 << 20) -> Journal:
    journal = Journal(folder, "decider", bytes_max)
    for number in numbers:
        journal.append(turn(number))
        journal.sync()
    return journal


def read(folder: Path) -> list[int]:
    return [found.turn.turn for found in Journal(folder, "decider").read() if found.turn]


def problems(folder: Path) -> list[str]:
    return [found.problem for found in Journal(folder, "decider").read() if found.turn is None]


def test_turns_come_back_whole_and_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "decider")
    turns = [turn(1), Turn(2, "log-2", (Range("b", 1, 5, 9, 3), Range("a", 0, 0, 2, 2)))]
    for one in turns:
        journal.append(one)
    journal.sync()
    assert [found.turn for found in Journal(tmp_path, "decider").read()] == turns


def test_nothing_is_written_before_a_sync(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "decider")
    journal.append(turn(1))
    assert (journal.unsynced, read(tmp_path)) == (1, [])
    journal.sync()
    assert (journal.unsynced, read(tmp_path)) == (0, [1])


@given(cut=st.integers(0, 400))
def test_a_torn_end_is_passed_over_without_a_word(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    written(folder, 1, 2, 3)
    (path,) = segments(folder, "decider")
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    assert read(folder) == [1, 2, 3][:lines]
    assert problems(folder) == []


@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_damaged_byte_costs_its_turn_alone_and_is_told(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    written(folder, 1, 2, 3)
    (path,) = segments(folder, "decider")
    content = bytearray(path.read_bytes())
    content[place % len(content)] = value
    path.write_bytes(content)
    left = read(folder)
    assert set(left) <= {1, 2, 3}
    assert len(left) >= 1
    assert left == sorted(left)
    if len(left) == 3:
        assert problems(folder) == []


def test_after_a_start_a_file_of_its_own_is_begun_so_that_nothing_follows_a_torn_end(
    tmp_path: Path,
) -> None:
    written(tmp_path, 1, 2)
    (first,) = segments(tmp_path, "decider")
    first.write_bytes(first.read_bytes() + b"12345678 {half a li")
    written(tmp_path, 3)
    assert read(tmp_path) == [1, 2, 3]
    assert problems(tmp_path) == []


def test_whole_old_files_go_when_there_is_too_much(tmp_path: Path) -> None:
    journal = written(tmp_path, *range(1, 201), bytes_max=2000)
    journal.drop(200)
    assert journal.kept_bytes <= 2000
    left = read(tmp_path)
    assert left == list(range(left[0], 201))
    assert 1 < left[0] < 195


def test_what_the_checkpoint_may_still_need_is_never_dropped(tmp_path: Path) -> None:
    journal = written(tmp_path, *range(1, 201), bytes_max=2000)
    journal.drop(50)
    assert 2 <= read(tmp_path)[0] <= 51
    assert journal.kept_bytes > 2000


def test_starts_without_end_leave_a_bounded_number_of_files(tmp_path: Path) -> None:
    for number in range(1, 231):
        journal = written(tmp_path, number)
        journal.close()
    journal.drop(230)
    assert len(segments(tmp_path, "decider")) == 200


def test_reading_begins_with_the_file_that_begins_behind_a_position(tmp_path: Path) -> None:
    written(tmp_path, *range(1, 201), bytes_max=2000)
    journal = Journal(tmp_path, "decider")
    found = [one.turn.turn for one in journal.read(lambda turn: turn.turn <= 150) if one.turn]
    assert found[0] <= 150
    assert found[0] > 100
    assert found[-1] == 200


def test_what_could_not_be_written_is_kept_and_written_by_the_next_try(tmp_path: Path) -> None:
    folder = tmp_path / "away"
    journal = Journal(folder, "decider")
    journal.append(turn(1))
    with pytest.raises(Unavailable, match="no such file or directory"):
        journal.sync()
    journal.append(turn(2))
    folder.mkdir()
    journal.sync()
    assert read(folder) == [1, 2]


def test_a_turn_that_stands_in_two_files_is_read_once(tmp_path: Path) -> None:
    written(tmp_path, 1, 2, 3)
    (first,) = segments(tmp_path, "decider")
    again = tmp_path / "decider.journal.000000000003"
    again.write_bytes(first.read_bytes().splitlines(keepends=True)[2])
    assert read(tmp_path) == [1, 2, 3]


def test_a_folder_in_the_place_of_a_file_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "decider.journal.000000000001").mkdir()
    with pytest.raises((Unavailable, NotPermitted), match="can't be read"):
        list(Journal(tmp_path, "decider").read())


def test_what_was_not_synced_can_be_forgotten(tmp_path: Path) -> None:
    journal = written(tmp_path, 1)
    journal.append(turn(2))
    journal.forget_unsynced()
    journal.append(turn(2, "log-2"))
    journal.sync()
    assert [found.turn.log for found in Journal(tmp_path, "decider").read() if found.turn] == [
        "log-1",
        "log-2",
    ]


def test_ranges_follow_the_order_in_which_records_stand_and_count_holes() -> None:
    places = [("a", 0, 1), ("a", 0, 2), ("a", 0, 5), ("b", 0, 7), ("a", 0, 6), ("a", 1, 0)]
    assert ranges_of(envelope(*place) for place in places) == (
        Range("a", 0, 1, 6, 3),
        Range("b", 0, 7, 8, 1),
        Range("a", 0, 6, 7, 1),
        Range("a", 1, 0, 1, 1),
    )


def envelope(topic: str, partition: int, offset: int) -> Envelope:
    tick = Tick(cell="c", time=Instant(0))
    return Envelope(topic, partition, offset, Instant(0), "", tick)


def test_a_long_identity_of_a_log_is_named_by_a_digest() -> None:
    assert log_mark("memory-1") == "memory-1"
    assert len(log_mark("x" * 500)) == 20
    assert log_mark("x" * 500) != log_mark("x" * 501)


def test_other_owners_and_strange_files_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path, 1)
    (tmp_path / "decider.journal.old").write_text("mine")
    (tmp_path / "other.journal.000000000001").write_text("theirs")
    assert read(tmp_path) == [1]
    assert problems(tmp_path) == []
