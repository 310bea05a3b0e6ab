"""All that the decider remembers between two records, and its form in a checkpoint."""

from collections.abc import Iterator

import msgspec

from bus.codec import encode
from bus.messages import Directive, Fault, Scope, Source, Suspicion, Watermark
from detector.budgets import Ledger
from detector.health import NodeRecord
from detector.incidents import LAST_SAVED_NS, Case, short_id
from runtime.clock import Instant

FORMAT = 1
HANDLED_MAX = 4096


class Place(msgspec.Struct, kw_only=True):
    """How far one partition of telemetry was judged, as its scorer said.

    Several messages may stem from one record: seen holds the digests of those of the newest one.
    newest: the latest time that a suspicion told.
    """

    offset: int = -1
    seen: list[str] = []
    covered: int = -1
    time: Instant = Instant(0)
    newest: Instant = Instant(0)

    def take(self, suspicion: Suspicion) -> bool:
        """Tell whether a suspicion is no repeat, and remember it.

        A repeat was heard before, so it tells no later time: a later one at a lower offset means
        that the log was begun anew.
        """
        if suspicion.source.offset < self.offset and suspicion.time > max(self.newest, self.time):
            self.offset, self.covered, self.seen = -1, -1, []
        self.newest = max(self.newest, suspicion.time)
        return self.is_new(suspicion.source, short_id(encode(suspicion)))

    def is_new(self, source: Source, digest: str) -> bool:
        """Tell whether a message was not seen yet, and remember it."""
        if source.offset < self.offset or (source.offset == self.offset and digest in self.seen):
            return False
        if source.offset > self.offset:
            self.offset = source.offset
            self.seen = []
        self.seen.append(digest)
        return True

    def advance(self, mark: Watermark) -> bool:
        """Take a watermark; tell whether it is a new one.

        Within one log time and offset grow together. A later time at a lower offset means that the
        log was begun anew.
        """
        if mark.source.offset < self.offset and mark.time > self.time:
            self.offset, self.covered, self.seen = -1, -1, []
        if not self.is_new(mark.source, "watermark"):
            return False
        self.covered = mark.source.offset
        self.time = max(self.time, mark.time)
        return True


class Sight(msgspec.Struct, kw_only=True):
    """How far one cell is judged, and where the head of its log was.

    heard_s: how far the decider's own log had come (State.log_s) at its last watermark. late_judged
    and late_head: both as they were when it was found behind first (0 while it is not).
    """

    judged: Instant = Instant(0)
    head: Instant = Instant(0)
    heard_s: float = 0.0
    late_judged: Instant = Instant(0)
    late_head: Instant = Instant(0)
    blind: bool = False


class State(msgspec.Struct, kw_only=True):
    """Everything. Suspicions and cases lie under their node ("" for what is larger).

    now: the newest head of the log that a watermark told; before the first one (not marked), the
    time of the last suspicion. handled: reports and directives that were taken already, the oldest
    first. log_time: when the newest record that was read was appended; log_s: how long this log
    went on, gaps cut short.
    """

    format: int = FORMAT
    now: Instant = Instant(0)
    marked: bool = False
    log_time: Instant = Instant(0)
    log_s: float = 0.0
    sights: dict[str, Sight] = {}
    places: dict[str, dict[int, Place]] = {}
    suspicions: dict[str, dict[str, Suspicion]] = {}
    cases: dict[str, dict[str, Case]] = {}
    nodes: dict[str, NodeRecord] = {}
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    stopped: Directive | None = None
    handled: dict[str, None] = {}
    counts: dict[str, int] = {}

    def place(self, cell: str, source: Source) -> Place:
        """Return how far this partition of this cell was judged."""
        return self.places.setdefault(cell, {}).setdefault(source.partition, Place())

    def is_new(self, suspicion: Suspicion) -> bool:
        """Tell whether a suspicion is no repeat."""
        return self.place(suspicion.scope.cell, suspicion.source).take(suspicion)

    def covered(self, suspicion: Suspicion) -> bool:
        """Tell whether a watermark has passed a suspicion, so that its age is known."""
        place = self.place(suspicion.scope.cell, suspicion.source)
        return suspicion.source.offset <= place.covered

    def handle(self, identity: str) -> bool:
        """Tell whether a report or directive is new, and remember it."""
        if identity in self.handled:
            return False
        self.handled[identity] = None
        while len(self.handled) > HANDLED_MAX:
            del self.handled[next(iter(self.handled))]
        return True

    def keep(self, suspicion: Suspicion, suspicions_max: int) -> bool:
        """Keep what is suspected, drop what is well again; False where there is no room."""
        scope = suspicion.scope
        here = self.suspicions.get(scope.node, {})
        if suspicion.state == "healthy":
            self.lose(scope)
            return True
        if scope.key not in here and sum(map(len, self.suspicions.values())) >= suspicions_max:
            return False
        self.suspicions.setdefault(scope.node, here)[scope.key] = suspicion
        return True

    def lose(self, scope: Scope) -> None:
        """Drop what is suspected of a scope."""
        here = self.suspicions.get(scope.node, {})
        here.pop(scope.key, None)
        if not here:
            self.suspicions.pop(scope.node, None)

    def every_suspicion(self) -> list[Suspicion]:
        """Return all that is suspected."""
        return [suspicion for here in self.suspicions.values() for suspicion in here.values()]

    def every_case(self) -> Iterator[Case]:
        """Go through all cases."""
        for here in self.cases.values():
            yield from here.values()

    def cases_of(self, node: str) -> list[Case]:
        """Return the cases of a node."""
        return list(self.cases.get(node, {}).values())

    def case(self, scope: Scope, fault: Fault) -> Case | None:
        """Return the case of a scope and fault."""
        for case in self.cases.get(scope.node, {}).values():
            if case.fault == fault and case.scope == scope:
                return case
        return None

    def add(self, case: Case) -> None:
        """Keep a new case."""
        self.cases.setdefault(case.scope.node, {})[case.id] = case

    def drop(self, case: Case) -> None:
        """Forget a case."""
        here = self.cases[case.scope.node]
        del here[case.id]
        if not here:
            del self.cases[case.scope.node]

    def saved(self) -> bytes:
        """Return everything as bytes."""
        return msgspec.msgpack.encode(self, enc_hook=_plain)


def _plain(value: object) -> int:
    """Return a moment as a number that fits: people may write the year 9999 as an end."""
    if isinstance(value, int):
        return min(int(value), LAST_SAVED_NS)
    raise NotImplementedError(f"a {type(value).__name__} is not saved")


def restored(plain: bytes) -> State:
    """Return the state that was saved; ValueError where it is of another form."""
    try:
        state = msgspec.msgpack.decode(plain, type=State, dec_hook=_instant)
    except msgspec.DecodeError as error:
        raise ValueError(f"saved state of another form: {error}") from None
    if state.format != FORMAT:
        raise ValueError(f"saved state of format {state.format}, this version reads {FORMAT}")
    return state


def _instant(kind: type, value: object) -> object:
    if kind is Instant and isinstance(value, int):
        return Instant(value)
    raise ValueError(f"no way to read a {kind.__name__}")
