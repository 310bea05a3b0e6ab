"""After a start: the journal's turns beyond the checkpoint, repeated in exactly their order.

What a journal names and the log no longer holds is counted and told, and the rest goes on. Where
turns are missing (the checkpoint was lost, a line was damaged), what lies in between is judged
first, partition by partition.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bus.transport import Envelope, Place
from detector.journal import Journal, Range, Turn

PROBLEMS_MAX = 20
CHUNK_MAX = 50_000


class Repeated(NamedTuple):
    """What came of it.

    whole: False where a stop came first. newest: the last turn in the journal; before: the last one
    that the checkpoint holds already. other_log: turns of another log, which mean nothing here.
    """

    whole: bool
    newest: int
    before: int
    turns: int
    gone: int
    other_log: int
    problems: tuple[str, ...]


class Hands(NamedTuple):
    """What repeating is done with.

    reread(place, first, end) returns the records that still exist, None where a stop was asked for;
    step(records) judges and publishes them, False where a stop was asked for.
    """

    reread: Callable[[Place, int, int], Sequence[Envelope] | None]
    step: Callable[[Sequence[Envelope]], bool]
    positions: Callable[[], Mapping[Place, int]]


class Repeat:
    """One repetition of a journal."""

    def __init__(
        self, journal: Journal, log: str, after: Mapping[Place, int], hands: Hands, chunk: int
    ) -> None:
        """Repeat what belongs to the log of this mark and lies after a checkpoint's position.

        Gaps are read `chunk` offsets at a time.
        """
        self._journal = journal
        self._log = log
        self._hands = hands
        self._chunk = chunk
        self._after = after
        self._filled: set[Place] = set()
        self._problems: list[str] = []
        self._newest = self._before = self._turns = self._gone = self._other = 0

    def run(self) -> Repeated:
        """Repeat all turns after the reader's position; errors of `Journal.read`."""
        expected = 0
        for turn, problem in self._journal.read(self._behind):
            if turn is None:
                self._note(problem)
                continue
            self._newest = turn.turn
            if turn.log != self._log:
                self._other += 1
            elif self._covered(turn):
                self._before = turn.turn
            else:
                if turn.turn != expected:
                    self._filled.clear()
                if not self._repeat(turn):
                    return self._result(whole=False)
                self._turns += 1
            expected = turn.turn + 1
        return self._result(whole=True)

    def _result(self, *, whole: bool) -> Repeated:
        return Repeated(
            whole,
            self._newest,
            self._before,
            self._turns,
            self._gone,
            self._other,
            tuple(self._problems),
        )

    def _covered(self, turn: Turn) -> bool:
        """Tell whether the checkpoint holds this turn already."""
        return all(one.end <= self._after.get(one.place, 0) for one in turn.ranges)

    def _behind(self, turn: Turn) -> bool:
        """Tell whether nothing before this turn is of interest."""
        return turn.log != self._log or self._covered(turn)

    def _repeat(self, turn: Turn) -> bool:
        envelopes: list[Envelope] = []
        for one in turn.ranges:
            if one.place not in self._filled:
                self._filled.add(one.place)
                if not self._fill(one, turn.turn):
                    return False
            found = self._hands.reread(one.place, one.first, one.end)
            if found is None:
                return False
            if len(found) < one.count:
                self._gone += one.count - len(found)
                self._note(
                    f"turn {turn.turn}: {one.count - len(found)} of {one.count} records are no "
                    f"longer in the log ({one})"
                )
            envelopes += found
        return not envelopes or self._hands.step(envelopes)

    def _fill(self, upto: Range, turn: int) -> bool:
        """Judge what lies between the reader's position and a range, if anything does."""
        at, chunk, taken = self._hands.positions().get(upto.place, 0), self._chunk, 0
        while at < upto.first:
            end = min(at + chunk, upto.first)
            found = self._hands.reread(upto.place, at, end)
            if found is None or (found and not self._hands.step(found)):
                return False
            # Far below the log's start there is nothing, so the steps grow.
            chunk = self._chunk if found else min(2 * chunk, CHUNK_MAX)
            taken += len(found)
            at = end
        if taken:
            self._note(
                f"before turn {turn}: {taken} records of {upto.topic} {upto.partition} stand in no "
                "turn and were judged first"
            )
        return True

    def _note(self, problem: str) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(problem)
