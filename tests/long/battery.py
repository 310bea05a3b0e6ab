"""`farside up` as a real process that is stopped, killed and restarted; what it says is kept."""

import json
import os
import signal
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any, Self

from farside.local import Ask, ask
from runtime.errors import Unavailable
from runtime.process import Running, start
from runtime.wait import wait_until

CHECKOUT = Path(__file__).parents[2]
SOON_S = 60.0  # a bound for a machine under load
PULSE = """
[agent]
period_s = 0.5
deadline_s = 0.4
[collect.process]
rescan_s = 1.0
[collect.cgroup]
rescan_s = 1.0
[detect.frames]
period_s = 0.5
lateness_s = 2.0
"""


class Up:
    """One `farside up` over a folder of its own; a context manager that leaves none behind."""

    def __init__(self, folder: Path, toml: str = "", state: Path | None = None) -> None:
        """Start it; what passes over its bus is written to `record`."""
        self.state = state or folder / "state"
        self.lines: deque[str] = deque(maxlen=5000)
        self.record = folder / f"record-{len(list(folder.glob('record-*')))}.jsonl"
        config = folder / "farside.toml"
        config.write_text(
            f"[farside]\nnode = 'n1'\nstate_dir = '{self.state}'\n[http]\nport = 0\n{toml}"
        )
        plain = {key: value for key, value in os.environ.items() if "FARSIDE" not in key}
        self._running: Running = start(
            [
                *(sys.executable, "-m", "farside.main", "up"),
                *("--config", str(config), "--record", str(self.record)),
            ],
            stdin=False,
            output="pipe",
            errors="output",
            env={**plain, "PYTHONPATH": str(CHECKOUT)},
            own_group=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGCONT)
        self._running.kill()
        self._running.stop()

    @property
    def text(self) -> str:
        """Return all that it printed."""
        return "\n".join(list(self.lines))

    def seen(self) -> dict[str, Any]:
        """Wait until it answers with what it has seen, and return that."""
        return wait_until(self._snapshot, SOON_S, what=f"farside sees this machine: {self.text}")

    def samples(self) -> int:
        """Return how many samples it has seen; 0 while it does not answer."""
        return int(self._snapshot().get("samples", 0))

    def says(self, words: str, timeout_s: float = SOON_S) -> str:
        """Wait until a line has these words, and return that line."""
        return wait_until(
            lambda: next((line for line in list(self.lines) if words in line), ""),
            timeout_s,
            what=f"{words!r} is said; it said {self.text[-2000:]}",
        )

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._running.signal(number)

    def kill(self) -> None:
        """End it as a crash would, and wait until it is gone."""
        self._running.kill()
        self._running.wait(SOON_S)

    def ended(self) -> int:
        """Wait for its end and return the exit code (negative: the signal that ended it)."""
        return self._running.wait(SOON_S)

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def records(self, *types: str) -> list[dict[str, Any]]:
        """Return the messages of these types that have passed so far."""
        lines = self.record.read_bytes().split(b"\n")[:-1]
        found = [json.loads(line)["message"] for line in lines]
        return [message for message in found if message["type"] in types]

    def _snapshot(self) -> dict[str, Any]:
        if self._running.poll() is not None:
            raise AssertionError(f"it ended: {self.text}")
        try:
            snapshot: dict[str, Any] = json.loads(ask(self.state, Ask(want="snapshot")))
        except Unavailable:
            return {}
        return snapshot if snapshot["samples"] else {}

    def _read(self) -> None:
        for line in self._running.lines():
            self.lines.append(line)
