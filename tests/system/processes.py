"""farside's roles as real processes: each started from its own TOML, asked to end, or killed."""

import json
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Self, TypeVar

from bus.kafka import KafkaBus
from bus.kafka import Settings as KafkaSettings
from bus.records import dump
from bus.transport import Envelope
from runtime.clock import SystemClock
from runtime.process import Running, start
from runtime.wait import wait_until

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
CRASHING = HERE / "crashing.py"
STOP_S = 15.0
T = TypeVar("T")


class Process:
    """One role that runs: what it prints is kept, and can be waited for."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        """Start it."""
        self.argv = argv
        self.lines: deque[str] = deque(maxlen=2000)
        self._running: Running = start(
            argv, stdin=False, output="pipe", errors="output", env=env, own_group=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._running.pid

    @property
    def text(self) -> str:
        """Return all that it printed."""
        return "\n".join(self.lines)

    def says(self, words: str, timeout_s: float = 30.0) -> str:
        """Wait until a line has these words, and return that line."""
        return wait_until(
            lambda: next((line for line in list(self.lines) if words in line), ""),
            timeout_s,
            what=f"{' '.join(self.argv[-4:])} says {words!r}; it said {self.text[-1500:]}",
        )

    def ended(self, timeout_s: float = 30.0) -> int:
        """Wait for its end and return the exit code (negative: the signal that ended it)."""
        return self._running.wait(timeout_s)

    def alive(self) -> bool:
        """Tell whether it runs."""
        return self._running.poll() is None

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), and wait until it is gone."""
        self._running.kill()
        self._running.wait(STOP_S)

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._running.signal(number)

    def stop(self) -> int:
        """Ask it to end (SIGTERM) and return its exit code; killed when it does not."""
        if self._running.poll() is None:
            self._running.signal(signal.SIGCONT)
        return self._running.stop(STOP_S)

    def _read(self) -> None:
        for line in self._running.lines():
            self.lines.append(line)


class Fleet:
    """The processes of one test; all are ended with it."""

    def __init__(self, folder: Path, bootstrap: list[str], kafka: str = "") -> None:
        """Keep state and configurations in `folder`; `kafka` is more TOML for [bus.kafka]."""
        self.folder = folder
        self.bootstrap = bootstrap
        self._kafka = kafka
        self._processes: list[Process] = []
        self._number = 0

    def role(
        self, role: str, *, node: str = "n1", toml: str = "", arguments: tuple[str, ...] = ()
    ) -> Process:
        """Start a role; `toml` is added to its configuration, state lies in folder/node-role."""
        config = self.configure(role, node=node, toml=toml)
        program = str(Path(sys.executable).with_name("farside"))
        return self.run([program, role, "--config", str(config), *arguments])

    def crashing(
        self,
        role: str,
        worker: str,
        point: str,
        *,
        times: int = 1,
        node: str = "n1",
        toml: str = "",
        armed: Path | None = None,
    ) -> Process:
        """Start a role that kills itself (SIGKILL) when `worker` is at `point` the n-th time.

        armed: it counts from when this file is there.
        """
        config = self.configure(role, node=node, toml=toml)
        wish = [role, str(config), worker, point, str(times), *([str(armed)] if armed else [])]
        return self.run([sys.executable, str(CRASHING), *wish])

    def run(self, argv: list[str], env: Mapping[str, str] | None = None) -> Process:
        """Start any program, ended with the fleet."""
        plain = {key: value for key, value in os.environ.items() if "FARSIDE" not in key}
        process = Process(argv, {**plain, "PYTHONPATH": str(CHECKOUT), **(env or {})})
        self._processes.append(process)
        return process

    def configure(self, role: str, *, node: str = "n1", toml: str = "") -> Path:
        """Write the configuration of a role and return its path."""
        self._number += 1
        config = self.folder / f"{node}-{role}-{self._number}.toml"
        config.write_text(
            f"[bus]\nkind = 'kafka'\n[bus.kafka]\nbootstrap = {json.dumps(self.bootstrap)}\n"
            f"reconnect_max_s = 1.0\nlook_s = 1.0\n{self._kafka}\n"
            f"[http]\nport = 0\n"
            f"[farside]\ncluster = 'test'\nnode = '{node}'\n"
            f"state_dir = '{self.folder / f'{node}-{role}'}'\n{toml}\n"
        )
        return config

    def bus(self, name: str = "test") -> KafkaBus:
        """Return a bus for the test's own reading and writing."""
        settings = KafkaSettings(bootstrap=tuple(self.bootstrap), reconnect_max_s=1.0, look_s=1.0)
        return KafkaBus(settings, SystemClock(), cluster="test", role=name)

    def close(self) -> None:
        """End all processes, the newest first."""
        for process in reversed(self._processes):
            process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reading:
    """Everything that topics hold, read on whenever it is asked for."""

    def __init__(self, fleet: Fleet, *topics: str) -> None:
        """Read from the beginning."""
        self._bus = fleet.bus("reading")
        self._source = self._bus.source(list(topics))
        self.envelopes: list[Envelope] = []

    def all(self) -> list[Envelope]:
        """Return what there is until now."""
        while found := self._source.poll(5000, 0.2):
            self.envelopes += found
        return self.envelopes

    def of(self, kind: type[T]) -> list[T]:
        """Return the messages of one type until now."""
        return [one.message for one in self.all() if isinstance(one.message, kind)]

    def wait_for(self, kind: type[T], count: int = 1, timeout_s: float = 60.0) -> list[T]:
        """Wait until there are so many messages of a type, and return them."""
        what = f"{count} {kind.__name__}"
        return wait_until(
            lambda: found if len(found := self.of(kind)) >= count else [], timeout_s, what=what
        )

    def write(self, path: Path) -> Path:
        """Write all as records that `farside replay` reads."""
        path.write_bytes(b"".join(dump(one) for one in self.all()))
        return path

    def close(self) -> None:
        """Let go."""
        self._source.close()
        self._bus.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
