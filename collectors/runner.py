"""One collector in a thread of its own, so that one that hangs stalls nobody.

The collector is asked for a reading and has until the end of the turn; it is not asked again before
it has answered. An answer that comes too late is stale as far as samples go, but its log lines
happened, so they are handed on whenever they come.
"""

import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

from collectors.base import Closing, Collector, FoundLine, Reading
from runtime import logs
from runtime.clock import Clock, Instant
from runtime.errors import FarsideError

State = Literal["answered", "failed", "hanging"]


class Answer(NamedTuple):
    """How a collector did in a turn."""

    state: State
    duration_s: float
    reading: Reading


class Runner:
    """The thread of one collector. It ends with the process, since a hanging one can't be ended."""

    def __init__(
        self,
        name: str,
        collector: Collector,
        clock: Clock,
        lock: threading.Lock,
        answered: threading.Condition,
        found: Callable[[list[FoundLine]], None],
    ) -> None:
        """Wait to be asked.

        `lock` guards the state of all runners, `answered` (on that lock) announces answers, `found`
        takes log lines.
        """
        self.name = name
        self.collector = collector
        self._clock = clock
        self._lock = lock
        self._answered = answered
        self._wanted = threading.Condition(lock)
        self._found = found
        self._asked: Instant | None = None
        self._began_s = 0.0
        self._busy = False
        self._stopping = False
        self._answer: Answer | None = None
        self._thread: threading.Thread | None = None
        self._failure = ""
        self._log = logs.get(collector=name)

    @property
    def busy(self) -> bool:
        """Tell whether an answer is waited for (under the lock)."""
        return self._busy

    def ask(self, now: Instant) -> bool:
        """Ask for a reading; False where the last one has not been answered (under the lock)."""
        if self._busy or self._stopping:
            return False
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"collector-{self.name}", daemon=True
            )
            self._thread.start()
        self._busy, self._asked, self._answer = True, now, None
        self._began_s = self._clock.monotonic()
        self._wanted.notify()
        return True

    def answer(self) -> Answer:
        """Return how the last one asked for came out (under the lock)."""
        if self._answer is not None:
            return self._answer
        return Answer("hanging", self._clock.monotonic() - self._began_s, Reading([], []))

    def stop(self) -> None:
        """End the thread once it is idle (under the lock)."""
        self._stopping = True
        self._wanted.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end, and close the collector where it came."""
        if self._thread is not None:
            self._thread.join(max(timeout_s, 0.0))
            if self._thread.is_alive():
                return
        if isinstance(self.collector, Closing):
            self.collector.close()

    def _run(self) -> None:
        while (now := self._next()) is not None:
            state, reading = self._collect(now)
            with self._lock:
                took_s = self._clock.monotonic() - self._began_s
                self._answer = Answer(state, took_s, reading)
                self._busy = False
                self._answered.notify_all()

    def _next(self) -> Instant | None:
        with self._wanted:
            while self._asked is None and not self._stopping:
                self._wanted.wait()
            now, self._asked = self._asked, None
            return now

    def _collect(self, now: Instant) -> tuple[State, Reading]:
        try:
            reading = self.collector.collect(now)
            if reading.lines:
                self._found(reading.lines)
        except FarsideError as error:
            self._failed(str(error))
        except Exception as error:  # noqa: BLE001  # a thread's root: one collector's bug is its own
            self._failed(f"{type(error).__name__}: {error}", trace=True)
        else:
            if self._failure:
                self._log.info("the collector works again")
                self._failure = ""
            return "answered", reading
        return "failed", Reading([], [])

    def _failed(self, why: str, *, trace: bool = False) -> None:
        """Say so once for each new reason."""
        if why != self._failure:
            self._failure = why
            self._log.warning("the collector failed", why=why, exc_info=trace)
