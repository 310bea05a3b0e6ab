"""Brokers go away and come back: nothing acknowledged is lost, nothing is carried out twice."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.messages import ExecutionReport, Incident, IsolationCommand, Watermark
from bus.topics import COMMANDS, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from deploy.kafka.cluster import Cluster
from runtime.clock import SystemClock
from runtime.errors import Unavailable
from runtime.wait import wait_until
from tests.system.processes import Fleet, Process, Reading
from tests.system.telemetry import Nodes, by_node, insist, names_of, told

CLOCK = SystemClock()
NAMES = [f"gpu-{number:02}" for number in range(6)]
AWAY_S = 20.0
WAIT_S = 90.0
# Every node may be acted on, so that a fault without a command is one that was lost.
DETECT = """
[decide]
burst = 100
acts_per_hour = 100000.0
held_max = 100
held_percent = 100.0
[act.gpu_off_bus.default]
actions = ["drain"]
dry_run = true
"""


class Watched:
    """The servers' roles as processes, six nodes, and everything that travels."""

    def __init__(self, fleet: Fleet, nodes: Nodes) -> None:
        self.nodes = nodes
        self.roles: list[Process] = [
            fleet.role("detect", toml=DETECT),
            fleet.role("execute"),
            fleet.role("notify"),
        ]
        self.reading = Reading(fleet, SUSPICIONS, INCIDENTS, COMMANDS, REPORTS)

    def fail(self, node: str) -> None:
        """Let a GPU of a node fall off the bus."""
        self.nodes.fail(node, "0000:3b:00.0")

    def acted_on(self, *names: str) -> None:
        """Wait until the faults of these nodes are incidents that were told and acted on."""
        try:
            wait_until(lambda: self.reported() >= set(names), WAIT_S)
        except Unavailable:
            said = "\n".join(role.text[-3000:] for role in self.roles)
            pytest.fail(f"{names} should be acted on, not only {self.reported()}; {said}")
        for name in names:
            self.roles[2].says(name)

    def reported(self) -> set[str]:
        """Return the nodes for which a command was carried out."""
        done = {one.command for one in self.reading.of(ExecutionReport) if one.outcome == "done"}
        return {one.scope.node for one in self.reading.of(IsolationCommand) if one.id in done}


def outlive(cluster: Cluster, folder: Path, outage: Callable[[], None]) -> None:
    """Watch nodes over an outage; judge what came of it."""
    with (
        Fleet(folder, cluster.bootstrap) as fleet,
        Nodes(fleet.bus("nodes"), NAMES) as nodes,
    ):
        watched = Watched(fleet, nodes)
        watched.reading.wait_for(Watermark, timeout_s=WAIT_S)
        watched.fail(NAMES[0])
        watched.acted_on(NAMES[0])
        before = len(nodes.said)
        watched.fail(NAMES[1])
        outage()
        watched.fail(NAMES[2])
        watched.acted_on(*NAMES[:3])
        acknowledged = nodes.finish()

        assert len(acknowledged) > before
        assert by_node(told(cluster.bootstrap)) == by_node(names_of(acknowledged))
        reports = watched.reading.of(ExecutionReport)
        done = {(one.command, one.finished) for one in reports if one.outcome == "done"}
        assert Counter(command for command, _ in done) == {
            one.id: 1 for one in watched.reading.of(IsolationCommand)
        }
        assert {(one.fault, one.scope.node) for one in watched.reading.of(Incident)} == {
            ("gpu_off_bus", name) for name in NAMES[:3]
        }
        assert [role.stop() for role in reversed(watched.roles)] == [0, 0, 0]
        watched.reading.close()


def away(duration_s: float) -> None:
    """Wait until so much time has passed."""
    began = CLOCK.now()
    wait_until(lambda: CLOCK.now().since(began) >= duration_s, 2 * duration_s)


@pytest.mark.timeout(240)
def test_a_broker_that_hangs_for_twenty_seconds_costs_nothing(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    [broker] = fresh_topics.brokers

    def hang() -> None:
        broker.suspend()
        away(AWAY_S)
        broker.resume()

    outlive(fresh_topics, tmp_path, hang)


@pytest.mark.timeout(240)
def test_a_broker_that_is_killed_and_started_anew_costs_nothing(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    [broker] = fresh_topics.brokers

    def die() -> None:
        broker.kill()
        broker.restart()

    outlive(fresh_topics, tmp_path, die)


@pytest.mark.timeout(240)
def test_the_leader_of_telemetry_that_is_killed_costs_nothing_where_there_are_three(
    fresh_topics3: Cluster, tmp_path: Path
) -> None:
    leader = fresh_topics3.leader(TELEMETRY)

    def die() -> None:
        leader.kill()
        wait_until(lambda: insist(lambda: fresh_topics3.leader(TELEMETRY)) is not leader, WAIT_S)

    outlive(fresh_topics3, tmp_path, die)
    leader.restart()
