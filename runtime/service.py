"""A process made of workers: each in a thread of its own, stopped together, restarted alone.

A worker is an object with a `name` and `run(stop)`, which works until `stop` is set. `Service.run`
is what a command calls: it returns when someone asks it to end (SIGINT, SIGTERM,
`ask_to_end`), when every worker is done, or raises when one can't work as it is set up. Tests and
commands with a main loop of their own call `start` and `stop` instead.
"""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Protocol

from runtime import logs
from runtime.clock import Clock, SystemClock
from runtime.errors import FarsideError, Misconfigured, NotPermitted
from runtime.metrics import Metrics

STOP_DEADLINE_S = 10.0
FIRST_PAUSE_S = 0.5  # before a crashed worker starts again, doubled at each crash in a row
LONGEST_PAUSE_S = 30.0
CALM_S = 60.0  # a worker that ran for so long is no longer "in a row"
_LOOK_S = 1.0
_SLICE_S = 0.05
_LOOK = 0  # in the queue of signals: look at the workers


class Worker(Protocol):
    """What a service runs."""

    @property
    def name(self) -> str:
        """Its name in logs and metrics, one word."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set; returning earlier says that there is no more to do."""


class Service:
    """Runs workers. They start in the order given and are asked to stop in the reverse order.

    All of them share one deadline for stopping. A crash is counted, logged in one line and
    followed by a new start after a pause; `Misconfigured` and `NotPermitted` are no crash but a
    failure: repeating can't help, so that worker stays down and `run` raises the error.
    SIGHUP calls `on_reload`. `run` calls `on_ready` when the workers are started and signals are
    heard, `on_stopping` when it begins to stop them.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        clock: Clock,
        metrics: Metrics | None = None,
        *,
        on_reload: Callable[[], None] | None = None,
        on_ready: Callable[[], object] = lambda: None,
        on_stopping: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock = clock
        self._on_reload = on_reload
        self._on_ready = on_ready
        self._on_stopping = on_stopping
        self._crashes = (metrics or Metrics()).counter(
            "farside_worker_crashes_total", "Workers that ended by an error", ["worker"]
        )
        # Not an Event: a signal's handler may interrupt the main thread inside Event.wait, and
        # setting it there would wait for a lock that the very same thread holds.
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._threads = [_Thread(worker, self._work) for worker in workers]

    @property
    def failed(self) -> FarsideError | None:
        """Return the error that nothing but a person can mend, None while there is none."""
        return next((one.failure for one in self._threads if one.failure is not None), None)

    def start(self) -> None:
        """Start every worker."""
        for one in self._threads:
            one.thread.start()

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> list[str]:
        """Stop the workers, last one first; return the names of those still running at the end.

        They share `deadline_s` seconds. A late one is left behind in its thread, which does not
        keep the process from ending.
        """
        # Threads end in real time, whatever clock the work goes by.
        real = SystemClock()
        end_s = real.monotonic() + deadline_s
        late = []
        for one in reversed(self._threads):
            one.stop.set()
            # In slices, so that a second Ctrl-C is heard: it says "at once".
            while one.thread.is_alive() and real.monotonic() < end_s and not self._asked_again():
                one.thread.join(_SLICE_S)
            if one.thread.is_alive():
                late.append(one.name)
        if late:
            logs.get().warning("workers did not stop in time", workers=late)
        return late

    def ask_to_end(self) -> None:
        """End `run` as a signal would (from any thread)."""
        self._asked.put(signal.SIGTERM)

    def run(
        self, deadline_s: float = STOP_DEADLINE_S, beat: Callable[[], object] = lambda: None
    ) -> None:
        """Start, run until asked to end, stop; `beat` is called about once a second meanwhile.

        Errors: the `Misconfigured` or `NotPermitted` that ended a worker.
        """
        with self._signals():
            try:
                self.start()
                self._on_ready()
                self._attend(beat)
            finally:
                self._on_stopping()
                self.stop(deadline_s)
        if self.failed is not None:
            raise self.failed

    def _attend(self, beat: Callable[[], object]) -> None:
        """Be there while the workers work: hear signals, notice failures."""
        while self.failed is None and any(one.thread.is_alive() for one in self._threads):
            beat()
            try:
                number = self._asked.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if number == signal.SIGHUP:
                self._reload()
            elif number != _LOOK:
                return

    def _asked_again(self) -> bool:
        with contextlib.suppress(queue.Empty):
            while True:
                number = self._asked.get_nowait()
                if number in {signal.SIGINT, signal.SIGTERM}:
                    self._asked.put(number)
                    return True
        return False

    def _reload(self) -> None:
        if self._on_reload is not None:
            try:
                self._on_reload()
            except FarsideError as error:
                logs.get().error("reload refused, everything stays as it was", reason=str(error))

    def _work(self, one: "_Thread") -> None:
        """A worker's thread: its root, where the broad catch counts, reports and starts again."""
        pause_s = FIRST_PAUSE_S
        while not one.stop.is_set():
            began_s = self._clock.monotonic()
            try:
                one.worker.run(one.stop)
                break
            except (Misconfigured, NotPermitted) as error:
                logs.get().error("worker failed", worker=one.name, reason=str(error))
                one.failure = error
                break
            except Exception:  # noqa: BLE001
                self._crashes.labels(worker=one.name).inc()
                if self._clock.monotonic() - began_s > CALM_S:
                    pause_s = FIRST_PAUSE_S
                logs.get().exception("worker crashed", worker=one.name, restart_in_s=pause_s)
            self._clock.wait(one.stop, pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._asked.put(_LOOK)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Hear the signals that ask for something; Python lets only the main thread do so."""
        numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if self._on_reload else [])]
        if threading.current_thread() is not threading.main_thread():
            numbers = []
        before = {number: signal.signal(number, self._heard) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self._asked.put(number)


class _Thread:
    """One worker, its thread and what became of it."""

    def __init__(self, worker: Worker, root: Callable[["_Thread"], None]) -> None:
        self.worker = worker
        self.name = worker.name
        self.stop = threading.Event()
        self.failure: FarsideError | None = None
        self.thread = threading.Thread(target=root, args=(self,), name=self.name, daemon=True)
