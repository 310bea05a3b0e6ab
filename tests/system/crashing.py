"""A role that kills itself at a named point: crashing.py ROLE CONFIG WORKER POINT TIMES [ARMED].

It is the product's own role, made by the same function, with a hook at the points that it names.
Where ARMED names a file, points count from when it is there.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from bus.messages import Message
from bus.topics import COMMANDS, REPORTS
from bus.transport import Bus, Place, Receipt, Sink, Source, Start
from farside import roles
from farside.compose import Site, build_execute
from farside.settings import read_settings

Crash = Callable[[str, str], None]


class Telling:
    """A bus whose writers come to a point before they hand a report over: the act is done."""

    def __init__(self, bus: Bus, crash: Crash) -> None:
        """Stand before `bus`."""
        self._bus = bus
        self._crash = crash

    def sink(self) -> Sink:
        """Return a writer."""
        return TellingSink(self._bus.sink(), self._crash)

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> Source:
        """Return a reader."""
        return self._bus.source(places, start)


class TellingSink:
    """A writer of such a bus."""

    def __init__(self, sink: Sink, crash: Crash) -> None:
        """Stand before `sink`."""
        self._sink = sink
        self._crash = crash
        self.flush = sink.flush
        self.close = sink.close

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Receipt:
        """Hand a message over."""
        if topic == REPORTS:
            self._crash("executor", "before report")
        return self._sink.send(topic, key, message, partition)


def execute(site: Site, crash: Crash) -> roles.Role:
    """Return the executors' role; its one point is "before report"."""
    bus = roles.open_bus(site, "execute", [REPORTS])
    worker, cannot = build_execute(site, Telling(bus, crash))
    waits = roles.awaiting(site, bus, {"executor": worker}, [COMMANDS, REPORTS])
    return roles.Role("execute", [roles.Closing(bus.close), *waits], "to be killed", cannot)


def detect(site: Site, crash: Crash) -> roles.Role:
    """Return the detector's role; its points are those of `CoreWorker`."""
    return roles.detect(site, crash=crash)


ROLES = {"detect": detect, "execute": execute}


def main(role: str, config: str, worker: str, point: str, times: str, armed: str = "") -> int:
    """Run the role; SIGKILL this process when `worker` comes to `point` the n-th time."""
    left = int(times)

    def crash(at_worker: str, at_point: str) -> None:
        nonlocal left
        if (at_worker, at_point) == (worker, point) and (not armed or Path(armed).exists()):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    path = Path(config)
    return roles.run(Site(read_settings(path)), path, lambda site: ROLES[role](site, crash))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
