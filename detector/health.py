"""The state of each node, for whoever schedules work: the worst of what is known about it.

Only what befalls the node itself isolates it. A frozen process leaves its node degraded.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from bus.messages import HealthState, NodeHealth, Suspicion
from detector import explain
from detector.incidents import PLACES, SEVERITIES, Case
from detector.suspicions import worst
from runtime.clock import Instant

INCIDENTS_MAX = 16
DEFAULT_POOL = "default"
_BADNESS: tuple[HealthState, ...] = (
    "healthy",
    "probation",
    "suspect",
    "degraded",
    "diagnosing",
    "isolating",
    "isolated",
)


class NodeRecord(msgspec.Struct, kw_only=True):
    """A node that was ever heard of, and what was last told about it."""

    name: str
    cell: str = ""
    pool: str = DEFAULT_POOL
    state: HealthState = "healthy"
    since: Instant = Instant(0)
    incidents: tuple[str, ...] = ()
    told: bool = False


class Judged(NamedTuple):
    """A state, its incidents and the sentence of the worst thing known."""

    state: HealthState
    incidents: tuple[str, ...]
    sentence: str


def judge(cases: Iterable[Case], suspicions: Iterable[Suspicion], now: Instant) -> Judged:
    """Return the state of a node from its open incidents and present suspicions."""
    state: HealthState = "healthy"
    sentence = "nothing is known against it"
    incidents = []
    for case in sorted(cases, key=lambda case: (-SEVERITIES.index(case.severity), case.id)):
        incidents.append(case.id)
        its = _of_case(case)
        if _BADNESS.index(its) > _BADNESS.index(state):
            state, sentence = its, case.sentence
    for suspicion in sorted(suspicions, key=lambda suspicion: suspicion.scope):
        fault = worst(suspicion)
        if fault and _BADNESS.index(suspicion.state) > _BADNESS.index(state):
            state = suspicion.state
            sentence = explain.sentence(suspicion.scope, fault, suspicion, now)
    return Judged(state, tuple(incidents[:INCIDENTS_MAX]), sentence)


def tell(record: NodeRecord, judged: Judged, now: Instant) -> NodeHealth | None:
    """Return what to publish where something changed, and remember it."""
    if record.told and (record.state, record.incidents) == (judged.state, judged.incidents):
        return None
    if not record.told or record.state != judged.state:
        record.since = now
    record.told = True
    record.state = judged.state
    record.incidents = judged.incidents
    return NodeHealth(
        node=record.name,
        cell=record.cell,
        state=record.state,
        since=record.since,
        incidents=record.incidents,
        sentence=judged.sentence,
    )


def _of_case(case: Case) -> HealthState:
    if case.state == "closed":
        return "healthy"
    if case.state == "probation":
        return "probation"
    if case.severity == "info":
        return "suspect"
    if case.scope.kind in PLACES and case.state == "acting":
        return "isolating"
    if case.scope.kind in PLACES and case.state == "contained":
        return "isolated"
    return "degraded"
