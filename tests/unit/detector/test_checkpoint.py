"""Checkpoints: state and position together, two generations, never a half one."""

from pathlib import Path

import numpy as np
import pytest

from detector.checkpoint import CheckpointFile
from runtime.errors import Unavailable

PLACES = {("farside.telemetry", 0): 7, ("farside.telemetry", 1): 0}


class Killed(Exception):
    pass


def kill(point: str) -> None:
    raise Killed(point)


def saved(folder: Path, *states: bytes, fingerprint: str = "1") -> CheckpointFile:
    file = CheckpointFile(folder, "scorer", fingerprint)
    for state in states:
        file.save("log-1", PLACES, state, {"level": np.arange(4.0)})
    return file


def test_what_was_saved_comes_back_with_its_position_and_its_log(tmp_path: Path) -> None:
    found, told = saved(tmp_path, b"state").load()
    assert found is not None
    assert (found.plain, found.header.places(), found.header.log) == (b"state", PLACES, "log-1")
    assert found.arrays["level"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert told == []


def test_killed_during_a_save_the_one_before_is_there(tmp_path: Path) -> None:
    file = saved(tmp_path, b"first", b"second")
    with pytest.raises(Killed, match="during save"):
        file.save("log-1", PLACES, b"third", {}, kill)
    found, told = file.load()
    assert found is not None
    assert (found.plain, told) == (b"second", [])
    again, _ = saved(tmp_path, b"fourth").load()
    assert again is not None
    assert again.plain == b"fourth"


def test_killed_during_a_save_neither_generation_is_lost(tmp_path: Path) -> None:
    file = saved(tmp_path, b"first", b"second")
    with pytest.raises(Killed):
        file.save("log-1", PLACES, b"third", {}, kill)
    file.path.write_bytes(b"damaged")
    found, told = file.load()
    assert found is not None
    assert found.plain == b"first"
    assert len(told) == 1


@pytest.mark.parametrize("cut", [0, 10, 200, -1])
def test_a_damaged_generation_is_told_and_the_one_before_is_used(cut: int, tmp_path: Path) -> None:
    file = saved(tmp_path, b"first", b"second")
    file.path.write_bytes(file.path.read_bytes()[:cut])
    found, told = file.load()
    assert found is not None
    assert found.plain == b"first"
    assert [str(file.path) in sentence for sentence in told] == [True]


def test_other_settings_or_another_owner_are_not_used_and_say_why(tmp_path: Path) -> None:
    saved(tmp_path, b"state")
    found, told = CheckpointFile(tmp_path, "scorer", "2").load()
    assert found is None
    assert "other settings" in told[0]
    (tmp_path / "decider.ckpt").write_bytes((tmp_path / "scorer.ckpt").read_bytes())
    found, told = CheckpointFile(tmp_path, "decider", "1").load()
    assert found is None
    assert "belongs to scorer" in told[0]


def test_where_nothing_was_saved_nothing_is_found_and_nothing_told(tmp_path: Path) -> None:
    assert CheckpointFile(tmp_path, "scorer", "1").load() == (None, [])


def test_a_folder_that_is_gone_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="can't be written"):
        saved(tmp_path / "gone", b"state")
