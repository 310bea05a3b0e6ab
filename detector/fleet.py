"""Incidents of the fleet as a whole: an executor that keeps silent, a fault with a common cause."""

from bus.messages import Fault, IsolationCommand, Scope
from detector import explain
from detector.incidents import Case, short_id
from runtime.clock import Instant


def executor_scope(executor: str) -> Scope:
    """Return what stands for an executor."""
    return Scope("fleet", name=f"executor:{executor}")


def fault_scope(fault: Fault) -> Scope:
    """Return what stands for the fleet under one fault."""
    return Scope("fleet", name=fault)


def silent_executor(command: IsolationCommand, now: Instant) -> Case:
    """Return the case of an executor that missed its answer; it stands until one comes."""
    sentence = explain.unanswered(command.executor, command, now.since(command.issued))
    case = _case(executor_scope(command.executor), "software", sentence, now)
    case.standing = True
    return case


def common_cause(fault: Fault, sentence: str, now: Instant) -> Case:
    """Return the case of a fault that too many nodes show at once."""
    return _case(fault_scope(fault), fault, sentence, now)


def _case(scope: Scope, fault: Fault, sentence: str, now: Instant) -> Case:
    return Case(
        id=short_id(scope.key, fault, int(now)),
        scope=scope,
        fault=fault,
        opened=now,
        updated=now,
        severity="critical",
        base=sentence,
    )
