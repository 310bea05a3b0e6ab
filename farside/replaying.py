"""Replay: the same scorer and decider on records, without clock or network.

The same file gives the same bytes. What farside itself wrote into a record file (suspicions of a
cell whose telemetry is there, incidents, commands) is worked out anew, not believed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from numpy.typing import NDArray

from bus.messages import (
    ExecutionReport,
    Incident,
    IsolationCommand,
    LogLine,
    Message,
    Refusal,
    Reject,
    SampleBatch,
    Suspicion,
    Tick,
    Watermark,
)
from bus.topics import DIRECTIVES, INVENTORY, REJECTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Envelope
from detector.decider import Decider
from detector.outputs import Output
from detector.scorer import Scorer
from farside.parts import Parts

SHOWN = (Suspicion, Incident, IsolationCommand, Refusal)


CoreState = tuple[bytes, dict[str, NDArray[Any]]]


class Rejections:
    """What the scorer could not use, by reason, with the place and the words of the first one."""

    def __init__(self) -> None:
        """Know of none."""
        self._found: dict[str, tuple[int, str]] = {}

    def note(self, reject: Reject) -> None:
        """Count one."""
        number, first = self._found.get(reject.reason, (0, ""))
        place = f"{reject.topic} {reject.source.partition}, offset {reject.source.offset}"
        self._found[reject.reason] = (number + 1, first or f"{place}: {reject.detail}")

    def lines(self) -> list[str]:
        """Return a sentence for each reason."""
        return [
            f"{number} rejected: {reason} (the first is {first.rstrip(': ')})"
            for reason, (number, first) in sorted(self._found.items())
        ]


class SavedReplay(NamedTuple):
    """The state of both cores, the scorers' by partition, and the next offsets between them."""

    decider: CoreState
    scorers: dict[int, CoreState]
    offsets: tuple[int, int]


class Replay:
    """One run over records; `answered` tells that reports are among them."""

    def __init__(self, parts: Parts, *, answered: bool) -> None:
        """Begin with fresh state."""
        self._parts = parts
        self._decider: Decider = parts.decider(rehearsed=not answered)
        self._answered = answered
        self._scorers: dict[int, Scorer] = {}
        self._offset = 0
        self._report_offset = 0
        self.rejections = Rejections()

    def see(self, envelope: Envelope) -> Iterator[Message]:
        """Take one record; give what a person wants to see of it."""
        message = envelope.message
        if envelope.topic == TELEMETRY or isinstance(message, (SampleBatch, LogLine, Tick)):
            for output in self._scorer(envelope.partition).step([envelope]):
                yield from self._judged(output, envelope)
        elif isinstance(message, (Suspicion, Watermark)):
            cell = message.scope.cell if isinstance(message, Suspicion) else message.cell
            if all(scorer.cell != cell for scorer in self._scorers.values()):
                yield from self._judged(Output(SUSPICIONS, cell, message), envelope)
        elif envelope.topic in {REPORTS, DIRECTIVES, INVENTORY}:
            yield from self._decided([envelope])

    def save(self) -> SavedReplay:
        """Return where it stands, as its checkpoints would hold it."""
        return SavedReplay(
            self._decider.save(),
            {partition: scorer.save() for partition, scorer in self._scorers.items()},
            (self._offset, self._report_offset),
        )

    def load(self, saved: SavedReplay) -> None:
        """Go on where another one stood."""
        self._decider.load(*saved.decider)
        for partition, state in saved.scorers.items():
            self._scorer(partition).load(*state)
        self._offset, self._report_offset = saved.offsets

    def _judged(self, output: Output, cause: Envelope) -> Iterator[Message]:
        if output.topic == REJECTS and isinstance(output.message, Reject):
            self.rejections.note(output.message)
        if output.topic != SUSPICIONS:
            return
        if isinstance(output.message, SHOWN):
            yield output.message
        offset, self._offset = self._offset, self._offset + 1
        yield from self._decided(
            [Envelope(SUSPICIONS, 0, offset, cause.appended, output.key, output.message)],
        )

    def _decided(self, envelopes: list[Envelope]) -> Iterator[Message]:
        for output in self._decider.step(envelopes):
            if output.topic.endswith("audit"):
                continue
            if isinstance(output.message, SHOWN):
                yield output.message
            if isinstance(output.message, IsolationCommand) and not self._answered:
                yield from self._as_if_done(output.message, envelopes[-1])

    def _as_if_done(self, command: IsolationCommand, cause: Envelope) -> Iterator[Message]:
        """No executor speaks here: a command counts as a dry run that was carried out."""
        report = ExecutionReport(
            command=command.id,
            executor=command.executor,
            outcome="done",
            detail="dry run: nothing was done",
            finished=command.issued,
            held_until=command.hold_until,
        )
        offset, self._report_offset = self._report_offset, self._report_offset + 1
        yield from self._decided(
            [Envelope(REPORTS, 0, offset, cause.appended, command.id, report)],
        )

    def _scorer(self, partition: int) -> Scorer:
        scorer = self._scorers.get(partition)
        if scorer is None:
            scorer = self._scorers[partition] = self._parts.scorer(partition)
        return scorer
