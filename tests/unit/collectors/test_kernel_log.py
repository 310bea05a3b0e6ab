"""The kernel log as a stream: its end, its gaps, its moments, and a log that may not be read."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.base import FoundLine
from collectors.kernel_log import KernelLog, Settings
from runtime.clock import Instant
from tests.unit.collectors.machine import NOW, Machine

XID = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"
UP_S = 1000.0


class Pipe:
    """A kernel log that a test writes into: a named pipe in the place of the device."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder).write("/proc/uptime", f"{UP_S} 0.00\n")
        path = folder / "dev" / "kmsg"
        path.parent.mkdir()
        os.mkfifo(path)
        self.log = KernelLog(Settings(), self.machine.tree)
        self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        self._sequence = 0

    def say(self, text: str, at_s: float = UP_S, *, skip: int = 0) -> None:
        """Write a record; `skip` numbers before it are lost."""
        self._sequence += 1 + skip
        os.write(self._writer, f"3,{self._sequence},{int(at_s * 1e6)},-;{text}\n".encode())

    def look(self, after_s: float = 0.0) -> list[FoundLine]:
        return self.log.collect(NOW.plus(after_s)).lines

    def close(self) -> None:
        os.close(self._writer)
        self.log.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path)
    yield made
    made.close()


def test_a_fault_is_told_once(pipe: Pipe) -> None:
    pipe.say(XID)
    assert ([line.text for line in pipe.look()], pipe.look(1.0)) == ([XID], [])


def test_lines_that_are_no_fault_stay_on_the_node_and_are_counted(pipe: Pipe) -> None:
    for number in range(5):
        pipe.say(f"usb 1-{number}: new device")
    assert (pipe.look(), pipe.log.counts()["unrecognised"]) == ([], 5)


def test_a_gap_in_the_numbers_is_told_with_how_much_was_lost(pipe: Pipe) -> None:
    pipe.say("first")
    pipe.say("second", skip=17)
    (line,) = pipe.look()
    assert (line.fields["kind"], line.fields["count"]) == ("lost_lines", "17")


def test_a_moment_is_the_boots_plus_the_records_own_clock(pipe: Pipe) -> None:
    pipe.say(XID, at_s=UP_S - 250.5)
    (line,) = pipe.look()
    assert line.time == NOW.plus(-250.5)


@pytest.mark.parametrize(("drift_s", "shown_s"), [(-30.0, 10.0), (+30.0, 11.0), (10.5, 10.5)])
def test_a_kernel_clock_that_drifts_is_corrected_by_when_the_log_was_read(
    pipe: Pipe, drift_s: float, shown_s: float
) -> None:
    pipe.look(0.0)
    pipe.look(10.0)  # read to its end: what comes now is younger than that
    pipe.say(XID, at_s=UP_S + drift_s)
    (line,) = pipe.look(11.0)
    assert line.time == NOW.plus(shown_s)


def test_more_lines_than_a_look_takes_are_read_by_the_next(pipe: Pipe) -> None:
    for number in range(100):
        pipe.say(f"nfs: server s{number} not responding, still trying")
    assert len(pipe.look()) == 100


def test_waiting_ends_with_the_first_record(pipe: Pipe) -> None:
    before = pipe.log.wait(0.0)
    pipe.say("anything")
    assert (before, pipe.log.wait(20.0)) == (False, True)


def test_only_what_comes_after_the_start_is_told_unless_asked_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path).write("/dev/kmsg", f"3,1,1,-;{XID}\n")
    new = KernelLog(Settings(), machine.tree)
    old = KernelLog(Settings(from_start=True), machine.tree)
    found = [len(log.collect(NOW).lines) for log in (new, old)]
    new.close()
    old.close()
    assert found == [0, 1]


def test_a_log_that_is_not_there_is_no_error_and_told(tmp_path: Path) -> None:
    log = KernelLog(Settings(), Machine(tmp_path).tree)
    (sentence,) = log.cannot_see()
    assert (log.collect(NOW), log.wait(0.0)) == (([], []), False)
    assert "/dev/kmsg: no such file" in sentence


def test_a_log_that_appears_later_is_read_then(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    log = KernelLog(Settings(from_start=True), machine.tree)
    log.collect(NOW)
    machine.write("/dev/kmsg", f"3,1,1,-;{XID}\n")
    found = [len(log.collect(NOW.plus(after_s)).lines) for after_s in (1.0, 60.0)]
    log.close()
    assert found == [0, 1]


def test_a_plain_file_does_not_keep_the_listener_busy(tmp_path: Path) -> None:
    log = KernelLog(Settings(), Machine(tmp_path).write("/dev/kmsg", "3,1,1,-;x\n").tree)
    ready = log.wait(0.0)
    log.close()
    assert not ready


def test_without_an_uptime_a_fault_has_the_moment_of_the_look(tmp_path: Path) -> None:
    machine = Machine(tmp_path).write("/dev/kmsg", f"3,1,99,-;{XID}\n")
    log = KernelLog(Settings(from_start=True), machine.tree)
    times: list[Instant] = [line.time for line in log.collect(NOW).lines]
    log.close()
    assert times == [NOW]
