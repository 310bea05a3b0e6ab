"""Incidents of more than a node: a silent executor, a fault with a common cause, a blind cell."""

from typing import NamedTuple

from bus.messages import Fault, IsolationCommand, Scope, Severity
from detector import explain
from detector.incidents import Case, short_id
from runtime.clock import Instant
from runtime.words import duration_text


class Seen(NamedTuple):
    """How far the detection of a cell sees: judged up to when, behind its head, without word."""

    judged: Instant
    behind_s: float
    missing_s: float


def executor_scope(executor: str) -> Scope:
    """Return what stands for an executor."""
    return Scope("fleet", name=f"executor:{executor}")


def fault_scope(fault: Fault) -> Scope:
    """Return what stands for the fleet under one fault."""
    return Scope("fleet", name=fault)


def cell_scope(cell: str) -> Scope:
    """Return what stands for a cell."""
    return Scope("cell", cell)


def silent_executor(command: IsolationCommand, now: Instant) -> Case:
    """Return the case of an executor that missed its answer; it stands until one comes."""
    sentence = explain.unanswered(command.executor, command, now.since(command.issued))
    case = _case(executor_scope(command.executor), "software", sentence, now)
    case.standing = True
    return case


def common_cause(fault: Fault, sentence: str, now: Instant) -> Case:
    """Return the case of a fault that too many nodes show at once."""
    return _case(fault_scope(fault), fault, sentence, now)


def blind(cell: str, seen: Seen, now: Instant) -> Case:
    """Return the case of a cell that is judged too far behind; it stands until it has caught up."""
    upto = f"judged up to {explain.clock_text(seen.judged)}" if seen.judged else "nothing is judged"
    if seen.behind_s >= seen.missing_s:
        how = f"{upto}, {duration_text(seen.behind_s)} behind the head of its log"
    else:
        how = f"{upto}, and no word of it for {duration_text(seen.missing_s)}"
    name = explain.one_line(cell)
    sentence = f"detection of cell {name} is blind: {how}; nothing old is acted on"
    case = _case(cell_scope(cell), "telemetry", explain.one_line(sentence), now, "warning")
    case.standing = True
    return case


def _case(
    scope: Scope, fault: Fault, sentence: str, now: Instant, severity: Severity = "critical"
) -> Case:
    return Case(
        id=short_id(scope.key, fault, int(now)),
        scope=scope,
        fault=fault,
        opened=now,
        updated=now,
        severity=severity,
        base=sentence,
    )
