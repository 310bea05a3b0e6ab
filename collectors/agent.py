"""Runs the collectors of one node and sends what they see: one batch a period, faults at once.

One turn: ask every collector → wait until all have answered or the deadline is over → one batch of
what arrived → the spool, and from there the bus. A collector that does not answer in time is told
as such, left alone until it does, and costs the others nothing but that one wait.

While it runs, a thread of its own sends: it is woken by each batch and each line that a collector
found. Whoever collects appends to the spool, which never waits for a bus or a disk.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from bus.messages import LogLine, SampleBatch
from bus.samples import Layout, Pair, Sample, Samples, pack
from bus.transport import Sink
from collectors.base import Collector, Counting, FoundLine, Waiting, device_name
from collectors.pacing import Settings as SendingSettings
from collectors.runner import Answer, Runner
from collectors.sending import Sending
from collectors.spool import Settings as SpoolSettings
from collectors.spool import Spool
from collectors.vitals import Vitals
from runtime import logs
from runtime.clock import NANOSECONDS, Clock, Instant
from runtime.errors import FarsideError, Unavailable
from runtime.files import SysTree
from runtime.metrics import Metrics
from runtime.retries import lot
from runtime.words import plain_text

Positive = Annotated[float, msgspec.Meta(gt=0, le=3600)]
_SLICE_S = 0.05  # how often a wait looks at the clock that it was given
_LISTEN_S = 0.5  # how soon a listener sees that it is to stop
_PAUSE_S = 0.05  # of a listener after each news: a flood is read twenty times a second
_JOIN_S = 1.0
_CLOSE_S = 3.0  # for what is left at the end; all workers of a process share about ten
_ALIGN_S = 1.0  # the first turn waits no longer for the node's own moment in the period
_LAYOUTS_MAX = 8
_NAME_CHARS_MAX = 256


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agent]`.

    period_s: how often all is read; deadline_s: how long a collector may take; samples_max and
    names_bytes_max bound one batch (a record of the bus holds a million bytes). Each node has a
    moment of its own in the period, so that they don't all send at once.
    """

    period_s: Positive = 1.0
    deadline_s: Positive = 0.8
    samples_max: Annotated[int, msgspec.Meta(ge=16, le=100_000)] = 4096
    names_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=900_000)] = 900_000
    spool: SpoolSettings = SpoolSettings()
    sending: SendingSettings = SendingSettings()


class Identity(NamedTuple):
    """Who sends: the cluster, the node, its boot, and this start of the agent."""

    cluster: str
    node: str
    boot: str
    start: str


def identify(cluster: str, node: str, tree: SysTree, now: Instant) -> Identity:
    """Return who we are; the start's name follows from node, boot and moment."""
    boot = boot_id(tree)
    start = hashlib.sha256(f"{node}\0{boot}\0{int(now)}".encode("utf-8", "replace")).hexdigest()
    return Identity(cluster, node, boot, start[:16])


def boot_id(tree: SysTree) -> str:
    """Return what names this boot of the machine; "" where the kernel does not tell."""
    try:
        return plain_text(tree.read_text("/proc/sys/kernel/random/boot_id", 256).strip(), 64)
    except Unavailable:
        return ""


class Agent:
    """The worker of one node's agent."""

    name = "agent"

    def __init__(  # noqa: PLR0913  # the composition root names each part
        self,
        settings: Settings,
        collectors: Mapping[str, Collector],
        identity: Identity,
        *,
        sink: Sink,
        clock: Clock,
        metrics: Metrics,
        partition: int = 0,
        beat: Callable[[], None] = lambda: None,
        folder: Path | None = None,
    ) -> None:
        """Join the parts; `beat` is called once a turn, `partition` is the cell's.

        `folder` is where records wait on disk for a bus that is away; without one they wait in
        memory alone. Errors: `Misconfigured` when another agent has that folder.
        """
        self._settings = settings
        self._identity = Identity(*(plain_text(text, _NAME_CHARS_MAX) for text in identity))
        self._clock = clock
        self._beat = beat
        self._asking = threading.Lock()
        self._answered = threading.Condition(self._asking)
        self._runners = [
            Runner(name, collector, clock, self._asking, self._answered, self._found)
            for name, collector in collectors.items()
        ]
        self._counting = {
            name: one for name, one in collectors.items() if isinstance(one, Counting)
        }
        self._hanging: set[str] = set()
        self._layouts: dict[tuple[Pair, ...], Layout] = {}
        self._numbering = threading.Lock()
        self._sequence = 0
        self._spool = Spool(settings.spool, folder)
        self._sending = Sending(
            settings.sending,
            self._spool,
            sink,
            clock,
            node=self._identity.node,
            start=self._identity.start,
            partition=partition,
        )
        self._stepping = threading.Lock()  # one step of sending at a time; it may wait for a disk
        self._news = threading.Event()
        self._sender: threading.Thread | None = None
        self._closed = False
        self._cut = 0
        self._vitals = Vitals(metrics)
        self._log = logs.get(worker=self.name)

    def run(self, stop: threading.Event) -> None:
        """Take a turn each period until `stop` is set; then send or save what is left, and end."""
        ended = threading.Event()
        threads = [
            threading.Thread(target=self._listen, args=(runner, ended), daemon=True)
            for runner in self._runners
            if isinstance(runner.collector, Waiting)
        ]
        self._sender = threading.Thread(target=self._send_on, args=(ended,), daemon=True)
        threads.append(self._sender)
        for thread in threads:
            thread.start()
        try:
            self._take_turns(stop)
        finally:
            ended.set()
            self._news.set()
            for thread in threads:
                thread.join(_JOIN_S)
            self._sender = None
        self.close()

    def _take_turns(self, stop: threading.Event) -> None:
        period_s = self._settings.period_s
        to_moment_s = until_moment_s(self._identity.node, period_s, self._clock.now())
        if to_moment_s <= _ALIGN_S:
            self._clock.wait(stop, to_moment_s)
            to_moment_s = period_s
        next_s = self._clock.monotonic() + to_moment_s - period_s
        while not stop.is_set():
            self._beat()
            self.gather(self._clock.now())
            next_s += period_s
            late_s = self._clock.monotonic() - next_s
            if late_s > 0:  # turns that were slept through are not made up for
                next_s += math.ceil(late_s / period_s) * period_s
            self._clock.wait(stop, next_s - self._clock.monotonic())
            if self._sender is not None and not self._sender.is_alive():
                raise RuntimeError("the agent's thread that sends has ended")

    def gather(self, now: Instant) -> None:
        """Take one turn: every collector is asked, what arrives in time is sent as one batch."""
        answers = self._ask_all(now)
        samples: list[Sample] = []
        for runner, answer in answers:
            if answer.state == "answered":
                samples += answer.reading.samples
            self._judge(runner, answer)
        samples += _own_samples(answers)
        block = self._block(samples)
        with self._numbering:
            self._append(self._batch(now, block))
        self._send()

    def cannot_see(self) -> list[str]:
        """Return what the collectors can't see, and what of it does not fit into a batch."""
        unseen = [one for runner in self._runners for one in runner.collector.cannot_see()]
        if self._cut:
            unseen.append(
                f"{self._cut} of this node's series: a batch has room for "
                f"{self._settings.samples_max} (raise agent.samples_max, or watch fewer groups)"
            )
        return unseen

    def close(self) -> None:
        """Send or save what is left, end the collectors' threads and close what they hold."""
        self._send_the_rest()
        with self._asking:
            for runner in self._runners:
                runner.stop()
        end_s = self._clock.monotonic() + _JOIN_S
        for runner in self._runners:
            runner.join(end_s - self._clock.monotonic())

    # --- asking --------------------------------------------------------------------------------

    def _ask_all(self, now: Instant) -> list[tuple[Runner, Answer]]:
        end_s = self._clock.monotonic() + self._settings.deadline_s
        with self._asking:
            # One that answers the listener just now is not hanging: its answer will do.
            waited = [
                runner for runner in self._runners if runner.ask(now) or not self._hung(runner)
            ]
            self._wait(waited, end_s)
            return [(runner, runner.answer()) for runner in self._runners]

    def _hung(self, runner: Runner) -> bool:
        return runner.name in self._hanging

    def _wait(self, runners: list[Runner], end_s: float) -> None:
        """Wait until none is busy or the clock is past `end_s` (under the lock)."""
        while any(runner.busy for runner in runners):
            left_s = end_s - self._clock.monotonic()
            if left_s <= 0:
                return
            self._answered.wait(min(left_s, _SLICE_S))

    def _judge(self, runner: Runner, answer: Answer) -> None:
        """Count how a collector did; say so when one begins or ends to hang."""
        name = runner.name
        self._vitals.collected(name, answer)
        if answer.state == "answered" and name in self._counting:
            self._vitals.counted(name, self._counting[name].counts())
        if answer.state == "hanging" and name not in self._hanging:
            self._hanging.add(name)
            self._vitals.hangs.labels(name).inc()
            self._log.warning(
                "a collector does not answer; it is left alone until it does",
                collector=name,
                deadline_s=self._settings.deadline_s,
            )
        elif answer.state != "hanging" and name in self._hanging:
            self._hanging.discard(name)
            self._log.info("a collector answers again", collector=name)

    def _listen(self, runner: Runner, stop: threading.Event) -> None:
        """Ask a collector whenever it has news."""
        collector = runner.collector
        while not stop.is_set() and isinstance(collector, Waiting):
            try:
                news = collector.wait(_LISTEN_S)
            except FarsideError:
                news = False  # the turn of the period tells what is wrong
                self._clock.wait(stop, _LISTEN_S)
            if news:
                with self._asking:
                    runner.ask(self._clock.now())
                    self._wait([runner], self._clock.monotonic() + self._settings.deadline_s)
                self._clock.wait(stop, _PAUSE_S)

    # --- sending -------------------------------------------------------------------------------

    def _found(self, lines: Iterable[FoundLine]) -> None:
        """Send log lines at once, behind what is queued."""
        with self._numbering:
            for line in lines:
                self._append(self._line(line))
        self._send()

    def _append(self, record: LogLine | SampleBatch) -> None:
        """Put a record into the queue (under the lock of numbering, so that numbers are in order).

        No disk and no bus is touched here: a collector waits no longer than memory is moved.
        """
        self._spool.append(record, self._clock.monotonic())

    def _send(self) -> None:
        """Have sent what is queued: by the thread that sends, or here where none runs."""
        if self._sender is not None:
            self._news.set()
            return
        with self._stepping:
            self._step()

    def _send_on(self, ended: threading.Event) -> None:
        """Take a step whenever there is news or time asks for one, until the end."""
        wait_s = 0.0
        while not ended.is_set():
            # Real time, in slices: whatever the clock, a record that came is sent.
            self._news.wait(wait_s)
            self._news.clear()
            with self._stepping:
                wait_s = self._step()

    def _step(self) -> float:
        """Take one step (under the lock of stepping); return the seconds until the next."""
        if self._closed:
            return _LISTEN_S
        due_s = self._sending.step()
        self._vitals.sending(self._sending, self._spool, self._clock.now())
        return due_s

    def _send_the_rest(self) -> None:
        if not self._stepping.acquire(timeout=_JOIN_S):
            self._log.warning("the last records may be lost: the disk or the bus does not answer")
            return
        try:
            if self._closed:
                return
            self._closed = True
            lost = self._sending.close(_CLOSE_S)
            self._vitals.sending(self._sending, self._spool, self._clock.now())
        finally:
            self._stepping.release()
        if lost:
            self._log.warning("records end with this agent", records=lost)

    def _line(self, line: FoundLine) -> LogLine:
        self._sequence += 1
        return LogLine(
            **self._identity._asdict(),
            sequence=self._sequence,
            time=line.time,
            source=line.source,
            text=line.text,
            fields=line.fields,
        )

    def _batch(self, now: Instant, block: Samples) -> SampleBatch:
        self._sequence += 1
        return SampleBatch(
            **self._identity._asdict(),
            sequence=self._sequence,
            time=now,
            samples=block,
        )

    def _block(self, samples: list[Sample]) -> Samples:
        """Return the samples that may travel: finite numbers, plainly named, within bounds."""
        finite = [sample for sample in samples if math.isfinite(sample.value)]
        self._vitals.left_out("not a number", len(samples) - len(finite))
        pairs = tuple((metric, device_name(device)) for metric, device, _ in finite)
        layout = self._layouts.get(pairs)
        if layout is None:
            if len(self._layouts) >= _LAYOUTS_MAX:
                self._layouts.clear()
            layout = self._layouts[pairs] = Layout.of(pairs[: self._room(pairs)])
        self._cut = len(pairs) - len(layout)
        self._vitals.left_out("over the limit", self._cut)
        return Samples(layout, pack(sample.value for sample in finite[: len(layout)]))

    def _room(self, pairs: tuple[Pair, ...]) -> int:
        """Return how many of these series fit into one batch."""
        left = self._settings.names_bytes_max
        for place, (metric, device) in enumerate(pairs[: self._settings.samples_max]):
            left -= len(metric.encode()) + len(device.encode("utf-8", "replace")) + 8
            if left < 0:
                return place
        return min(len(pairs), self._settings.samples_max)


def until_moment_s(node: str, period_s: float, now: Instant) -> float:
    """Return the seconds until this node's own moment in the period, by the wall clock.

    Moments lie in the middle eight tenths, so that a turn that is a little early or late stays in
    its frame.
    """
    moment_ns = int((0.1 + 0.8 * lot(node, "moment")) * period_s * NANOSECONDS)
    period_ns = int(period_s * NANOSECONDS)
    return ((moment_ns - int(now)) % max(period_ns, 1)) / NANOSECONDS


def _own_samples(answers: list[tuple[Runner, Answer]]) -> list[Sample]:
    samples = []
    for runner, answer in answers:
        samples.append(Sample("collector_duration_seconds", runner.name, answer.duration_s))
        success = float(answer.state == "answered")
        samples.append(Sample("collector_success", runner.name, success))
    return samples
