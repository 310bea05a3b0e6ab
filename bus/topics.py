"""The table of topics: what travels where, keyed by what, kept how long, written and read by whom.

The cluster's name is a field of the messages, not a part of a topic's name.
"""

from typing import NamedTuple

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


TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        Topic(TELEMETRY, ("SampleBatch", "LogLine", "Tick"), "node", 0, 24,
              "agents (ticks: the scorer)", ("scorer",)),
        Topic(SUSPICIONS, ("Suspicion", "Watermark"), "cell", 1, 168, "scorers", ("decider",)),
        Topic(INCIDENTS, ("Incident",), "incident", 1, 2160, "decider", ("notifiers", "people")),
        Topic(COMMANDS, ("IsolationCommand", "Proposal", "Refusal"), "incident", 1, 2160,
              "decider", ("executors", "people")),
        Topic(HEALTH, ("NodeHealth",), "node", 1, 0, "decider", ("people",)),
        Topic(AUDIT, ("Directive", "IsolationCommand", "Refusal", "ExecutionReport"), "incident",
              1, 8760, "decider", ("people",)),
        Topic(REPORTS, ("ExecutionReport",), "command", 1, 0, "executors",
              ("decider", "executors")),
        Topic(INVENTORY, ("NodeFacts", "JobFacts"), "node or job", 1, 0,
              "one reader per scheduler", ("decider", "scorer")),
        Topic(DIRECTIVES, ("Directive",), "scope", 1, 8760, "people's tools", ("decider",)),
        Topic(DELIVERIES, ("Delivery",), "incident", 1, 720, "notifiers", ("people",)),
        Topic(REJECTS, ("Reject",), "topic", 1, 168, "any reader", ("people",)),
    )
}  # fmt: skip
