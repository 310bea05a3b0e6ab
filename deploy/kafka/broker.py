"""One broker: a Java process of ours, its log, and what a test does to it."""

import concurrent.futures
import contextlib
import signal
import threading
from collections import deque
from pathlib import Path

from deploy.kafka import admin
from deploy.kafka.layout import LOOPBACK, Node, is_open
from runtime.errors import Unavailable
from runtime.process import Running, start
from runtime.wait import wait_until

READY_S = 120.0  # a bound on a very busy machine; a quiet one needs 3 s
STOP_S = 30.0
_TOLD_LINES = 12


class Broker:
    """One broker of a cluster. Its process is ours alone: signals go to its own process id."""

    def __init__(
        self,
        node: Node,
        folder: Path,
        argv: list[str],
        starter: concurrent.futures.Executor,
    ) -> None:
        """Remember how it is started; `starter` has the thread that starts processes."""
        self.id = node.id
        self.port = node.port
        self.log = folder / "broker.log"
        self._argv = argv
        self._starter = starter
        self._running: Running | None = None
        self._pump: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Return its plain listener as host:port."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """Return its process id; `Unavailable` while it does not run."""
        if self._running is None or self._running.poll() is not None:
            raise Unavailable(f"broker {self.id} does not run")
        return self._running.pid

    def running(self) -> bool:
        """Tell whether its process is there (also when suspended)."""
        return self._running is not None and self._running.poll() is None

    def start(self) -> None:
        """Start its process and return at once; see `wait_ready`."""
        if self.running():
            return
        self._running = self._starter.submit(
            start, self._argv, stdin=False, output="pipe", errors="output", own_group=True
        ).result()
        self._pump = threading.Thread(
            target=_keep, args=(self._running, self.log), name=f"kafka-{self.id}-log", daemon=True
        )
        self._pump.start()

    def wait_ready(self, beside: frozenset[int] = frozenset()) -> None:
        """Wait until it answers as a member, and until it sees the brokers `beside` it.

        Errors: `Unavailable` with the last lines of its log where it ended or does not answer.
        """
        try:
            wait_until(lambda: self._alive() and is_open(self.port), READY_S, every_s=0.05)
            wait_until(lambda: self._alive() and self._sees() >= beside | {self.id}, READY_S)
        except Unavailable as error:
            raise Unavailable(f"broker {self.id} does not answer: {error}\n{self.tail()}") from None

    def stop(self) -> None:
        """Ask it to end in order (it hands its partitions over) and wait for its end."""
        self.resume()
        self._end(STOP_S)

    def kill(self) -> None:
        """End it at once, as a power cut would, and wait until it is gone."""
        if self._running is not None:
            self._running.kill()
        self._end(STOP_S)

    def suspend(self) -> None:
        """Stop the process where it stands: connections stay open and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """End it in order if it runs, start it on the same data and port, wait for an answer."""
        self.stop()
        self.start()
        self.wait_ready()

    def ask_to_end(self) -> None:
        """Ask without waiting: for brokers that end together."""
        self.resume()
        self._signal(signal.SIGTERM)

    def tail(self) -> str:
        """Return the last lines of its log, for an error's sentence."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as file:
                return f"{self.log} ends so:\n" + "".join(deque(file, maxlen=_TOLD_LINES))
        except OSError:
            return f"{self.log} can't be read"

    def _alive(self) -> bool:
        """Tell True while it runs; `Unavailable` once it has ended."""
        code = None if self._running is None else self._running.poll()
        if code is not None or self._running is None:
            raise Unavailable(f"its process ended with {code}")
        return True

    def _sees(self) -> frozenset[int]:
        try:
            return admin.brokers(self.address)
        except Unavailable:
            return frozenset()

    def _signal(self, number: int) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.signal(number)

    def _end(self, grace_s: float) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        running.signal(signal.SIGTERM)
        with contextlib.suppress(Unavailable):
            running.wait(grace_s)
        if running.poll() is None:
            running.kill()
            running.wait(grace_s)
        if self._pump is not None:
            self._pump.join(grace_s)  # the pipe ends with the process
        running.stop()  # closes the pipe


def _keep(running: Running, path: Path) -> None:
    """Write what a broker says to its log, until it ends."""
    with path.open("a", encoding="utf-8") as log:
        for line in running.lines():
            log.write(line + "\n")
            log.flush()
