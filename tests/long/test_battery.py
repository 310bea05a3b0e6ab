"""What `farside up` outlives: kills, damaged state, signals, a full disk, another one beside it."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.clock import SystemClock
from runtime.process import run
from runtime.wait import wait_until
from tests.long.battery import SOON_S, Up

pytestmark = [pytest.mark.long, pytest.mark.loopback]

ACTING = """
[act.memory_leak.default]
actions = ["freeze", "reclaim"]
[execute.process]
own_descendants_of = ["self"]
"""
STOPPED_S = 20.0


def checkpoints(state: Path) -> list[Path]:
    return sorted(path for path in state.iterdir() if ".ckpt" in path.name)


def saved(up: Up) -> None:
    """Wait until both cores have saved, since this start."""
    before = {path: path.stat().st_mtime_ns for path in checkpoints(up.state)}

    def anew() -> bool:
        now = {path: path.stat().st_mtime_ns for path in checkpoints(up.state)}
        return len(now) >= 2 and all(at != before.get(path) for path, at in now.items())

    wait_until(anew, SOON_S, what="both cores save")


def at_once(up: Up, sent_s: float) -> bool:
    """Tell whether samples go on arriving: `sent_s` is not over before more are seen."""
    before = up.samples()
    return wait_until(lambda: up.samples() > before, sent_s, what="more samples")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the state of a farside that ran, saved twice and was asked to end."""
    with Up(tmp_path) as up:
        up.seen()
        saved(up)
        assert up.stop() == 0
    return up.state


def test_a_kill_costs_nothing_but_the_time_since_the_last_save(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.seen()
        saved(up)
        up.kill()
    for _ in range(2):
        with Up(tmp_path) as up:
            up.seen()
            wait_until(lambda up=up: up.text.count("restored") == 2, SOON_S, what="both restored")  # type: ignore[misc]
            assert "not used" not in up.text
            assert up.records("Incident", "IsolationCommand") == []
            up.kill()


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def _halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [_flipped, _halved, _emptied, _made_a_folder])
def test_damaged_checkpoints_are_named_and_the_next_ones_are_whole(
    damage: Callable[[Path], None], state: Path, tmp_path: Path
) -> None:
    for path in checkpoints(state):
        damage(path)
    with Up(tmp_path) as up:
        up.seen()
        for name in ("scorer-default.ckpt", "decider.ckpt"):
            assert f"{name} is not used" in up.says(f"{name} is not used")
        assert "restored" not in up.text
        assert up.stop() == 0
    if damage is _made_a_folder:
        return
    with Up(tmp_path) as again:
        again.seen()
        again.says("restored")
        assert "not used" not in again.text


def test_checkpoints_that_were_swapped_are_not_taken_for_each_other(
    state: Path, tmp_path: Path
) -> None:
    one, other = state / "scorer-default.ckpt", state / "decider.ckpt"
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    for older in state.glob("*.ckpt.1"):
        older.unlink()
    with Up(tmp_path) as up:
        up.seen()
        up.says("scorer-default.ckpt is not used: it belongs to decider")
        up.says("decider.ckpt is not used: it belongs to scorer-default")
        assert up.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_it_saves_and_takes_its_socket_away(number: int, tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.seen()
        up.signal(number)
        assert up.ended() == 0
    assert not (up.state / "farside.sock").exists()
    assert len(checkpoints(up.state)) >= 2


def test_a_second_interrupt_ends_it_at_once_and_the_next_start_is_whole(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.seen()
        up.signal(signal.SIGINT)
        up.signal(signal.SIGINT)
        assert up.ended() == 0
        assert "Traceback" not in up.text
    with Up(tmp_path) as again:
        again.seen()
        assert again.stop() == 0


def test_a_process_that_stood_still_for_twenty_seconds_blames_nobody(tmp_path: Path) -> None:
    with Up(tmp_path, ACTING) as up:
        up.seen()
        saved(up)
        up.signal(signal.SIGSTOP)
        SystemClock().wait(threading.Event(), STOPPED_S)
        up.signal(signal.SIGCONT)
        assert at_once(up, SOON_S)
        saved(up)
        saved(up)
        assert up.records("Incident", "IsolationCommand", "Refusal") == []
        assert up.stop() == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_a_second_one_with_the_same_state_is_refused_and_the_first_goes_on(
    tmp_path: Path,
    stopped: bool,  # noqa: FBT001
) -> None:
    with Up(tmp_path) as first:
        first.seen()
        if stopped:
            first.signal(signal.SIGSTOP)
        with Up(tmp_path) as second:
            assert second.ended() in {2, 3}
            assert str(first.state) in second.text
            assert "Traceback" not in second.text
        first.signal(signal.SIGCONT)
        before = len(first.records("SampleBatch"))
        wait_until(lambda: len(first.records("SampleBatch")) > before, SOON_S, what="it goes on")
        assert first.stop() == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small disk")
    options = ("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder))
    ended = run([mount, *options], timeout_s=10.0)
    if ended.code:
        pytest.skip(f"no disk can be mounted here: {ended.err.strip()}")
    yield folder
    run(["umount", "--lazy", str(folder)], timeout_s=10.0)


def fill(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except OSError:
        os.close(descriptor)


def test_a_full_disk_is_told_once_and_judging_goes_on_until_there_is_room(
    small: Path, tmp_path: Path
) -> None:
    with Up(tmp_path, state=small) as up:
        up.seen()
        fill(small / "full")
        up.says("no space left on device")
        assert at_once(up, SOON_S)
        (small / "full").unlink()
        up.says("over")
        saved(up)
        assert up.stop() == 0
    fill(small / "full")
    with Up(tmp_path, state=small) as again:
        again.seen()
        assert again.stop() == 0
