"""Every type that travels between processes: one closed set, each frozen and versioned.

Later versions add optional fields only; bytes of a released version decode for ever (golden
files hold that). `bus.codec` turns these into bytes and back.
"""

from typing import ClassVar, Literal

import msgspec

from bus.samples import Sample as Sample  # noqa: PLC0414  # part of this closed set
from bus.samples import Samples
from runtime.clock import Instant

ScopeKind = Literal[
    "fleet", "cell", "rack", "switch", "pool", "job", "node", "gpu", "port", "disk",
    "container", "step", "process",
]  # fmt: skip
Fault = Literal[
    "memory_leak", "memory_exhaustion", "gpu_memory", "gpu_off_bus", "thermal", "pcie", "nvlink",
    "fabric", "straggler", "hang", "disk", "software", "silence", "telemetry",
]  # fmt: skip
SuspicionState = Literal["healthy", "suspect", "degraded"]
HealthState = Literal[
    "healthy", "suspect", "degraded", "isolating", "isolated", "diagnosing", "probation",
]  # fmt: skip
IncidentState = Literal["open", "acting", "contained", "probation", "closed"]
Severity = Literal["info", "warning", "critical"]
Action = Literal[
    "notify", "hold", "deprioritize", "checkpoint", "freeze", "throttle", "limit", "reclaim",
    "drain_at_checkpoint", "drain", "isolate", "diagnose", "release",
]  # fmt: skip
Outcome = Literal["done", "already", "refused", "failed", "expired"]

# The executors that know each action; one that does not refuses with a reason.
EXECUTORS_OF: dict[str, tuple[str, ...]] = {
    "notify": (),
    "hold": ("slurm", "kubernetes", "dry_run"),
    "deprioritize": ("slurm", "kubernetes", "dry_run"),
    "checkpoint": ("slurm", "kubernetes", "dry_run"),
    "freeze": ("process", "dry_run"),
    "throttle": ("process", "dry_run"),
    "limit": ("process", "dry_run"),
    "reclaim": ("process", "slurm", "kubernetes", "dry_run"),
    "drain_at_checkpoint": ("slurm", "kubernetes", "dry_run"),
    "drain": ("slurm", "kubernetes", "dry_run"),
    "isolate": ("slurm", "kubernetes", "dry_run"),
    "diagnose": ("slurm", "kubernetes", "dry_run"),
    "release": ("process", "slurm", "kubernetes", "dry_run"),
}


class Wire(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """What all messages share: the type's name as tag."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A value inside a message; it has no version of its own."""


class Scope(msgspec.Struct, frozen=True, order=True):
    """What is meant: a node, a container on it, a process, or something larger."""

    kind: ScopeKind
    cell: str = ""
    node: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """Return the scope as one stable text, for keys and identifiers."""
        return f"{self.kind}:{self.cell}/{self.node}/{self.name}"

    @property
    def label(self) -> str:
        """Return the scope as people call it."""
        if self.kind == "process":
            comm, pid = process_name(self.name)
            return f"{comm} (pid {pid}) on {self.node}"
        if self.kind == "container":
            return f"container {short_path(container_name(self.name))} on {self.node}"
        if self.kind == "node":
            return self.node
        if self.kind == "fleet":
            return "the fleet"
        place = f" on {self.node}" if self.node else ""
        return f"{self.kind} {self.name or self.cell}{place}"


def process_name(device: str) -> tuple[str, str]:
    """Return (command, pid) of a process's device name `comm:pid:start`."""
    parts = device.rsplit(":", 2)
    return (parts[0], parts[1]) if len(parts) == 3 else (device, "?")


def container_name(device: str) -> str:
    """Return the cgroup's path of a container's device name `path@inode`."""
    return device.rsplit("@", 1)[0]


def short_path(path: str, chars: int = 24) -> str:
    """Return the end of a cgroup's path that people know it by: whole names, the last at least."""
    names = [name for name in path.split("/") if name]
    if not names:
        return path
    kept = names.pop()
    while names and len(names[-1]) + 1 + len(kept) <= chars:
        kept = f"{names.pop()}/{kept}"
    return kept if names else f"/{kept}"


class Source(Part, frozen=True, kw_only=True):
    """The place of a record in its topic: a repeat after a crash is recognised by it."""

    partition: int
    offset: int


class SampleBatch(Wire, frozen=True, kw_only=True):
    """All readings of one node at one moment; counters travel raw and cumulative."""

    cluster: str
    node: str
    boot: str
    start: str
    sequence: int
    time: Instant
    jobs: tuple[str, ...] = ()
    samples: Samples
    version: Literal[1] = 1


class LogLine(Wire, frozen=True, kw_only=True):
    """One kernel, service or job line worth a look.

    A recognised fault carries in `fields`: kind, code, severity, device, count, action, clears.
    """

    cluster: str
    node: str
    boot: str
    start: str
    sequence: int
    time: Instant
    source: str
    text: str
    fields: dict[str, str] = {}
    version: Literal[1] = 1


class Tick(Wire, frozen=True, kw_only=True):
    """Written once a second into each telemetry partition: time moves though nodes are silent."""

    cell: str
    time: Instant
    version: Literal[1] = 1


class Watermark(Wire, frozen=True, kw_only=True):
    """The cell is judged up to `time`; the log's head was at `head_time`."""

    cell: str
    time: Instant
    head_time: Instant
    source: Source
    version: Literal[1] = 1


class Contribution(Part, frozen=True, kw_only=True):
    """One piece of evidence: how much it speaks for the fault, in nats."""

    signal: str
    nats: float
    device: str = ""
    value: float | None = None
    reference: float | None = None
    text: str = ""


class Exhaustion(Part, frozen=True, kw_only=True):
    """When a resource will be used up: best estimate and the ends of a 90 % interval."""

    time: Instant
    low: Instant
    high: Instant
    used: float = 0.0
    limit: float = 0.0
    growth: float = 0.0


class Suspicion(Wire, frozen=True, kw_only=True):
    """The scorer's fused judgement on one scope."""

    scope: Scope
    time: Instant
    state: SuspicionState
    source: Source
    p_bad: dict[Fault, float] = {}
    since: Instant | None = None
    contributions: tuple[Contribution, ...] = ()
    exhaustion: Exhaustion | None = None
    score: float = 0.0
    boot: str = ""
    widths: tuple[float, ...] = ()
    period_s: float = 0.0
    version: Literal[1] = 1


class Incident(Wire, frozen=True, kw_only=True):
    """Something is wrong with a scope; published on each change of state."""

    id: str
    scope: Scope
    state: IncidentState
    severity: Severity
    opened: Instant
    evidence: tuple[Contribution, ...] = ()
    sentence: str = ""
    fault: Fault | None = None
    updated: Instant | None = None
    exhaustion: Exhaustion | None = None
    command: str = ""
    version: Literal[1] = 1


class IsolationCommand(Wire, frozen=True, kw_only=True):
    """A wish, with an end: what an executor shall do, to whom, until when."""

    id: str
    scope: Scope
    action: Action
    executor: str
    generation: int
    reason: str
    incident: str
    issued: Instant
    expires: Instant
    dry_run: bool
    precondition: dict[str, str] = {}
    # What is held (frozen, throttled, limited) is lifted at `hold_until`; `expires` ends the wish.
    hold_until: Instant | None = None
    version: Literal[1] = 1


class Proposal(Wire, frozen=True, kw_only=True):
    """A command that waits for a person's word until `until`."""

    command: IsolationCommand
    until: Instant
    version: Literal[1] = 1


class Refusal(Wire, frozen=True, kw_only=True):
    """The decider's "no", with its reason."""

    id: str
    scope: Scope
    incident: str
    action: Action
    reason: str
    time: Instant
    version: Literal[1] = 1


class ExecutionReport(Wire, frozen=True, kw_only=True):
    """What became of a command."""

    command: str
    executor: str
    outcome: Outcome
    detail: str
    finished: Instant
    held_until: Instant | None = None
    version: Literal[1] = 1


class NodeHealth(Wire, frozen=True, kw_only=True):
    """The current state of one node, on a compacted topic."""

    node: str
    cell: str
    state: HealthState
    since: Instant
    incidents: tuple[str, ...] = ()
    sentence: str = ""
    version: Literal[1] = 1


class NodeFacts(Wire, frozen=True, kw_only=True):
    """What the scheduler knows of a node."""

    node: str
    time: Instant
    cluster: str = ""
    cell: str = ""
    rack: str = ""
    switch: str = ""
    pool: str = ""
    hardware: str = ""
    role: str = ""
    gpus_expected: int | None = None
    ports_expected: int | None = None
    state: str = ""
    state_owner: str = ""
    state_reason: str = ""
    version: Literal[1] = 1


class JobFacts(Wire, frozen=True, kw_only=True):
    """What the scheduler knows of a job."""

    job: str
    time: Instant
    nodes: tuple[str, ...] = ()
    cluster: str = ""
    pool: str = ""
    role: str = ""
    state: str = ""
    priority: int | None = None
    restart_count: int | None = None
    checkpoint_interval_s: float | None = None
    last_checkpoint: Instant | None = None
    version: Literal[1] = 1


class Directive(Wire, frozen=True, kw_only=True):
    """What a person says."""

    id: str
    who: str
    kind: Literal[
        "label", "approve", "reject", "isolate", "release", "maintenance", "opt_out",
        "stop_everything", "retire", "lift",
    ]  # fmt: skip
    scope: Scope
    time: Instant
    until: Instant | None = None
    reason: str = ""
    target: str = ""
    value: str = ""
    version: Literal[1] = 1


class Delivery(Wire, frozen=True, kw_only=True):
    """Who was told of an incident, and whether it arrived; `changed` is when it came to `state`."""

    incident: str
    notifier: str
    outcome: Outcome
    time: Instant
    state: str = ""
    detail: str = ""
    changed: Instant | None = None
    version: Literal[1] = 1


class Reject(Wire, frozen=True, kw_only=True):
    """A record, or a part of one, that no reader could use: kept with its reason."""

    reason: str
    source: Source
    first_bytes: bytes
    size: int
    time: Instant
    topic: str = ""
    detail: str = ""
    version: Literal[1] = 1

    FIRST_BYTES: ClassVar[int] = 256


Message = (
    SampleBatch
    | LogLine
    | Tick
    | Watermark
    | Suspicion
    | Incident
    | IsolationCommand
    | Proposal
    | Refusal
    | ExecutionReport
    | NodeHealth
    | NodeFacts
    | JobFacts
    | Directive
    | Delivery
    | Reject
)

TELEMETRY_TYPES = (SampleBatch, LogLine, Tick)
