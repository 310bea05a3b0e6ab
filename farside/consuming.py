"""What `farside consume` shows: which records, up to where, and each in one line."""

import difflib
import threading
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple

import msgspec

from bus.codec import to_json, type_of
from bus.messages import (
    Delivery,
    Directive,
    ExecutionReport,
    Incident,
    IsolationCommand,
    JobFacts,
    LogLine,
    Message,
    NodeFacts,
    NodeHealth,
    Proposal,
    Refusal,
    Reject,
    SampleBatch,
    Suspicion,
    Tick,
    Watermark,
)
from bus.records import dump
from bus.topics import PREFIX, REJECTS, TOPICS
from bus.transport import Envelope, Source, Start
from farside.backlog import LIMIT, WAIT_S, ends_of, in_order
from runtime.clock import Clock, Instant
from runtime.errors import Misconfigured, Rejected, Unavailable
from runtime.words import plain_text

CHARS_MAX = 400
_KINDS: dict[str, type[Message]] = {one.__name__: one for one in Message.__args__}


class Filter(NamedTuple):
    """A field by its dotted path, and the text that it must have; `type` is the message's own."""

    path: tuple[str, ...]
    value: str

    def holds(self, fields: dict[str, Any]) -> bool:
        """Tell whether a message, as plain JSON values, has that text there, or in a list there."""
        found: Any = fields
        for name in self.path:
            if not isinstance(found, dict) or name not in found:
                return False
            found = found[name]
        return any(
            _text(one) == self.value for one in (found if isinstance(found, list) else [found])
        )


def topics_named(names: Iterable[str]) -> list[str]:
    """Return the topics that people name, in short or whole; `Misconfigured` where one is none."""
    found = []
    for name in names:
        full = name if name.startswith(PREFIX) else PREFIX + name
        if full not in TOPICS:
            known = [topic.short for topic in TOPICS.values()]
            close = difflib.get_close_matches(name.removeprefix(PREFIX), known, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise Misconfigured(f"{name!r} is no topic: {hint}(known: {', '.join(known)})")
        found.append(full)
    return list(dict.fromkeys(found))


def start_of(text: str) -> Start:
    """Return where to begin; `Misconfigured` where the text says nothing of the kind."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        return Instant.parse(text)
    except Rejected:
        raise Misconfigured(
            f"--from {text!r}: write earliest, latest or a time as 2026-11-30T12:00:00Z"
        ) from None


def filters_of(texts: Iterable[str], topics: Iterable[str]) -> list[Filter]:
    """Return filters written as path=value.

    Errors: `Misconfigured` where one is not, or names what no message of these topics has.
    """
    known = {"type": list(_carried(topics))}
    for kind in (*(_KINDS[name] for name in known["type"]), Reject):
        known |= {field: [] for field in kind.__struct_fields__}
    found = []
    for text in texts:
        path, sign, value = text.partition("=")
        if not sign or not path:
            raise Misconfigured(
                f"--filter {text!r}: write it as field=value, as in scope.node=gpu-17 or "
                "type=Incident"
            )
        names = tuple(path.split("."))
        _judge(text, names[0], list(known))
        if names == ("type",):
            _judge(text, value, [*known["type"], "Reject"])
        found.append(Filter(names, value))
    return found


def _judge(text: str, word: str, known: Sequence[str]) -> None:
    if word not in known:
        close = difflib.get_close_matches(word, known, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise Misconfigured(f"--filter {text!r}: {hint}these topics know {', '.join(known)}")


def _carried(topics: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(name for topic in topics for name in TOPICS[topic].carries)


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def passes(message: Message, filters: Sequence[Filter]) -> bool:
    """Tell whether a message passes all filters."""
    if not filters:
        return True
    fields = msgspec.json.decode(to_json(message))
    return all(one.holds(fields) for one in filters)


class Show:
    """Prints what passes; notes what was broken, and when there was enough."""

    def __init__(
        self, stream: BinaryIO, filters: Sequence[Filter], limit: int | None, *, as_json: bool
    ) -> None:
        """Print at most `limit` records to `stream`, as JSON or a line for people each."""
        self._stream = stream
        self._filters = filters
        self._left = limit
        self._as_json = as_json
        self.broken = 0

    @property
    def enough(self) -> bool:
        """Tell whether all that was asked for is printed."""
        return self._left == 0

    def take(self, envelope: Envelope) -> None:
        """Print a record, unless a filter holds it back."""
        message = envelope.message
        if isinstance(message, Reject) and envelope.topic != REJECTS:
            self.broken += 1
        if self.enough or not passes(message, self._filters):
            return
        self._stream.write(dump(envelope) if self._as_json else line_of(envelope).encode() + b"\n")
        if self._left is not None:
            self._left -= 1

    def flush(self) -> None:
        """Hand over what was printed."""
        self._stream.flush()


def read(
    source: Source, show: Show, clock: Clock, *, follow: bool, tell: Callable[[str], None]
) -> None:
    """Show everything up to the end that there is now, in the log's order, or on and on.

    Errors: `Unavailable` when the topics can't be read; once they could, one who follows waits
    (`tell` is given the reason).
    """
    for envelope in in_order(source, ends_of(source), clock):
        show.take(envelope)
        if show.enough:
            break
    show.flush()
    told, never = "", threading.Event()
    while follow and not show.enough:
        try:
            found = source.poll(LIMIT, WAIT_S)
            told = ""
        except Unavailable as error:
            if str(error) != told:
                told = str(error)
                tell(f"{told}; waiting")
            clock.wait(never, WAIT_S)
            continue
        for envelope in sorted(found, key=attrgetter("appended")):
            show.take(envelope)
        show.flush()


def line_of(envelope: Envelope) -> str:
    """Return a record in one line: when the log took it, its place, its type, what it says."""
    topic = envelope.topic.removeprefix(PREFIX)
    place = f"{topic}/{envelope.partition}@{envelope.offset}"
    said = plain_text(essence(envelope.message), CHARS_MAX)
    when = envelope.appended.text()[:23]
    return f"{when}Z {place:<24} {type_of(envelope.message):<16} {said}"


def essence(message: Message) -> str:  # noqa: C901, PLR0911, PLR0912  # one case for each type
    """Return what a message says, in words."""
    match message:
        case Incident():
            return f"{message.state} {message.severity}: {message.sentence}"
        case IsolationCommand():
            rehearsed = " (dry run)" if message.dry_run else ""
            return f"{message.action} {message.scope.label}{rehearsed}: {message.reason}"
        case Proposal():
            return f"waits for a person: {essence(message.command)}"
        case Refusal():
            return f"no {message.action} of {message.scope.label}: {message.reason}"
        case ExecutionReport():
            return f"{message.executor}: {message.outcome} {message.command}: {message.detail}"
        case NodeHealth():
            return f"{message.node} is {message.state}: {message.sentence}"
        case Suspicion():
            worst = max(message.p_bad, key=lambda fault: message.p_bad[fault], default="healthy")
            return f"{message.scope.label} {message.state}: {worst} {message.score:.1f} nats"
        case Watermark():
            behind_s = max(message.head_time.since(message.time), 0.0)
            return f"cell {message.cell} is judged up to {behind_s:.1f} s behind the head"
        case SampleBatch():
            return f"{message.node} #{message.sequence}: {len(message.samples)} samples"
        case LogLine():
            return f"{message.node} #{message.sequence} {message.source}: {message.text}"
        case Tick():
            return f"cell {message.cell}"
        case Delivery():
            return f"{message.notifier}: {message.outcome} {message.incident} {message.state}"
        case Directive():
            return f"{message.who}: {message.kind} {message.scope.label} {message.reason}"
        case NodeFacts():
            return f"{message.node} in pool {message.pool or '?'}: {message.state}"
        case JobFacts():
            return f"job {message.job} on {len(message.nodes)} nodes: {message.state}"
        case Reject():
            place = f"{message.topic}@{message.source.offset}"
            return f"{message.reason} ({message.detail}), {message.size} bytes from {place}"
