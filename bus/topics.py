"""The table of topics: what travels where, keyed by what, kept how long, written and read by whom.

The cluster's name is a field of the messages, not a part of a topic's name.
"""

from typing import NamedTuple

from bus.codec import MAX_RECORD_BYTES

HOUR_MS = 3_600_000
# What a record may be larger than its value: key, headers, framing.
_AROUND_BYTES = 48_576

PREFIX = "farside."
TELEMETRY = "farside.telemetry"
SUSPICIONS = "farside.suspicions"
INCIDENTS = "farside.incidents"
COMMANDS = "farside.commands"
HEALTH = "farside.health"
AUDIT = "farside.audit"
REPORTS = "farside.reports"
INVENTORY = "farside.inventory"
DIRECTIVES = "farside.directives"
DELIVERIES = "farside.deliveries"
REJECTS = "farside.rejects"


class Topic(NamedTuple):
    """One topic; `partitions` 0 means one for each cell, `retention_h` 0 means compacted."""

    name: str
    carries: tuple[str, ...]
    key: str
    partitions: int
    retention_h: int
    writer: str
    readers: tuple[str, ...]

    @property
    def short(self) -> str:
        """Return the name as people type it."""
        return self.name.removeprefix(PREFIX)

    def config(self, replicas: int) -> dict[str, str]:
        """Return the topic's configuration in Kafka's own words.

        With three copies two must have a record before it is acknowledged. A compacted topic rolls
        its segments each day, because only closed ones are compacted.
        """
        kept = (
            {"cleanup.policy": "delete", "retention.ms": str(self.retention_h * HOUR_MS)}
            if self.retention_h
            else {"cleanup.policy": "compact", "segment.ms": str(24 * HOUR_MS)}
        )
        return kept | {
            "min.insync.replicas": str(2 if replicas >= 3 else 1),
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(MAX_RECORD_BYTES + _AROUND_BYTES),
        }


TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        Topic(TELEMETRY, ("SampleBatch", "LogLine", "Tick"), "node", 0, 24,
              "agents (ticks: the scorer)", ("scorer",)),
        Topic(SUSPICIONS, ("Suspicion", "Watermark"), "cell", 1, 168, "scorers", ("decider",)),
        Topic(INCIDENTS, ("Incident",), "incident", 1, 2160, "decider", ("notifiers", "people")),
        Topic(COMMANDS, ("IsolationCommand", "Proposal", "Refusal"), "incident", 1, 2160,
              "decider", ("executors", "notifiers", "people")),
        Topic(HEALTH, ("NodeHealth",), "node", 1, 0, "decider", ("people",)),
        Topic(AUDIT, ("Directive", "IsolationCommand", "Refusal", "ExecutionReport"), "incident",
              1, 8760, "decider", ("people",)),
        Topic(REPORTS, ("ExecutionReport",), "command", 1, 0, "executors",
              ("decider", "executors")),
        Topic(INVENTORY, ("NodeFacts", "JobFacts"), "node or job", 1, 0,
              "one reader per scheduler", ("decider", "scorer")),
        Topic(DIRECTIVES, ("Directive",), "scope", 1, 8760, "people's tools", ("decider",)),
        Topic(DELIVERIES, ("Delivery",), "incident", 1, 720, "notifiers", ("notifiers", "people")),
        Topic(REJECTS, ("Reject",), "topic", 1, 168, "any reader", ("people",)),
    )
}  # fmt: skip
