"""Wait for something real: shipped, because tests and tools that meet real servers all need it."""

import threading
from collections.abc import Callable
from typing import TypeVar

from runtime.clock import Clock, SystemClock
from runtime.errors import Unavailable

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T],
    timeout_s: float,
    *,
    what: str = "",
    every_s: float = 0.02,
    clock: Clock | None = None,
) -> T:
    """Ask `predicate` every `every_s` seconds until its answer is true, and return that answer.

    `what` names the thing in the error's sentence.
    Errors: `Unavailable` when `timeout_s` seconds have passed without a true answer.
    """
    clock = clock or SystemClock()
    never = threading.Event()
    end_s = clock.monotonic() + timeout_s
    while True:
        answer = predicate()
        if answer:
            return answer
        left_s = end_s - clock.monotonic()
        if left_s <= 0:
            name = what or getattr(predicate, "__name__", "it")
            raise Unavailable(f"{name}: not so within {timeout_s:g} s")
        clock.wait(never, min(every_s, left_s))
