"""What a worker has to say and the bus has not acknowledged yet, in order.

An output leaves on its acknowledgement, or when the bus refuses it for good. What was given up is
sent again; what is on its way is waited for and not sent a second time.
"""

from collections.abc import Iterable
from typing import NamedTuple

from bus.topics import REJECTS
from bus.transport import Receipt, Sink
from detector.outputs import Output
from runtime.errors import Rejected, Unavailable


class Refused(NamedTuple):
    """An output that the bus will never take, and why."""

    output: Output
    why: str


class Delivered(NamedTuple):
    """What one try achieved; `problem` says what stands against the rest, "" when nothing is left.

    `to_send` tells that something must be sent again, not only waited for.
    """

    taken: tuple[Output, ...]
    refused: tuple[Refused, ...]
    problem: str
    to_send: bool


class _Owed:
    """One output and, once it was sent, the word on what becomes of it."""

    __slots__ = ("output", "receipt")

    def __init__(self, output: Output) -> None:
        self.output = output
        self.receipt: Receipt | None = None


class Outbox:
    """Outputs on their way to the bus; it belongs to one thread."""

    def __init__(self, sink: Sink) -> None:
        """Send through `sink`, which others may use too."""
        self._sink = sink
        self._owed: list[_Owed] = []

    def __len__(self) -> int:
        """Return how many outputs are not acknowledged."""
        return len(self._owed)

    def put(self, outputs: Iterable[Output]) -> None:
        """Take outputs, behind those that are there."""
        self._owed += map(_Owed, outputs)

    def clear(self) -> None:
        """Forget everything: the turn will be repeated."""
        self._owed = []

    def deliver(self, timeout_s: float) -> Delivered:
        """Send what was not sent, wait for acknowledgements for at most `timeout_s` seconds."""
        refused: list[Refused] = []
        problem = self._send(refused)
        try:
            self._sink.flush(timeout_s)
        except Unavailable as error:
            problem = problem or str(error)
        except Rejected:
            pass  # which one it was, and whether it was one of ours, its receipt tells
        taken, still, given_up = self._look(refused)
        self._owed = still
        if not still:
            return Delivered(tuple(taken), tuple(refused), "", to_send=False)
        return Delivered(
            tuple(taken),
            tuple(refused),
            given_up or problem or f"{len(still)} records are not acknowledged",
            to_send=any(owed.receipt is None for owed in still),
        )

    def _send(self, refused: list[Refused]) -> str:
        """Send in order; the first one that the bus can't take ends it, so that none overtakes."""
        left = []
        problem = ""
        for owed in self._owed:
            if owed.receipt is None and not problem:
                output = owed.output
                try:
                    owed.receipt = self._sink.send(output.topic, output.key, output.message)
                except Unavailable as error:
                    problem = str(error)
                except Rejected as error:
                    refused.append(Refused(output, str(error)))
                    continue
            left.append(owed)
        self._owed = left
        return problem

    def _look(self, refused: list[Refused]) -> tuple[list[Output], list[_Owed], str]:
        """Return what was taken, what is still owed, and why something was given up."""
        taken, still, problem = [], [], ""
        for owed in self._owed:
            try:
                if owed.receipt is not None and owed.receipt.taken():
                    taken.append(owed.output)
                    continue
            except Rejected as error:
                refused.append(Refused(owed.output, str(error)))
                continue
            except Unavailable as error:
                owed.receipt, problem = None, str(error)
            still.append(owed)
        return taken, still, problem


class RejectGate:
    """Lets so many rejects a second through, so that a stream of rubbish does not become two."""

    def __init__(self, per_s: int) -> None:
        """Begin with a whole second's share."""
        self._per_s = per_s
        self._second = 0
        self._passed = 0

    def let(self, outputs: Iterable[Output], second: int) -> list[Output]:
        """Return the outputs without the rejects that are too many for this second."""
        if second != self._second:
            self._second, self._passed = second, 0
        kept = []
        for output in outputs:
            if output.topic == REJECTS:
                if self._passed >= self._per_s:
                    continue
                self._passed += 1
            kept.append(output)
        return kept
