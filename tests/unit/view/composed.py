"""A composed record of one minute and a half on one node: not recorded anywhere, made for tests.

Composed from the demo's own facts: five containers under limits of their own, one of which leaks
from 22 s on and would meet its limit at 77 s; it is suspected, forecast, becomes an incident, and
is frozen six seconds before. `python tests/unit/view/composed.py FILE` writes it as JSON Lines.
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

from bus.messages import (
    Contribution,
    Delivery,
    ExecutionReport,
    Exhaustion,
    Incident,
    IsolationCommand,
    LogLine,
    Message,
    NodeHealth,
    Refusal,
    SampleBatch,
    Scope,
    Source,
    Suspicion,
    Watermark,
)
from bus.records import dump
from bus.samples import Samples
from bus.topics import COMMANDS, DELIVERIES, HEALTH, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Envelope
from runtime.clock import Instant
from runtime.words import bytes_text, duration_text, rate_text

MB = 1_000_000
START = Instant.parse("2026-03-14T09:26:00Z")
NODE = "gpu-0421"
CELL = "lab"
SECONDS = 96
ONSET_S = 22.0
LIMIT_S = 77.0
FROZEN_S = 71.2
RATE = 3.6 * MB
BASE = 41 * MB
LEAK_LIMIT = BASE + RATE * (LIMIT_S - ONSET_S)
LEAK = Scope("container", CELL, NODE, "/farside-demo-7/ingest@4711")
INCIDENT = "inc-5f0c2a91d3"
COMMAND = "cmd-81e7b04c55"


def at(second: float) -> Instant:
    """Return a moment of the record."""
    return START.plus(second)


def jitter(second: float, device: str) -> float:
    """Return up to 0.3 MB of unrest that repeats itself exactly."""
    phase = sum(map(ord, device))
    return 0.15 * MB * (1 + math.sin(12.9898 * second + phase) * math.sin(4.1414 * second))


def leak_bytes(second: float) -> float:
    """Return what the leaking one holds."""
    return BASE + RATE * max(min(second, FROZEN_S) - ONSET_S, 0.0)


def readings(second: float) -> Iterator[tuple[str, str, float]]:
    """Return all readings of one moment."""
    warm = 24 * MB + 226 * MB * -math.expm1(-max(second - 14.0, 0.0) / 9.0)
    held = {
        "/farside-demo-7/ingest@4711": (leak_bytes(second), 0.0, LEAK_LIMIT),
        "/farside-demo-7/compactor@4712": (30 * MB + 205 * MB * (second / 13 % 1), 0, 312 * MB),
        "/farside-demo-7/embedder@4713": (warm, 2 * MB, 338 * MB),
        "/farside-demo-7/logwriter@4714": (
            28 * MB,
            9.4 * MB * min(max(second - 18, 0), 44),
            620 * MB,
        ),
        "/farside-demo-7/idle@4715": (64 * MB, 1 * MB, 96 * MB),
    }
    total_file = 5200.0 * MB
    total_held = 9400.0 * MB
    for device, (curve, file, limit) in held.items():
        still = device == LEAK.name and second > FROZEN_S
        private = curve if still else curve + jitter(second, device)
        yield "container_memory_unreclaimable_bytes", device, private
        yield "container_memory_limit_bytes", device, limit
        yield "container_memory_file_bytes", device, file
        yield "container_frozen", device, float(still)
        total_held += private
        total_file += file
    yield "memory_total_bytes", "", 67_430 * MB
    yield "memory_unreclaimable_bytes", "", total_held
    yield "memory_file_bytes", "", total_file
    yield "memory_available_bytes", "", 67_430 * MB - total_held
    yield "process_private_bytes", "sshd:812:3391", 4.1 * MB
    yield "process_private_limit_bytes", "sshd:812:3391", 58_000 * MB


def contributions(second: float) -> tuple[Contribution, ...]:
    """Return the evidence as the scorer words it."""
    value = leak_bytes(second)
    span_s = 24
    found = [
        Contribution(
            signal="container_memory_unreclaimable_bytes",
            device=LEAK.name,
            value=value,
            reference=LEAK_LIMIT,
            nats=8.0,
            text=f"its floor rose in every test for {duration_text(span_s)}: steady, no step, "
            f"nothing given back, {rate_text(RATE)}",
        )
    ]
    if value > 0.85 * LEAK_LIMIT:
        found.append(
            Contribution(
                signal="near_limit",
                device=LEAK.name,
                value=value,
                reference=LEAK_LIMIT,
                nats=4.0,
                text=f"uses {value / LEAK_LIMIT:.0%} of its limit of {bytes_text(LEAK_LIMIT)}",
            )
        )
    return tuple(found)


def exhaustion(second: float) -> Exhaustion:
    """Return a forecast that comes nearer to the truth as time goes on."""
    left_s = LIMIT_S - second
    best = LIMIT_S + 0.04 * left_s * math.sin(second)
    return Exhaustion(
        time=at(best),
        low=at(best - 0.12 * left_s - 0.4),
        high=at(best + 0.21 * left_s + 0.6),
        used=leak_bytes(second),
        limit=LEAK_LIMIT,
        growth=RATE,
    )


def suspicion(second: float) -> Suspicion:
    """Return what the scorer says at a moment."""
    evidence = contributions(second)
    score = -6.9 + sum(one.nats for one in evidence)
    return Suspicion(
        scope=LEAK,
        time=at(second),
        state="degraded" if score > 5 else "suspect",
        source=Source(partition=0, offset=int(second)),
        p_bad={"memory_leak": 1 / (1 + math.exp(-score))},
        since=at(ONSET_S + 0.8),
        contributions=evidence,
        exhaustion=exhaustion(second),
        score=score,
        boot="b0071d",
        widths=(1.0,),
        period_s=1.0,
    )


def incident(second: float, state: str, sentence: str, command: str = "") -> Incident:
    """Return the incident as it was told at a moment."""
    return Incident(
        id=INCIDENT,
        scope=LEAK,
        state=state,  # type: ignore[arg-type]  # a literal at every call
        severity="critical",
        opened=at(70.0),
        evidence=contributions(min(second, 70.0)),
        sentence=sentence,
        fault="memory_leak",
        updated=at(second),
        exhaustion=exhaustion(70.0),
        command=command,
    )


def command() -> IsolationCommand:
    """Return the order to freeze."""
    return IsolationCommand(
        id=COMMAND,
        scope=LEAK,
        action="freeze",
        executor="process",
        generation=1,
        reason="memory leak: its limit is at most 6 s away, and freezing can be undone",
        incident=INCIDENT,
        issued=at(71.0),
        expires=at(86.0),
        dry_run=False,
        precondition={"boot": "b0071d", "inode": "4711", "path": "/farside-demo-7/ingest"},
        hold_until=at(671.0),
    )


def story_of(second: int) -> Iterator[tuple[str, str, float, Message]]:
    """Return (topic, key, appended second, message) of what is said in one second."""
    yield (
        TELEMETRY,
        NODE,
        second + 0.05,
        SampleBatch(
            cluster="lab",
            node=NODE,
            boot="b0071d",
            start="s1",
            sequence=second,
            time=at(second),
            samples=Samples.of(readings(float(second))),
        ),
    )
    mark = Watermark(
        cell=CELL,
        time=at(second - 1),
        head_time=at(second - 0.6),
        source=Source(partition=0, offset=second),
    )
    yield SUSPICIONS, CELL, second + 0.1, mark
    if 48 <= second <= FROZEN_S:
        yield SUSPICIONS, CELL, second + 0.15, suspicion(float(second))
    for when, topic, message in SAID:
        if int(when) == second:
            yield topic, INCIDENT, when, message


GROWS = f"{LEAK.label} leaks {rate_text(RATE)}: it will hit its limit of {bytes_text(LEAK_LIMIT)}"
SAID: tuple[tuple[float, str, Message], ...] = (
    (
        31.4,
        TELEMETRY,
        LogLine(
            cluster="lab",
            node=NODE,
            boot="b0071d",
            start="s1",
            sequence=1031,
            time=at(31.4),
            source="kernel",
            text="hrtimer: interrupt took 51234 ns",
            fields={"kind": "software", "severity": "info"},
        ),
    ),
    (70.0, INCIDENTS, incident(70.0, "open", f"{GROWS} in 7 s (6\u20139 s)")),
    (
        70.1,
        COMMANDS,
        Refusal(
            id="ref-1",
            scope=LEAK,
            incident=INCIDENT,
            action="reclaim",
            reason="one width only: ending needs a second width, or the limit within one poll",
            time=at(70.1),
        ),
    ),
    (71.0, COMMANDS, command()),
    (
        71.01,
        INCIDENTS,
        incident(71.01, "acting", f"{GROWS} in 6 s; freezing it now", COMMAND),
    ),
    (
        71.2,
        REPORTS,
        ExecutionReport(
            command=COMMAND,
            executor="process",
            outcome="done",
            detail="cgroup /farside-demo-7/ingest is frozen (cgroup.events says frozen 1), 3 tasks",
            finished=at(71.2),
            held_until=at(671.0),
        ),
    ),
    (
        71.3,
        INCIDENTS,
        incident(
            71.3,
            "contained",
            f"{LEAK.label} was frozen at 91 % of its limit, 6 s before it",
            COMMAND,
        ),
    ),
    (
        71.35,
        HEALTH,
        NodeHealth(
            node=NODE,
            cell=CELL,
            state="suspect",
            since=at(70.0),
            incidents=(INCIDENT,),
            sentence="one container leaks",
        ),
    ),
    (
        71.4,
        DELIVERIES,
        Delivery(
            incident=INCIDENT, notifier="console", outcome="done", time=at(71.4), state="contained"
        ),
    ),
)


def record() -> list[Envelope]:
    """Return the whole record."""
    offsets: dict[str, int] = {}
    found = []
    for second in range(SECONDS):
        said = sorted(story_of(second), key=lambda one: one[2])
        for topic, key, appended, message in said:
            offset = offsets.get(topic, 0)
            offsets[topic] = offset + 1
            found.append(Envelope(topic, 0, offset, at(appended), key, message))
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(b"".join(map(dump, record())))
