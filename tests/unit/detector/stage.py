"""A stage for the decider: suspicions, watermarks and reports at chosen seconds.

All figures are composed: a process or container that leaks 10 MiB/s toward a limit of 200 MiB.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from bus.messages import (
    Contribution,
    Directive,
    ExecutionReport,
    Exhaustion,
    Fault,
    IsolationCommand,
    Message,
    NodeFacts,
    Outcome,
    Scope,
    Source,
    Suspicion,
    SuspicionState,
    Watermark,
    Wire,
)
from bus.topics import DIRECTIVES, INVENTORY, REPORTS, SUSPICIONS
from bus.transport import Envelope
from detector.decider import ActRule, Decider
from detector.deciding import DeciderSettings
from detector.outputs import Output
from runtime.clock import Instant

START = Instant(1_700_000_000 * 1_000_000_000)
MIB = float(1 << 20)
LEAK = Scope("process", "c1", "gpu-07", "trainer:4242:99")
JAIL = Scope("container", "c1", "gpu-07", "/jobs/7@311")
FREEZE = {"memory_leak": {"default": ActRule(actions=("freeze",))}}
BOTH = {"memory_leak": {"default": ActRule(actions=("freeze", "reclaim"))}}
GROWS = {
    "process": "process_private_bytes",
    "container": "container_memory_unreclaimable_bytes",
    "node": "memory_unreclaimable_bytes",
}
ONE_WIDTH = 1.09
NEAR = 5.09
T = TypeVar("T", bound=Wire)


def at(second: float) -> Instant:
    """Return a moment of the play."""
    return START.plus(second)


def leak(
    second: float,
    *,
    scope: Scope = LEAK,
    left_s: float = 30.0,
    near: bool = False,
    room_mib: float = 0.0,
    **changes: object,
) -> Suspicion:
    """Return a suspicion of a leak whose early end lies `left_s` after `second`."""
    room = room_mib or left_s * 10
    parts = [
        Contribution(signal=GROWS[scope.kind], nats=8.0, text="its floor rose in every test"),
    ]
    if near:
        parts.append(Contribution(signal="near_limit", nats=4.0, text="uses 90 % of its limit"))
    suspicion = Suspicion(
        scope=scope,
        time=at(second),
        state="suspect",
        source=Source(partition=0, offset=0),
        p_bad={"memory_leak": 0.9},
        since=at(second - 26),
        contributions=tuple(parts),
        exhaustion=Exhaustion(
            time=at(second + left_s + 1),
            low=at(second + left_s),
            high=at(second + left_s + 2),
            used=(200 - room) * MIB,
            limit=200 * MIB,
            growth=10 * MIB,
        ),
        score=NEAR,
        boot="b1",
        widths=(1.0,),
        period_s=1.0,
    )
    return msgspec.structs.replace(suspicion, **changes)


def trouble(
    second: float,
    fault: Fault,
    *,
    scope: Scope,
    score: float = 6.0,
    state: SuspicionState = "degraded",
    text: str = "",
) -> Suspicion:
    """Return a suspicion of anything else."""
    return Suspicion(
        scope=scope,
        time=at(second),
        state=state,
        source=Source(partition=0, offset=0),
        p_bad={fault: 0.99},
        since=at(second),
        contributions=(Contribution(signal="seen", nats=score, text=text),),
        score=score,
        boot="b1",
        period_s=1.0,
    )


def well(second: float, scope: Scope = LEAK) -> Suspicion:
    """Return word that nothing is suspected any more."""
    return Suspicion(
        scope=scope,
        time=at(second),
        state="healthy",
        source=Source(partition=0, offset=0),
        score=-99.0,
        boot="b1",
        period_s=1.0,
    )


class Stage:
    """A decider, the offsets of what it reads, and all that it said.

    `played` keeps every envelope, so that a test can play it again.
    """

    def __init__(
        self,
        act: dict[str, dict[str, ActRule]] | None = None,
        settings: DeciderSettings | None = None,
        executors: Sequence[str] = ("process",),
        *,
        answers: bool = True,
    ) -> None:
        self.act = act or {}
        self.settings = settings or DeciderSettings()
        self.executors = executors
        self.answers = answers
        self.decider = self.fresh()
        self.played: list[Envelope] = []
        self.said: list[Output] = []
        self._offset = 0

    def fresh(self) -> Decider:
        """Return another decider of the same make."""
        return Decider(self.settings, self.act, executors=self.executors, answers=self.answers)

    def take(self, *envelopes: Envelope) -> list[Output]:
        """Hand envelopes over as they are."""
        self.played += envelopes
        outputs = self.decider.step(envelopes)
        self.said += outputs
        return outputs

    def suspect(self, *suspicions: Suspicion) -> list[Output]:
        """Publish suspicions, each from a telemetry record of its own."""
        outputs = []
        for suspicion in suspicions:
            self._offset += 1
            source = Source(partition=0, offset=self._offset)
            placed = msgspec.structs.replace(suspicion, source=source)
            outputs += self.take(self.envelope(SUSPICIONS, placed))
        return outputs

    def pass_to(self, second: float, cell: str = "c1") -> list[Output]:
        """Publish a watermark."""
        self._offset += 1
        mark = Watermark(
            cell=cell,
            time=at(second - 1),
            head_time=at(second),
            source=Source(partition=0, offset=self._offset),
        )
        return self.take(self.envelope(SUSPICIONS, mark))

    def show(self, second: float, *suspicions: Suspicion) -> list[Output]:
        """Publish suspicions and the watermark that covers them."""
        return [*self.suspect(*suspicions), *self.pass_to(second)]

    def report(
        self,
        command: IsolationCommand,
        outcome: Outcome = "done",
        *,
        second: float = 0.0,
        detail: str = "",
        held_until: Instant | None = None,
    ) -> list[Output]:
        """Publish an executor's answer."""
        until = held_until or (command.hold_until if outcome in {"done", "already"} else None)
        report = ExecutionReport(
            command=command.id,
            executor=command.executor,
            outcome=outcome,
            detail=detail,
            finished=at(second),
            held_until=until,
        )
        return self.take(self.envelope(REPORTS, report))

    def order(self, wish: Directive) -> list[Output]:
        """Publish what a person says."""
        return self.take(self.envelope(DIRECTIVES, wish))

    def know(self, *nodes: str, pool: str = "") -> list[Output]:
        """Publish what the scheduler knows of nodes."""
        outputs = []
        for node in nodes:
            facts = NodeFacts(node=node, time=START, cell="c1", pool=pool)
            outputs += self.take(self.envelope(INVENTORY, facts))
        return outputs

    def envelope(self, topic: str, message: Message) -> Envelope:
        """Return a message at the next place of its topic."""
        return Envelope(topic, 0, len(self.played), START, "", message)


def kept(outputs: Sequence[Output], kind: type[T], topic: str = "") -> list[T]:
    """Return the messages of one type, each once (commands and refusals go to the audit too)."""
    found: list[T] = []
    for output in outputs:
        wanted = not topic or output.topic == topic
        if isinstance(output.message, kind) and wanted and output.message not in found:
            found.append(output.message)
    return found


def only(outputs: Sequence[Output], kind: type[T]) -> T:
    """Return the one message of this type."""
    (message,) = kept(outputs, kind)
    return message
