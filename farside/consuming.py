"""What `farside consume` shows: which records, and each in one line."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
from bus.topics import PREFIX, TOPICS
from bus.transport import Envelope
from runtime.errors import Misconfigured
from runtime.words import plain_text

CHARS_MAX = 400


class Filter(NamedTuple):
    """A field by its dotted path, and the text that it must have; `type` is the message's own."""

    path: tuple[str, ...]
    value: str

    def holds(self, fields: dict[str, Any]) -> bool:
        """Tell whether a message, as plain JSON values, has that text there."""
        found: Any = fields
        for name in self.path:
            if not isinstance(found, dict) or name not in found:
                return False
            found = found[name]
        if isinstance(found, bool):
            return self.value == ("true" if found else "false")
        return isinstance(found, str | int | float) and str(found) == self.value


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


def filters_of(texts: Iterable[str]) -> list[Filter]:
    """Return filters written as path=value; `Misconfigured` where one is not."""
    found = []
    for text in texts:
        path, sign, value = text.partition("=")
        if not sign or not path:
            raise Misconfigured(
                f"--filter {text!r}: write it as field=value, as in scope.node=gpu-17 or "
                "type=Incident"
            )
        found.append(Filter(tuple(path.split(".")), value))
    return found


def passes(message: Message, filters: Sequence[Filter]) -> bool:
    """Tell whether a message passes all filters."""
    if not filters:
        return True
    fields = msgspec.json.decode(to_json(message))
    return all(one.holds(fields) for one in filters)


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
