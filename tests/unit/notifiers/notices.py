"""Incidents and refusals, and a notifier that keeps what it was told."""

from bus.messages import Incident, IncidentState, Refusal, Scope, Severity
from notifiers.base import Notice
from runtime.clock import Instant
from runtime.errors import FarsideError

START = Instant.parse("2026-11-30T12:00:00.5Z")
SCOPE = Scope("container", "a", "n1", "/jobs/7@4711")


def incident(
    state: IncidentState = "open",
    name: str = "i1",
    *,
    after_s: float = 0.0,
    severity: Severity = "warning",
    sentence: str = "its memory leaks",
) -> Incident:
    """Return an incident as it was `after_s` seconds after the start."""
    return Incident(
        id=name,
        scope=SCOPE,
        state=state,
        severity=severity,
        opened=START,
        updated=START.plus(after_s),
        sentence=sentence,
        fault="memory_leak",
    )


def refusal(reason: str = "acting is off", name: str = "i1", after_s: float = 0.0) -> Refusal:
    """Return a refusal to freeze."""
    return Refusal(
        id=f"{name}-{reason}",
        scope=SCOPE,
        incident=name,
        action="freeze",
        reason=reason,
        time=START.plus(after_s),
    )


class Ear:
    """A notifier that remembers, and fails while there is an error in `failing`."""

    name = "ear"

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.failing: dict[str, FarsideError] = {}
        self.closed = False

    def wants(self, notice: Notice) -> bool:  # noqa: ARG002  # the protocol's
        return True

    def tell(self, notice: Notice, now: Instant) -> None:  # noqa: ARG002  # the protocol's
        if notice.incident in self.failing:
            raise self.failing[notice.incident]
        self.heard.append((notice.incident, notice.state))

    def close(self) -> None:
        self.closed = True

    def cannot(self) -> list[str]:
        return []
