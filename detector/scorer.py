"""The scorer: records of one cell in, suspicions out. Pure: no clock, no network, no chance.

Its "now" is the newest time that the log has shown. Rules are judged on arrival, samples in frames,
silence once a second of log time. Nothing depends on how records are grouped into steps.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bus.codec import to_json
from bus.messages import LogLine, Reject, SampleBatch, Source, Tick, Watermark
from bus.signals import Catalogue
from bus.topics import REJECTS, SUSPICIONS
from bus.transport import Envelope
from detector.arrivals import NodeArrivals
from detector.columns import CellColumns
from detector.frames import Frames, Part
from detector.fusion import Fusion, SavedFusion
from detector.outputs import Output
from detector.rules import Rules
from detector.series import NO_ROW, NodeSeries, SavedIndex
from detector.settings import ModelSettings, ScorerSettings
from detector.watch import SavedWatch, Watch
from models import silence
from runtime.clock import NANOSECONDS, Instant

NAME_CHARS_MAX = 256


class Scorer:
    """All state of one cell, and the one function that moves it."""

    def __init__(
        self,
        settings: ScorerSettings,
        models: ModelSettings,
        catalogue: Catalogue,
        cell: str,
    ) -> None:
        """Know nothing yet about `cell`."""
        self.cell = cell
        self._settings = settings
        self._columns = CellColumns(settings, models, catalogue, cell)
        self._frames = Frames(settings.frames)
        self._rules = Rules(settings.rules, cell)
        self._silence = silence.build(models.silence, 16)
        self._watch = Watch(settings.watch, self._silence, cell)
        self._fusion = Fusion(settings.fusion, settings.frames.period_s)
        self._nodes: dict[str, NodeArrivals] = {}
        self._now_ns = 0
        self._second = 0
        self.counts: dict[str, int] = {}

    def step(self, envelopes: Sequence[Envelope]) -> list[Output]:
        """Take records in the order of their partition; return what there is to publish."""
        outputs: list[Output] = []
        for envelope in envelopes:
            self._take(envelope, outputs)
        return outputs

    def _take(self, envelope: Envelope, outputs: list[Output]) -> None:
        self._now_ns = max(self._now_ns, int(envelope.appended))
        self._count("seen")
        message = envelope.message
        if isinstance(message, SampleBatch):
            self._batch(envelope, message, outputs)
        elif isinstance(message, LogLine):
            self._line(envelope, message, outputs)
        elif isinstance(message, Tick):
            self._tick(message, envelope)
        elif isinstance(message, Reject):
            self._count(f"rejected: {message.reason}")
            outputs.append(Output(REJECTS, envelope.topic, message))
        self._close_frames(envelope, outputs)
        if self._now_ns // NANOSECONDS > self._second:
            self._second = self._now_ns // NANOSECONDS
            self._each_second(envelope, outputs)

    # --- what arrives --------------------------------------------------------------------------

    def _batch(self, envelope: Envelope, batch: SampleBatch, outputs: list[Output]) -> None:
        problem = self._unusable(batch)
        if problem:
            self._reject(envelope, problem, f"from {batch.node[:40]!r}", outputs)
            if problem != "empty batch":
                return
        moment = self._arrive(envelope, batch, outputs)
        if moment is None:
            return
        node, arrivals = self._columns.index.of_node(batch.node), self._nodes[batch.node]
        self._watch.hear(arrivals.number)
        number = self._frames.number_of(moment)
        lateness_ns = self._settings.frames.lateness_s * NANOSECONDS
        end_ns = (number + 1) * self._settings.frames.period_s * NANOSECONDS
        if arrivals.current is not None and not arrivals.current.missing:
            self._frames.reach(arrivals.number, number)
        if self._now_ns >= end_ns + lateness_ns:
            self._count("late")
            return
        if len(batch.samples):
            self._frames.add(self._part(envelope, batch, node, moment, outputs))
        self._count("kept")

    def _unusable(self, batch: SampleBatch) -> str:
        if not _plain(batch.node):
            return "bad node name"
        if not len(batch.samples):
            return "empty batch"
        if len(batch.samples) > self._settings.samples_per_batch_max:
            return "too many samples"
        return ""

    def _part(
        self,
        envelope: Envelope,
        batch: SampleBatch,
        node: NodeSeries,
        moment: int,
        outputs: list[Output],
    ) -> Part:
        samples = batch.samples
        values: NDArray[np.float64] = np.frombuffer(samples.values, "<f8")
        rows = self._columns.rows_of(node, samples.layout, moment / 1e9)
        known = rows != NO_ROW
        usable = known & np.isfinite(values)
        if not usable.all():
            self._count_unknown()
            strange = np.flatnonzero(known & ~np.isfinite(values))
            if len(strange):
                names = ", ".join(samples.layout.pairs[place][0] for place in strange[:3])
                self._reject(envelope, "not a number", f"{len(strange)} of {names}", outputs)
            rows, values = rows[usable], values[usable]
        return Part(node.number, moment, batch.sequence, envelope.offset, rows, values)

    def _line(self, envelope: Envelope, line: LogLine, outputs: list[Output]) -> None:
        if not _plain(line.node):
            self._reject(envelope, "bad node name", f"from {line.node[:40]!r}", outputs)
            return
        moment = self._arrive(envelope, line, outputs)
        if moment is None:
            return
        self._count("kept")
        node = self._columns.index.of_node(line.node)
        if self._rules.judge(line, node, moment, self._fusion):
            self._tell(moment, envelope, outputs)

    def _arrive(
        self,
        envelope: Envelope,
        record: SampleBatch | LogLine,
        outputs: list[Output],
    ) -> int | None:
        """Judge repeats and times; return the record's moment, or None where it is dropped."""
        arrivals = self._nodes.get(record.node)
        if arrivals is None:
            number = self._columns.index.of_node(record.node).number
            arrivals = self._nodes[record.node] = NodeArrivals(number)
        moment = arrivals.moment(
            int(record.time),
            int(envelope.appended),
            self._settings.arrivals,
            self._settings.frames.lateness_s,
        )
        if moment is None:
            self._reject(envelope, "impossible time", record.time.text(), outputs)
            return None
        if arrivals.boot != record.boot and moment > arrivals.newest_ns:
            if arrivals.boot:
                self._columns.forget_node(record.node)
                self._frames.drop(arrivals.number)
                self._fusion.forget_node(record.node)
            arrivals.boot = record.boot
        if arrivals.take(record.start, record.sequence) != "kept":
            self._count("duplicate")
            return None
        arrivals.newest_ns = max(arrivals.newest_ns, moment)
        if arrivals.shift_ns:
            self._count("skewed")
        return moment

    def _tick(self, tick: Tick, envelope: Envelope) -> None:
        # A tick from far ahead of the log would make everything else late.
        skew_ns = self._settings.arrivals.skew_s * NANOSECONDS
        if int(tick.time) <= int(envelope.appended) + skew_ns:
            self._now_ns = max(self._now_ns, int(tick.time))

    # --- what happens as time goes on ----------------------------------------------------------

    def _close_frames(self, envelope: Envelope, outputs: list[Output]) -> None:
        closed = self._frames.closed
        while (number := self._frames.due(self._now_ns)) is not None:
            overdue = self._frames.waiting > 0
            for frame in self._frames.close(number):
                self._count("frames")
                self._columns.advance(frame, self._fusion)
                self._tell(frame.newest_ns, envelope, outputs)
            if overdue:
                self._give_up_missing(number)
        if self._frames.closed > closed:
            # Time reaches the decider with each frame, so that an urgent act need not wait.
            self._mark(envelope, outputs)

    def _give_up_missing(self, number: int) -> None:
        """What has not come until its frame closed by lateness will not be waited for again."""
        for arrivals in self._nodes.values():
            delivery = arrivals.current
            if (
                delivery is not None
                and delivery.missing
                and self._frames.number_of(arrivals.newest_ns) <= number
            ):
                self._count("missing", delivery.give_up())
                self._frames.reach(arrivals.number, self._frames.number_of(arrivals.newest_ns))

    def _each_second(self, envelope: Envelope, outputs: list[Output]) -> None:
        self._watch.pass_time(self._now_ns)
        names = [node.name for node in self._columns.index.nodes]
        for node in self._watch.judge(names, self._fusion, self._now_ns):
            self._frames.expect_no_more(node)
        self._fusion.expire(self._now_ns)
        self._columns.drop_vanished(self._judged_until_s(), self._fusion)
        if self._second % 60 == 0:
            self._columns.retire(self._now_ns / 1e9, self._fusion)
        self._tell(self._now_ns, envelope, outputs)
        self._close_frames(envelope, outputs)
        self._mark(envelope, outputs)

    def _mark(self, envelope: Envelope, outputs: list[Output]) -> None:
        period_ns = round(self._settings.frames.period_s * NANOSECONDS)
        mark = Watermark(
            cell=self.cell,
            time=Instant(max(self._frames.closed + 1, 0) * period_ns),
            head_time=Instant(self._now_ns),
            source=_place(envelope),
        )
        if not outputs or outputs[-1].message != mark:
            outputs.append(Output(SUSPICIONS, self.cell, mark))

    def _judged_until_s(self) -> float:
        """Return up to when all has been judged that will ever be (frames wait for slow nodes)."""
        frames = self._settings.frames
        closed_s = (self._frames.closed + 1) * frames.period_s
        return max(closed_s, self._now_ns / 1e9 - frames.lateness_s - frames.period_s)

    def _tell(self, moment_ns: int, envelope: Envelope, outputs: list[Output]) -> None:
        for suspicion in self._fusion.judge(moment_ns, _place(envelope), self._boot_of):
            self._count("suspicions")
            outputs.append(Output(SUSPICIONS, self.cell, suspicion))

    def _boot_of(self, node: str) -> str:
        arrivals = self._nodes.get(node)
        return arrivals.boot if arrivals else ""

    # --- counting and refusing -----------------------------------------------------------------

    def _reject(
        self,
        envelope: Envelope,
        reason: str,
        detail: str,
        outputs: list[Output],
    ) -> None:
        self._count(f"rejected: {reason}")
        record = to_json(envelope.message)
        outputs.append(
            Output(
                REJECTS,
                envelope.topic,
                Reject(
                    reason=reason,
                    detail=detail[:200],
                    source=_place(envelope),
                    first_bytes=record[: Reject.FIRST_BYTES],
                    size=len(record),
                    time=envelope.appended,
                    topic=envelope.topic,
                ),
            ),
        )

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def _count_unknown(self) -> None:
        for reason, number in self._columns.index.refused.items():
            self.counts[f"rejected: {reason}"] = number

    # --- state ---------------------------------------------------------------------------------

    def save(self) -> tuple[bytes, dict[str, NDArray[Any]]]:
        """Return everything: plain values as bytes, and named arrays."""
        plain = SavedScorer(
            cell=self.cell,
            index=self._columns.index.save(),
            nodes=list(self._nodes.items()),
            closed=self._frames.closed,
            pending=[
                (
                    number,
                    [
                        (
                            part.node,
                            part.time_ns,
                            part.sequence,
                            part.offset,
                            np.asarray(part.rows).tolist(),
                            np.asarray(part.values).tolist(),
                        )
                        for part in parts
                    ],
                )
                for number, parts in self._frames.pending.items()
            ],
            reached=self._frames.reached.tolist(),
            watch=self._watch.save(),
            fusion=self._fusion.save(),
            now_ns=self._now_ns,
            second=self._second,
            counts=self.counts,
        )
        arrays = self._columns.save()
        arrays |= {f"silence.{name}": column for name, column in self._silence.save().items()}
        return msgspec.msgpack.encode(plain, enc_hook=int), arrays

    def forget_places(self) -> None:
        """Know that the log was begun anew: nothing here depends on its offsets."""

    def load(self, plain: bytes, arrays: dict[str, NDArray[Any]]) -> None:
        """Become the saved state; ValueError where it is another cell's or another form."""
        try:
            state = msgspec.msgpack.decode(plain, type=SavedScorer, dec_hook=_instant)
        except msgspec.DecodeError as error:
            msg = f"saved state of another form: {error}"
            raise ValueError(msg) from None
        if state.cell != self.cell:
            msg = f"saved state of cell {state.cell!r}, not of {self.cell!r}"
            raise ValueError(msg)
        self._columns.load(state.index, arrays)
        self._silence.load(
            {name[8:]: column for name, column in arrays.items() if name.startswith("silence.")},
        )
        self._nodes = dict(state.nodes)
        self._frames.restore(
            state.closed,
            np.array(state.reached, np.int64),
            {
                number: [
                    Part(node, at, sequence, offset, np.array(rows, np.int64), np.array(values))
                    for node, at, sequence, offset, rows, values in parts
                ]
                for number, parts in state.pending
            },
        )
        self._watch.load(state.watch)
        self._fusion.load(state.fusion)
        self._now_ns = state.now_ns
        self._second = state.second
        self.counts = dict(state.counts)


class SavedScorer(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a saved scorer."""

    cell: str
    index: SavedIndex
    nodes: list[tuple[str, NodeArrivals]]
    closed: int
    pending: list[tuple[int, list[tuple[int, int, int, int, list[int], list[float]]]]]
    reached: list[int]
    watch: SavedWatch
    fusion: SavedFusion
    now_ns: int
    second: int
    counts: dict[str, int]


def _plain(name: str) -> bool:
    """Tell whether a name can stand in a log line, a file name and a scheduler's reason."""
    return 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()


def _place(envelope: Envelope) -> Source:
    return Source(partition=envelope.partition, offset=envelope.offset)


def _instant(kind: type, value: object) -> object:
    if kind is Instant and isinstance(value, int):
        return Instant(value)
    msg = f"no way to read a {kind.__name__}"
    raise ValueError(msg)
