"""Replay in the order of a journal: the decider alone, on the records that it took live.

The records come from files, as `up --record` and `consume --json` write them; the journal says in
which order the decider took them. What it says is then what it published, with the same
identifiers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bus.messages import Message
from bus.records import Broken, lines_of, load
from bus.topics import COMMANDS, INCIDENTS
from bus.transport import Envelope, Place
from detector.decider import Decider
from detector.journal import Range, Turn, read, segments
from runtime.clock import Instant
from runtime.errors import Misconfigured

OWNER = "decider"
TOLD_MAX = 20


class Order(NamedTuple):
    """What a journal holds: its files, the log whose turns count (the last one), what is amiss.

    `passed_over` counts turns of earlier logs.
    """

    paths: list[Path]
    log: str
    places: frozenset[Place]
    problems: tuple[str, ...]
    passed_over: int

    def turns(self) -> Iterator[Turn]:
        """Give the turns in their order."""
        for turn, _ in read(self.paths):
            if turn is not None and turn.log == self.log:
                yield turn


def order_of(path: Path) -> Order:
    """Look through a journal, a folder that holds the decider's or one file of it.

    Errors: `Misconfigured` where there is none.
    """
    paths = segments(path, OWNER) if path.is_dir() else [path]
    if not path.is_dir() and not path.is_file():
        raise Misconfigured(f"{path} can't be read as a journal: no such file or folder")
    log, first, number = "", 0, 0
    places: set[Place] = set()
    problems: list[str] = []
    before = passed_over = 0
    for turn, problem in read(paths):
        if turn is None:
            problems.append(problem)
            continue
        if turn.log != log:
            log, first, places, passed_over = turn.log, turn.turn, set(), number
        elif turn.turn != before + 1:
            problems.append(f"turns {before + 1} to {turn.turn - 1} are not in the journal")
        places |= {one.place for one in turn.ranges}
        before, number = turn.turn, number + 1
    if not number:
        raise Misconfigured(
            f"{path} holds no journal of the decider: name the state_dir of a detector, "
            f"or a file {OWNER}.journal.… in it"
        )
    if first > 1 and not passed_over:
        problems.append(f"the journal begins with turn {first}: what came before is not known")
    return Order(paths, log, frozenset(places), tuple(problems[-TOLD_MAX:]), passed_over)


class Records:
    """Records of a file by their place; the file is read once and then looked into."""

    def __init__(self, file: BinaryIO, places: frozenset[Place]) -> None:
        """Note where each record of these places lies; lines that are no record are kept aside."""
        self._file = file
        self._at: dict[Place, dict[int, tuple[int, Instant]]] = {place: {} for place in places}
        self.broken: list[Broken] = []
        begin = 0

        def lines() -> Iterator[bytes]:
            nonlocal begin
            end = file.tell()
            for line in lines_of(file):
                begin, end = end, file.tell()
                yield line

        for found in load(lines()):
            if isinstance(found, Broken):
                self.broken.append(found)
            elif (known := self._at.get((found.topic, found.partition))) is not None:
                known.setdefault(found.offset, (begin, found.appended))

    def of(self, wanted: Range) -> list[Envelope]:
        """Return the records of a range that are there."""
        known = self._at.get(wanted.place, {})
        return [
            self._read(wanted.place, offset, *known[offset])
            for offset in range(wanted.first, wanted.end)
            if offset in known
        ]

    def _read(self, place: Place, offset: int, at: int, appended: Instant) -> Envelope:
        self._file.seek(at)
        found = next(iter(load([self._file.readline()])))
        if isinstance(found, Broken):
            raise TypeError(f"the record at byte {at} was one before")
        return found._replace(topic=place[0], partition=place[1], offset=offset, appended=appended)


class JournaledReplay:
    """One run of a fresh decider over records in the order of a journal."""

    def __init__(self, decider: Decider, records: Records) -> None:
        """Begin with fresh state."""
        self._decider = decider
        self._records = records
        self.missing = 0
        self.missing_told: list[str] = []

    def take(self, turn: Turn) -> Iterator[Message]:
        """Take one turn; give what the live decider published for people and executors."""
        envelopes: list[Envelope] = []
        for wanted in turn.ranges:
            found = self._records.of(wanted)
            if len(found) < wanted.count:
                self._miss(turn, wanted, wanted.count - len(found))
            envelopes += found
        for output in self._decider.step(envelopes):
            if output.topic in {INCIDENTS, COMMANDS}:
                yield output.message

    def _miss(self, turn: Turn, wanted: Range, number: int) -> None:
        self.missing += number
        if len(self.missing_told) < TOLD_MAX:
            self.missing_told.append(
                f"turn {turn.turn}: {number} of {wanted.count} records are not in the file "
                f"({wanted})"
            )
