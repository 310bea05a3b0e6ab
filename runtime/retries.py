"""What can't be done now is done later: how long to wait, in which order, how much may wait.

Moments are monotonic seconds that the caller hands in, and chance follows from names, so that the
same course of events takes the same course again.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar

from runtime.clock import Clock
from runtime.errors import FarsideError, Rejected, Unavailable
from runtime.logs import Log

T = TypeVar("T")

_DOUBLINGS_MAX = 30
# Who is away may ask for patience; for more than an hour it is no hint but a refusal.
_HINT_S_MAX = 3600.0
_IN_FLIGHT_MAX = 256
READ_S_MAX = 60.0
READ_LOOK_S = 0.25
READ_RECORDS_MAX = 1000


def lot(*words: object) -> float:
    """Return a number from 0 to below 1 that follows from `words` and looks drawn by lot."""
    text = "\0".join(map(str, words)).encode("utf-8", "replace")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") / 2**64


@dataclass(frozen=True)
class Retry:
    """When one thing may be tried again: exponential backoff with full jitter.

    The pause after the n-th failure is drawn from 0 to first_s * 2**(n - 1), at most `most_s`, on
    top of what the other side asked for. The draw follows from `name`: many that failed at one
    moment come back spread over the pause, and the same one always comes back at the same moment.
    """

    name: str
    first_s: float
    most_s: float
    tries: int = 0
    due_s: float = 0.0

    def due(self, now_s: float) -> bool:
        """Tell whether it may be tried now."""
        return now_s >= self.due_s

    def failed(self, now_s: float, hint_s: float = 0.0) -> "Retry":
        """Return it after one more failure; `hint_s` is how much patience was asked for."""
        span_s = min(self.first_s * 2.0 ** min(self.tries, _DOUBLINGS_MAX), self.most_s)
        pause_s = min(max(hint_s, 0.0), _HINT_S_MAX) + lot(self.name, self.tries) * span_s
        return replace(self, tries=self.tries + 1, due_s=now_s + pause_s)

    def at_last(self, end_s: float) -> "Retry":
        """Return it with its next try no later than `end_s`, where that is the last one."""
        return replace(self, due_s=min(self.due_s, end_s))

    def afresh(self) -> "Retry":
        """Return it as if nothing had failed yet."""
        return replace(self, tries=0, due_s=0.0)


class Patience:
    """Meets something that is away for a while: growing pauses, one line when it goes and comes.

    `what` names it in the log, as in "commands can't be read".
    """

    def __init__(self, what: str, retry: Retry, log: Log) -> None:
        """Begin with all well."""
        self._what = what
        self._retry = retry
        self._log = log
        self._since_s: float | None = None

    @property
    def away(self) -> bool:
        """Tell whether it is away."""
        return self._since_s is not None

    def due(self, now_s: float) -> bool:
        """Tell whether it may be asked now."""
        return self._retry.due(now_s)

    def hurry(self) -> None:
        """Let it be asked at once: there is no later."""
        self._retry = self._retry.afresh()

    def failed(self, error: Unavailable, now_s: float) -> None:
        """Note that it is away."""
        self._retry = self._retry.failed(now_s, error.retry_after_s)
        if self._since_s is None:
            self._since_s = now_s
            self._log.warning(f"{self._what}: waiting", reason=str(error))

    def well(self, now_s: float) -> None:
        """Note that it answers."""
        if self._since_s is not None:
            away_s = round(now_s - self._since_s, 1)
            self._log.info(f"{self._what}: over", away_s=away_s)
            self._since_s = None
            self._retry = self._retry.afresh()


@dataclass
class Waiting(Generic[T]):
    """A thing on its way to be done; `why` says what it last failed of."""

    item: T
    name: str
    since_s: float
    retry: Retry
    why: str = ""


class Lanes(Generic[T]):
    """Things that wait to be done: those of one lane one after the other, lanes beside each other.

    What can't be done now stays first in its lane, and later ones of that lane wait behind it;
    other lanes go on. New lanes and those that were due longest come first.
    """

    def __init__(self, first_s: float, most_s: float, limit: int) -> None:
        """Pause as `Retry` does from `first_s` to `most_s`; hold at most `limit` things."""
        self._first_s = first_s
        self._most_s = most_s
        self._limit = limit
        self._lanes: dict[str, deque[Waiting[T]]] = {}
        self._size = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._size

    @property
    def full(self) -> bool:
        """Tell whether no more may be added."""
        return self._size >= self._limit

    def lane(self, key: str) -> Iterator[Waiting[T]]:
        """Give what waits in a lane, in order."""
        return iter(self._lanes.get(key, ()))

    def add(self, key: str, name: str, item: T, now_s: float) -> None:
        """Put one at the end of its lane; `name` is what its pauses follow from."""
        if self.full:
            raise Rejected(f"{self._limit} are waiting already")
        retry = Retry(name, self._first_s, self._most_s)
        self._lanes.setdefault(key, deque()).append(Waiting(item, name, now_s, retry))
        self._size += 1

    def work(
        self,
        settle: Callable[[Waiting[T], bool], bool],
        now_s: Callable[[], float],
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask `settle(waiting, due)` of the first of each lane, as long as it says "settled".

        What raises `Unavailable` is put off. `go_on` is asked before each one.
        """
        for key in sorted(self._lanes, key=lambda key: self._lanes[key][0].retry.due_s):
            lane = self._lanes[key]
            while lane and go_on():
                waiting = lane[0]
                try:
                    if not settle(waiting, waiting.retry.due(now_s())):
                        break
                except Unavailable as error:
                    waiting.retry = waiting.retry.failed(now_s(), error.retry_after_s)
                    waiting.why = str(error)
                    break
                lane.popleft()
                self._size -= 1
            if not lane:
                del self._lanes[key]

    def clear(self) -> list[T]:
        """Take out all that waits."""
        left = [waiting.item for lane in self._lanes.values() for waiting in lane]
        self._lanes.clear()
        self._size = 0
        return left


class Receipt(Protocol):
    """What became of one thing that was sent (`bus.transport.Receipt`)."""

    def taken(self) -> bool:
        """Tell whether it was acknowledged.

        Errors: `Rejected` when it never will be, `Unavailable` when it was given up.
        """


Answer = Literal["taken", "on its way", "refused", "given up"]


class Outbox(Generic[T]):
    """What has to arrive: sent in order, kept until it is acknowledged, sent again where it isn't.

    Whoever receives must know a repeat: after something was given up, all that was sent behind it
    is sent again behind it, so that the last word stays the last. Bounded: beyond `limit` the
    oldest is dropped. `dropped` counts that, and what was refused for good.
    """

    def __init__(self, send: Callable[[T], Receipt], limit: int, patience: Patience) -> None:
        """Send by `send`."""
        self._send = send
        self._limit = limit
        self._patience = patience
        self._items: deque[T] = deque()
        self._flight: deque[Receipt] = deque()  # of the first so many items
        self._given_up = False
        self.dropped = 0
        self.why = ""

    def __len__(self) -> int:
        """Return how many are not acknowledged."""
        return len(self._items)

    def add(self, item: T) -> None:
        """Take one more."""
        if len(self._items) >= self._limit:
            self._drop("too many wait")
        self._items.append(item)

    def step(self, now_s: float) -> list[T]:
        """Send what can be sent now; return what was acknowledged since the last step."""
        arrived = self._settled(now_s)
        while self._patience.due(now_s) and not self._given_up:
            at = len(self._flight)
            if at >= min(len(self._items), _IN_FLIGHT_MAX):
                break
            try:
                self._flight.append(self._send(self._items[at]))
            except Unavailable as error:
                self._patience.failed(error, now_s)
            except Rejected as error:
                del self._items[at]
                self._refused(error)
        return arrived + self._settled(now_s)

    def last(
        self, flush: Callable[[float], None], now_s: Callable[[], float], timeout_s: float
    ) -> list[T]:
        """Send what is left and wait for its acknowledgement, for at most `timeout_s` seconds.

        `flush` waits for answers. Returns what was acknowledged; `why` says why the rest was not.
        """
        self._patience.hurry()
        end_s = now_s() + timeout_s
        arrived: list[T] = []
        left = -1
        while len(self._items) not in {0, left} and now_s() <= end_s:
            left = len(self._items)
            arrived += self.step(now_s())
            try:
                flush(max(end_s - now_s(), 0.0))
            except FarsideError as error:
                self.why = str(error)
            arrived += self.step(now_s())
        return arrived

    def _settled(self, now_s: float) -> list[T]:
        """Take out what is answered; after something was given up, wait for the others' answers."""
        arrived = []
        while self._flight and not self._given_up:
            answer, error = _answer(self._flight[0])
            if answer == "on its way":
                break
            if isinstance(error, Unavailable):
                self._given_up = True
                self._patience.failed(error, now_s)
                break
            self._flight.popleft()
            item = self._items.popleft()
            if error is None:
                arrived.append(item)
                self._patience.well(now_s)
            else:
                self._refused(error)
        if self._given_up and all(_answer(one)[0] != "on its way" for one in self._flight):
            self._flight.clear()
            self._given_up = False
        return arrived

    def _drop(self, why: str) -> None:
        self._items.popleft()
        if self._flight:
            self._flight.popleft()
        self.dropped += 1
        self.why = why

    def _refused(self, error: FarsideError) -> None:
        self.dropped += 1
        self.why = str(error)


def _answer(receipt: Receipt) -> tuple[Answer, FarsideError | None]:
    try:
        return ("taken" if receipt.taken() else "on its way"), None
    except Unavailable as error:
        return "given up", error
    except Rejected as error:
        return "refused", error


class Readable(Protocol[T]):
    """A log that can be read to its end (`bus.transport.Source`)."""

    def poll(self, limit: int, timeout_s: float) -> list[T]:
        """Return what comes next."""

    def lag(self) -> Mapping[tuple[str, int], int]:
        """Return how much each partition holds that was not read yet."""


def read_through(
    source: Readable[T],
    take: Callable[[list[T]], None],
    *,
    patience: Patience,
    clock: Clock,
    stop: threading.Event,
    meanwhile: Callable[[], None] = lambda: None,
) -> bool:
    """Read a log to its end; return whether that was reached before `stop` was set.

    What counts is the lag: a first poll may be empty though there are records. A log that can't be
    read, or not within `READ_S_MAX` seconds, is waited for with growing pauses, and that is said.
    `meanwhile` is called about every `READ_LOOK_S` seconds.
    """
    end_s = clock.monotonic() + READ_S_MAX
    while True:
        meanwhile()
        now_s = clock.monotonic()
        if not patience.due(now_s):
            clock.wait(stop, READ_LOOK_S)
        else:
            try:
                lag = source.lag()
                if lag and not any(lag.values()):
                    patience.well(now_s)
                    return True
                take(source.poll(READ_RECORDS_MAX, READ_LOOK_S))
            except Unavailable as error:
                patience.failed(error, clock.monotonic())
            else:
                if now_s > end_s:
                    end_s = now_s + READ_S_MAX
                    left = sum(lag.values())
                    slow = Unavailable(f"{left} records are left to be read after {READ_S_MAX:g} s")
                    patience.failed(slow, now_s)
        if stop.is_set():
            return False
