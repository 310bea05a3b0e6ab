"""A bus whose troubles a test chooses, and a core that says again what it hears on it."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from bus.memory import MemoryBus
from bus.messages import Directive, Message, Scope
from bus.topics import AUDIT, DIRECTIVES, REPORTS
from bus.transport import Bus, Envelope, Place, Receipt, Source, Start
from detector.checkpoint import CheckpointFile
from detector.journal import Journal
from detector.outputs import Output
from detector.worker import Core, CoreWorker, Edges, WorkerSettings
from runtime.clock import ManualClock
from runtime.errors import Rejected, Unavailable
from runtime.health import Health
from runtime.metrics import Metrics

READS = (DIRECTIVES, REPORTS)


class Parrot:
    """A core that says again what it hears, with its number; its state is that number."""

    def __init__(self) -> None:
        self.heard = 0
        self.forgot = 0
        self.counts: dict[str, int] = {}

    def step(self, envelopes: Sequence[Envelope]) -> list[Output]:
        outputs = []
        for envelope in envelopes:
            if isinstance(envelope.message, Directive):
                self.heard += 1
                if envelope.message.kind != "label":
                    said = msgspec.structs.replace(envelope.message, value=str(self.heard))
                    outputs.append(Output(AUDIT, "", said))
        return outputs

    def save(self) -> tuple[bytes, dict[str, NDArray[Any]]]:
        return str(self.heard).encode(), {}

    def load(self, plain: bytes, arrays: dict[str, NDArray[Any]]) -> None:
        del arrays
        self.heard = int(plain)

    def forget_places(self) -> None:
        self.forgot += 1


class Waiting:
    """The receipt of a record on its way; the bus's trouble says what becomes of it."""

    def __init__(self, bus: "Troubled", send: Callable[[], object]) -> None:
        self._bus = bus
        self._send: Callable[[], object] | None = send
        self.error: Exception | None = None

    def settle(self) -> None:
        if self._send is not None and self.error is None:
            self._send()
            self._send = None

    def taken(self) -> bool:
        if self.error is not None:
            raise self.error
        return self._send is None


class Troubled:
    """A bus whose troubles a test chooses; with each wait of the clock one of them may end."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.away = False  # neither read nor written
        self.stuck = False  # takes records, acknowledges none
        self.gives_up = 0  # so many records are given up after they were sent
        self.refuses: Callable[[Message], bool] = lambda _: False
        self.identity = ""
        self.sent: list[Message] = []
        self._waiting: list[Waiting] = []

    def sink(self) -> "Troubled":
        return self

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Receipt:
        if self.away:
            raise Unavailable("the bus is away")
        self.sent.append(message)
        inner = self._bus.sink()
        receipt = Waiting(self, lambda: inner.send(topic, key, message, partition))
        if self.refuses(message):
            receipt.error = Rejected("too large")
        elif self.gives_up:
            self.gives_up -= 1
            receipt.error = Unavailable("given up")
        self._waiting.append(receipt)
        return receipt

    def flush(self, timeout_s: float) -> None:
        if self.stuck or self.away:
            raise Unavailable(f"not acknowledged within {timeout_s:g} s")
        waiting, self._waiting = self._waiting, []
        for receipt in waiting:
            receipt.settle()
        errors = [receipt.error for receipt in waiting if receipt.error is not None]
        if errors:
            raise errors[0]

    def close(self, timeout_s: float) -> None:
        del timeout_s

    def source(self, places: Iterable[str | Place], start: Start = "earliest") -> Source:
        return TroubledSource(self, self._bus.source(places, start))


class TroubledSource:
    """A reader of a troubled bus."""

    def __init__(self, bus: Troubled, inner: Source) -> None:
        self._bus = bus
        self._inner = inner
        self.positions = inner.positions
        self.seek = inner.seek
        self.lag = inner.lag
        self.skipped = inner.skipped
        self.close = inner.close

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
        if self._bus.away:
            raise Unavailable("the bus is away", retry_after_s=2.0)
        return self._inner.poll(limit, timeout_s)

    def reread(self, place: Place, first: int, end: int) -> list[Envelope]:
        if self._bus.away:
            raise Unavailable("the bus is away", retry_after_s=2.0)
        return self._inner.reread(place, first, end)

    def log(self) -> str:
        if self._bus.away:
            raise Unavailable("not connected", retry_after_s=2.0)
        return self._bus.identity or self._inner.log()


class Patience(ManualClock):
    """A clock that, once so many waits have passed, does what is to be done then."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.then: dict[int, Callable[[], None]] = {}

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.waits += 1
        self.then.get(self.waits, lambda: None)()
        return super().wait(event, timeout_s)


class Bench:
    """A parrot's worker on a troubled bus."""

    def __init__(self, folder: Path, records_max: int = 1000) -> None:
        self.folder = folder
        self.clock = Patience()
        self.memory = MemoryBus(self.clock, records_max)
        self.bus = Troubled(self.memory)
        self.metrics = Metrics()
        self.health = Health(self.clock)
        self.beat = self.health.heartbeat("parrot", 30.0)
        self.stop = threading.Event()
        self.journal_folder = folder

    def worker(
        self,
        core: Core | None = None,
        crash: Callable[[str], None] = lambda _: None,
        topics: Sequence[str] = READS,
        **settings: float,
    ) -> CoreWorker:
        made: Bus = self.bus
        edges = Edges(
            source=made.source(topics),
            sink=made.sink(),
            clock=self.clock,
            metrics=self.metrics,
            heartbeat=self.beat,
            checkpoint=CheckpointFile(self.folder, "parrot", "1"),
            journal=Journal(self.journal_folder, "parrot"),
        )
        wanted = msgspec.convert(settings, WorkerSettings)
        return CoreWorker("parrot", core or Parrot(), edges, wanted, crash=crash)

    def order(self, name: str, kind: str = "stop_everything", topic: str = DIRECTIVES) -> None:
        wish = Directive(
            id=name,
            who="ada",
            kind=kind,  # type: ignore[arg-type]
            scope=Scope("fleet"),
            time=self.clock.now(),
        )
        self.memory.sink().send(topic, "", wish)

    def said(self) -> list[str]:
        """Return what the parrot said, in the order in which the bus took it."""
        taken = self.memory.source([AUDIT]).poll(1000, 0.0)
        return [f"{one.message.id}{one.message.value}" for one in taken]  # type: ignore[union-attr]

    def saved(self) -> Mapping[Place, int] | None:
        found, _ = CheckpointFile(self.folder, "parrot", "1").load()
        return None if found is None else found.header.places()
