"""Acting under `farside up`, on containers of this test: who is touched, and how all is let go."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.process import Running, start
from runtime.wait import wait_until
from tests.long.battery import PULSE, Up
from tests.unit.executors.machine import PROCESSES, Box

pytestmark = [pytest.mark.long, pytest.mark.loopback]

LIMIT_BYTES = 256 << 20
CATCH_S = 90.0
# 4 MiB a second, in small steps, each touched: a leak that meets its limit after a minute.
LEAK = """
import sys, threading
kept, never = [], threading.Event()
sys.stdin.readline()
while not never.wait(0.05):
    kept.append(bytearray(b"x" * 209715))
"""


def acting(box: Box, hold_s: float) -> str:
    """Return a configuration that may freeze what lies in this box, for so long."""
    return f"""{PULSE}
[decide]
act_time_s = 1.0
margin_polls = 60.0
hold_s = {hold_s}
[act.memory_leak.default]
actions = ["freeze"]
[execute.process]
own_cgroups = ["{box.path}"]
"""


class Leak:
    """A process in a box whose memory grows until it is frozen or meets its limit."""

    def __init__(self, box: Box) -> None:
        limits = [box.folder / name for name in ("memory.max", "memory.limit_in_bytes")]
        next(path for path in limits if path.exists()).write_text(str(LIMIT_BYTES))
        self.box = box
        self.running: Running = start([sys.executable, "-c", LEAK])
        box.take(self.running.pid)

    def stands_still(self) -> bool:
        """Tell whether it uses no time: frozen by whatever way."""
        stat = PROCESSES.stat(self.running.pid)
        if stat is None:
            return False
        before = self._ticks()
        return stat.state == "T" or (self._frozen() and self._ticks() == before)

    def _frozen(self) -> bool:
        files = {"freezer": ("freezer.state", "FROZEN"), "unified": ("cgroup.events", "frozen 1")}
        return any(
            word in self.box.read(name, file)
            for name, (file, word) in files.items()
            if name in self.box.folders
        )

    def _ticks(self) -> str:
        return Path(f"/proc/{self.running.pid}/stat").read_text().rpartition(")")[2]


@pytest.fixture
def leaks() -> Iterator[tuple[Leak, Leak]]:
    """Return a leak in a container that is ours, and one in a container whose name begins alike."""
    name = f"farside-battery-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        made = []
        for path in (name, f"{name}-evil"):
            box = Box(path, ("freezer",))
            leak = Leak(box)
            stack.callback(leak.running.stop)
            stack.callback(box.remove)
            made.append(leak)
        yield made[0], made[1]


def answers(up: Up, kind: str) -> list[dict[str, Any]]:
    return up.records(kind)


def caught(up: Up, leak: Leak) -> None:
    wait_until(leak.stands_still, CATCH_S, what=f"the leak is frozen: {up.text[-1500:]}")


def test_what_is_ours_is_frozen_its_neighbour_never_and_a_clean_stop_lets_go(
    leaks: tuple[Leak, Leak], tmp_path: Path
) -> None:
    ours, evil = leaks
    with Up(tmp_path, acting(ours.box, 600.0)) as up:
        up.seen()
        for leak in leaks:
            leak.running.send(b"go\n")
        caught(up, ours)
        wait_until(
            lambda: [
                report
                for report in answers(up, "ExecutionReport")
                if report["outcome"] == "refused" and "not ours" in report["detail"]
            ],
            CATCH_S,
            what=f"the neighbour is refused: {up.text[-1500:]}",
        )
        assert not evil.stands_still()
        assert ours.stands_still()
        assert up.stop() == 0
    assert not ours.stands_still()


def test_what_a_killed_one_held_is_named_by_the_next_and_lifted_when_its_time_is_over(
    leaks: tuple[Leak, Leak], tmp_path: Path
) -> None:
    ours, _ = leaks
    with Up(tmp_path, acting(ours.box, 30.0)) as up:
        up.seen()
        ours.running.send(b"go\n")
        caught(up, ours)
        up.kill()
    assert ours.stands_still()
    with Up(tmp_path, acting(ours.box, 30.0)) as again:
        again.seen()
        again.says(ours.box.path)
        wait_until(
            lambda: not ours.stands_still(), CATCH_S, what=f"it goes on: {again.text[-1500:]}"
        )
        assert again.stop() == 0


def test_a_container_that_somebody_else_froze_stays_frozen_through_all_of_it(
    leaks: tuple[Leak, Leak], tmp_path: Path
) -> None:
    ours, _ = leaks
    ours.running.signal(signal.SIGSTOP)
    for _ in range(2):
        with Up(tmp_path, acting(ours.box, 1.0)) as up:
            up.seen()
            assert up.stop() == 0
        assert ours.stands_still()
