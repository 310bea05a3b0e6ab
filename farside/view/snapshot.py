"""One moment of the story as plain values: what the live view shows, and what `top` is sent.

It travels as JSON between two farsides of one machine, so both may be of different versions:
fields have defaults, and unknown ones are passed over.
"""

from typing import Literal, Self

import msgspec

from bus.messages import Exhaustion, IncidentState, Scope, Severity, SuspicionState
from runtime.clock import Instant
from runtime.errors import Rejected

EventKind = Literal[
    "suspicion", "forecast", "incident", "command", "proposal", "refusal", "report", "delivery",
    "directive", "health", "log",
]  # fmt: skip
Level = Literal["good", "info", "warning", "critical"]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What the one who composes the program knows of it and a story can't.

    acting: whether commands are carried out; None when nobody said. acting_on: where and what, in
    words ("freeze and reclaim in demo"). watching: what is seen, in words.
    """

    host: str = ""
    watching: str = ""
    acting: bool | None = None
    acting_on: str = ""
    started: Instant | None = None
    version: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scope now. Sizes in bytes, growth in bytes per second; None is "not known".

    used: what can't be taken back; file_bytes: page cache beside it. held: "frozen", "throttled" or
    "limited" while a command of ours holds it. health: one word for people. note: why.
    """

    scope: Scope
    name: str
    used: float | None = None
    limit: float | None = None
    file_bytes: float | None = None
    growth_5s: float | None = None
    growth_30s: float | None = None
    state: SuspicionState = "healthy"
    score: float | None = None
    since: Instant | None = None
    exhaustion: Exhaustion | None = None
    health: str = "healthy"
    incident: str = ""
    incident_state: IncidentState | None = None
    severity: Severity | None = None
    held: str = ""
    held_until: Instant | None = None
    note: str = ""
    seen: Instant | None = None
    gone: bool = False

    @property
    def attention(self) -> int:
        """Return how much this row matters: 2 has an incident, 1 is suspected, 0 neither."""
        if self.incident_state not in {None, "closed"}:
            return 2
        return int(self.state != "healthy")


class IncidentLine(msgspec.Struct, frozen=True, kw_only=True):
    """One incident in one line."""

    id: str
    scope: Scope
    state: IncidentState
    severity: Severity
    sentence: str
    opened: Instant
    updated: Instant


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, in one line."""

    time: Instant
    kind: EventKind
    text: str
    level: Level = "info"
    scope: str = ""
    incident: str = ""


class CellLine(msgspec.Struct, frozen=True, kw_only=True):
    """How well one cell is seen.

    judged: up to when its telemetry is judged; heard: when its scorer said so. lag_s: how far that
    is behind the log's head, the scorer's silence included. blind: why it counts as unwatched,
    empty where it does not.
    """

    cell: str
    judged: Instant | None = None
    heard: Instant | None = None
    lag_s: float | None = None
    blind: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one screen shows.

    rows: those that matter most first; left_out: how many more there are. lag_s: the largest of any
    cell; None before the first watermark. cells: those that are seen worst first. events: newest
    last, of all that happened so far. problem: why what is shown may be old, empty where it is not.
    """

    time: Instant
    about: About = About()
    since: Instant | None = None
    lag_s: float | None = None
    cells: tuple[CellLine, ...] = ()
    problem: str = ""
    nodes: int = 0
    samples: int = 0
    rejected: int = 0
    rows: tuple[Row, ...] = ()
    left_out: int = 0
    incidents: tuple[IncidentLine, ...] = ()
    events: tuple[Event, ...] = ()
    happened: int = 0

    def to_json(self) -> bytes:
        """Return one line of JSON; times are RFC 3339."""
        return _ENCODER.encode(self)

    @classmethod
    def of_json(cls, text: bytes | str) -> Self:
        """Return the snapshot; `Rejected` where the text is none."""
        try:
            return msgspec.json.decode(text, type=cls, dec_hook=_read)
        except (msgspec.DecodeError, ValueError) as error:
            msg = f"no snapshot of a farside: {error}"
            raise Rejected(msg) from None


def _write(value: object) -> object:
    if isinstance(value, Instant):
        return value.text()
    msg = f"a {type(value).__name__} does not travel"
    raise NotImplementedError(msg)


def _read(kind: type, value: object) -> object:
    if kind is Instant and isinstance(value, str):
        try:
            return Instant.parse(value)
        except Rejected as error:
            raise ValueError(str(error)) from None
    msg = f"no way to read a {kind.__name__} here"
    raise ValueError(msg)


_ENCODER = msgspec.json.Encoder(enc_hook=_write)
