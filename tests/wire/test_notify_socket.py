"""systemd's socket, held by the test: what a real farside process tells it, and in which order."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from farside.local import Ask, ask
from runtime.errors import Unavailable
from runtime.process import Running, start
from runtime.wait import wait_until

CHECKOUT = Path(__file__).parents[2]
WAIT_S = 60.0


class Listener:
    """Stands where systemd would: takes datagrams on a path or an abstract name."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(0.0)
        self.told: list[str] = []

    def heard(self, state: str) -> bool:
        """Take in what came, and tell whether this state was among all of it."""
        while True:
            try:
                self.told.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return state in self.told

    def close(self) -> None:
        self._socket.close()


@contextmanager
def farside_up(folder: Path, told_by_systemd: dict[str, str]) -> Iterator[Running]:
    config = folder / "farside.toml"
    config.write_text(f"[farside]\nnode = 'n1'\nstate_dir = '{folder / 's'}'\n[http]\nport = 0\n")
    mine = {key: value for key, value in os.environ.items() if "FARSIDE" not in key}
    with start(
        [sys.executable, "-m", "farside.main", "up", "--config", str(config)],
        stdin=False,
        output="discard",
        errors="discard",
        env={**mine, "PYTHONPATH": str(CHECKOUT), **told_by_systemd},
        own_group=True,
    ) as running:
        yield running


@pytest.fixture(params=["a path", "an abstract name"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "a path":
        return str(tmp_path / "notify")
    return f"@farside-test-{os.getpid()}-{tmp_path.name}"


def test_it_is_ready_then_alive_then_stopping_and_ends_well(address: str, tmp_path: Path) -> None:
    listener = Listener(address)
    wanted = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000000"}
    try:
        with farside_up(tmp_path, wanted) as running:
            for state in ("READY=1", "WATCHDOG=1"):
                wait_until(lambda state=state: listener.heard(state), WAIT_S, what=state)  # type: ignore[misc]
            running.signal(signal.SIGTERM)
            assert running.wait(WAIT_S) == 0
        listener.heard("")
    finally:
        listener.close()
    assert list(dict.fromkeys(listener.told)) == ["READY=1", "WATCHDOG=1", "STOPPING=1"]
    assert (listener.told.count("READY=1"), listener.told.count("STOPPING=1")) == (1, 1)


def test_without_a_watchdog_it_gives_no_sign_of_life(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    listener = Listener(address)
    try:
        with farside_up(tmp_path, {"NOTIFY_SOCKET": address}) as running:
            wait_until(lambda: listener.heard("READY=1"), WAIT_S, what="READY=1")
            running.signal(signal.SIGTERM)
            assert running.wait(WAIT_S) == 0
        listener.heard("")
    finally:
        listener.close()
    assert listener.told == ["READY=1", "STOPPING=1"]


def test_a_watchdog_of_another_process_is_not_ours(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    listener = Listener(address)
    wanted = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}
    try:
        with farside_up(tmp_path, wanted) as running:
            wait_until(lambda: listener.heard("READY=1"), WAIT_S, what="READY=1")
            running.signal(signal.SIGTERM)
            assert running.wait(WAIT_S) == 0
        listener.heard("")
    finally:
        listener.close()
    assert "WATCHDOG=1" not in listener.told


def test_a_systemd_that_does_not_listen_does_not_keep_it_from_working(tmp_path: Path) -> None:
    wanted = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "20000000"}
    with farside_up(tmp_path, wanted) as running:
        wait_until(lambda: _answers(tmp_path / "s"), WAIT_S, what="it answers")
        running.signal(signal.SIGTERM)
        assert running.wait(WAIT_S) == 0


def _answers(folder: Path) -> bool:
    try:
        return ask(folder, Ask(want="alive")) == "yes"
    except Unavailable:
        return False
