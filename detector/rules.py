"""Rules: named faults in log lines, judged on arrival, outside the frames.

What a line means was decided where it was recognised (its fields carry kind, code, severity and
what it clears); here it becomes evidence with an end.
"""

from typing import NamedTuple

import msgspec

from bus.messages import Contribution, Fault, LogLine, Scope
from detector.bounds import Nats, Seconds
from detector.fusion import Evidence, Fusion
from detector.series import NodeSeries
from runtime.clock import nanoseconds

# What a recognised kind speaks for. A kind that is not here is kept as context only.
FAULT_OF: dict[str, Fault] = {
    "oom_kill": "memory_exhaustion",
    "gpu_off_bus": "gpu_off_bus",
    "xid": "software",
    "sxid": "nvlink",
    "hung_task": "software",
    "soft_lockup": "software",
    "panic": "software",
    "mce": "software",
    "edac": "software",
    "nvme": "disk",
    "io_error": "disk",
    "filesystem": "disk",
    "read_only": "disk",
    "raid": "disk",
    "nfs": "disk",
    "pcie": "pcie",
    "aer": "pcie",
    "link": "fabric",
    "nic": "fabric",
}
FAULT_OF_XID: dict[str, Fault] = {
    "48": "gpu_memory",
    "63": "gpu_memory",
    "64": "gpu_memory",
    "74": "nvlink",
    "79": "gpu_off_bus",
    "92": "gpu_memory",
    "94": "gpu_memory",
    "95": "gpu_memory",
    "119": "gpu_off_bus",
    "120": "gpu_off_bus",
    "140": "gpu_memory",
}


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a recognised line is worth by its severity, in nats, and for how long."""

    fatal_nats: Nats = 20.0
    error_nats: Nats = 12.0
    warning_nats: Nats = 4.0
    hold_s: Seconds = 600.0

    def __post_init__(self) -> None:
        """Keep the order: what is worse weighs no less."""
        for lower, upper in (("warning_nats", "error_nats"), ("error_nats", "fatal_nats")):
            low, high = getattr(self, lower), getattr(self, upper)
            if low > high:
                raise ValueError(
                    f"{lower}: {low:g} is above {upper} ({high:g}), but what is worse weighs no "
                    f"less: lower it, or raise {upper}"
                )


class Meaning(NamedTuple):
    """Where a line's evidence belongs."""

    scope: Scope
    fault: Fault
    family: str


class Rules:
    """Turns recognised lines into evidence; keeps no state of its own."""

    def __init__(self, settings: RuleSettings, cell: str) -> None:
        """Judge the lines of one cell."""
        self._settings = settings
        self._cell = cell
        self._nats = {
            "fatal": settings.fatal_nats,
            "error": settings.error_nats,
            "warning": settings.warning_nats,
        }

    def judge(self, line: LogLine, node: NodeSeries, time_ns: int, fusion: Fusion) -> bool:
        """Take one line; tell whether it was evidence or took evidence back."""
        fields = line.fields
        device = fields.get("device", "")
        cleared = fields.get("clears", "")
        if cleared:
            scope = Scope("node", self._cell, line.node)
            for fault, family in list(fusion.voices(scope)):
                if family in {f"log:{cleared}:{device}", f"log:{cleared}"}:
                    fusion.hush(scope, fault, family)
            return True
        meaning = self._meaning(line, node)
        nats = self._nats.get(fields.get("severity", ""), 0.0)
        if meaning is None or nats <= 0.0:
            return False
        known = fusion.voices(meaning.scope).get((meaning.fault, meaning.family))
        code = fields.get("code", "")
        fusion.speak(
            meaning.scope,
            meaning.fault,
            meaning.family,
            Evidence(
                nats=nats,
                contributions=(
                    Contribution(
                        signal=" ".join(filter(None, (fields["kind"], code))),
                        device=device,
                        value=_count(fields),
                        nats=nats,
                        text=_words(line),
                    ),
                ),
                since_ns=known.since_ns if known else time_ns,
                until_ns=time_ns + nanoseconds(self._settings.hold_s),
            ),
        )
        return True

    def _meaning(self, line: LogLine, node: NodeSeries) -> Meaning | None:
        kind = line.fields.get("kind", "")
        fault = FAULT_OF.get(kind)
        if fault is None:
            return None
        if kind == "xid":
            fault = FAULT_OF_XID.get(line.fields.get("code", ""), fault)
        device = line.fields.get("device", "")
        family = f"log:{kind}:{device}" if device else f"log:{kind}"
        scope = Scope("node", self._cell, line.node)
        cgroup = line.fields.get("cgroup", "")
        if cgroup:
            scope = self._container(node, line.node, cgroup) or scope
        return Meaning(scope, fault, family)

    def _container(self, node: NodeSeries, name: str, cgroup: str) -> Scope | None:
        """Find the container whose limit a line speaks of: the cgroup itself or the next above."""
        devices = {
            device.rsplit("@", 1)[0]: device
            for metric, device in node.rows
            if metric == "container_memory_unreclaimable_bytes"
        }
        path = cgroup.rstrip("/")
        while path:
            if path in devices:
                return Scope("container", self._cell, name, devices[path])
            path = path.rpartition("/")[0]
        return None


def _words(line: LogLine) -> str:
    """Say in words what a line means; the kernel's own words where they are plain enough."""
    fields = line.fields
    if fields["kind"] == "oom_kill":
        process, pid = fields.get("process", "a process"), fields.get("pid", "?")
        where = "at its memory limit" if fields.get("cgroup") else "because the node ran out"
        return f"the kernel ended {process} (pid {pid}) {where}"
    if fields["kind"] in {"xid", "gpu_off_bus"} and "meaning" in fields:
        code = f" (Xid {fields['code']})" if "code" in fields else ""
        return f"GPU {fields.get('device', '?')}: {fields['meaning']}{code}"
    return line.text[:240]


def _count(fields: dict[str, str]) -> float:
    text = fields.get("count", "1")
    return float(text) if text.isdigit() else 1.0
