"""Runs the threads of a long-running process, and ends them in order.

A worker has a name and `run(stop)`. One that ends by an error is told in one line, counted, and
started again after a growing pause: this is the root of its thread, the only place where any error
is caught. Workers stop in reverse order of their start, all within one shared deadline.
"""

import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Protocol

from runtime import logs
from runtime.clock import Clock
from runtime.errors import FarsideError, Misconfigured, NotPermitted
from runtime.metrics import Metrics


class Worker(Protocol):
    """One thread's work."""

    @property
    def name(self) -> str:
        """Return the name for logs and metrics."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""


class Service:
    """The threads of one process.

    `pause_s` and `pause_s_max`: the first and the longest pause before a worker starts again.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        clock: Clock,
        metrics: Metrics | None = None,
        *,
        pause_s: float = 0.5,
        pause_s_max: float = 30.0,
    ) -> None:
        """Know the workers in the order of their start."""
        self._workers = list(workers)
        self._clock = clock
        self._pauses_s = (pause_s, pause_s_max)
        self._threads: list[tuple[str, threading.Thread, threading.Event]] = []
        self._asked = threading.Event()
        self._fatal: FarsideError | None = None
        self._log = logs.get()
        self._crashes = (metrics or Metrics()).counter(
            "farside_worker_crashes_total", "Workers that ended by an error", ("worker",)
        )

    @property
    def failed(self) -> FarsideError | None:
        """Return the error that nothing but a person can mend, None while there is none."""
        return self._fatal

    def start(self) -> None:
        """Start all threads."""
        for worker in self._workers:
            stop = threading.Event()
            thread = threading.Thread(
                target=self._keep_running, args=(worker, stop), name=worker.name, daemon=True
            )
            self._threads.append((worker.name, thread, stop))
            thread.start()

    def stop(self, deadline_s: float = 10.0) -> list[str]:
        """Stop all threads, the last one started first; return the names of those still running."""
        end_s = self._clock.monotonic() + deadline_s
        late = []
        for name, thread, stop in reversed(self._threads):
            stop.set()
            thread.join(max(end_s - self._clock.monotonic(), 0.0))
            if thread.is_alive():
                late.append(name)
                self._log.warning("worker did not stop in time", worker=name)
        self._threads.clear()
        return late

    def ask_to_end(self) -> None:
        """End `run` as a signal would."""
        self._asked.set()

    def run(self, deadline_s: float = 10.0, beat: Callable[[], object] = lambda: None) -> None:
        """Start, wait for SIGINT, SIGTERM or `ask_to_end`, stop; `beat` is called once a second.

        Errors: the `Misconfigured` or `NotPermitted` that ended a worker.
        """

        def asked(_number: int, _frame: FrameType | None) -> None:
            self._asked.set()

        before = {
            number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            self.start()
            while not self._asked.wait(1.0):
                beat()
        finally:
            self.stop(deadline_s)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._fatal is not None:
            raise self._fatal

    def _keep_running(self, worker: Worker, stop: threading.Event) -> None:
        pause_s, pause_s_max = self._pauses_s
        while not stop.is_set():
            try:
                worker.run(stop)
            except (Misconfigured, NotPermitted) as error:
                # Trying again can't help: a person has to mend it.
                self._fatal = error
                self._asked.set()
                return
            except Exception as error:  # noqa: BLE001  # the root of the thread
                self._crashes.labels(worker.name).inc()
                self._log.exception(
                    "worker crashed", worker=worker.name, why=str(error), again_in_s=pause_s
                )
            else:
                return
            self._clock.wait(stop, pause_s)
            pause_s = min(2 * pause_s, pause_s_max)
