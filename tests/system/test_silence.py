"""Nodes that fall silent: told in time, by the log's own time, and blamed on what it is.

Four cells of six nodes each are watched at once; in each others fall silent.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from bus.messages import Incident, IsolationCommand, SampleBatch, Scope, Suspicion, Watermark
from bus.topics import COMMANDS, INCIDENTS, SUSPICIONS, TELEMETRY
from deploy.kafka.cluster import Cluster
from runtime.clock import Instant
from runtime.wait import wait_until
from tests.system.processes import Fleet, Reading
from tests.system.telemetry import Nodes

WITHIN_S = 12.0
LATER_S = 10.0  # so long it is watched on, for what might still be done
BEATS = 12  # so many batches of each node, before any falls silent
WAIT_S = 60.0
NODES = 6
# How many nodes of each cell fall silent; contracts.md: from three on it is telemetry.
SILENT = {"one": 1, "two": 2, "three": 3, "all": 6}
DETECT = """
[bus.cells]
one = 0
two = 1
three = 2
all = 3
[decide]
burst = 100
acts_per_hour = 100000.0
held_max = 100
held_percent = 100.0
[act.silence.default]
actions = ["drain"]
dry_run = true
[act.telemetry.default]
actions = ["drain", "isolate"]
dry_run = true
"""


class Seen(NamedTuple):
    """What was told, and when each node was heard last, by the log."""

    heard: dict[str, Instant]
    suspicions: list[Suspicion]
    incidents: list[Incident]
    commands: list[IsolationCommand]

    def after_s(self, fault: str, scope: Scope, silent: Iterable[str]) -> float:
        """Return how long after the last of `silent` was heard this was suspected."""
        first = min(
            one.time for one in self.suspicions if one.scope == scope and fault in one.p_bad
        )
        return first.since(max(self.heard[name] for name in silent))

    def told(self, cell: str) -> set[tuple[str | None, Scope]]:
        """Return which incidents of a cell were told."""
        return {(one.fault, one.scope) for one in self.incidents if one.scope.cell == cell}


def names(cell: str, count: int = NODES) -> list[str]:
    return [f"{cell}-{number}" for number in range(count)]


def judged(reading: Reading, until: Instant) -> set[str]:
    """Return the cells whose log was seen up to a moment."""
    return {one.cell for one in reading.of(Watermark) if one.head_time >= until}


@pytest.fixture(scope="module")
def seen(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    kafka.heal()
    kafka.renew_topics(cells=len(SILENT))
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path_factory.mktemp("silence"), kafka.bootstrap))
        fleet.role("detect", toml=DETECT)
        talking = {
            cell: stack.enter_context(Nodes(fleet.bus(cell), names(cell), partition=partition))
            for partition, cell in enumerate(SILENT)
        }
        reading = stack.enter_context(Reading(fleet, TELEMETRY, SUSPICIONS, INCIDENTS, COMMANDS))
        reading.wait_for(SampleBatch, BEATS * NODES * len(SILENT), WAIT_S)
        for cell, nodes in talking.items():
            nodes.hush(*names(cell, SILENT[cell]))

        # Three incidents of nodes, two of cells; then time goes on, to see that nothing follows.
        wait_until(lambda: len({one.id for one in reading.of(Incident)}) >= 5, WAIT_S)
        until = max(one.opened for one in reading.of(Incident)).plus(LATER_S)
        wait_until(
            lambda: judged(reading, until) == set(SILENT),
            WAIT_S,
            what=f"every cell is judged for {LATER_S:g} s more",
        )
        heard = {
            one.message.node: one.appended
            for one in reading.all()
            if isinstance(one.message, SampleBatch)
        }
        yield Seen(heard, reading.of(Suspicion), reading.of(Incident), reading.of(IsolationCommand))


@pytest.mark.parametrize("cell", ["three", "all"])
def test_several_nodes_silent_at_once_are_one_event_about_telemetry_in_time(
    seen: Seen, cell: str
) -> None:
    scope = Scope("cell", cell)
    assert 0 < seen.after_s("telemetry", scope, names(cell, SILENT[cell])) <= WITHIN_S
    assert seen.told(cell) == {("telemetry", scope)}
    assert len({one.id for one in seen.incidents if one.scope == scope}) == 1


@pytest.mark.parametrize("cell", ["three", "all"])
def test_nobody_is_acted_on_where_several_are_silent(seen: Seen, cell: str) -> None:
    assert [one for one in seen.commands if one.scope.cell == cell] == []


@pytest.mark.parametrize("cell", ["one", "two"])
def test_few_silent_nodes_are_each_suspected_in_time(seen: Seen, cell: str) -> None:
    silent = names(cell, SILENT[cell])
    scopes = {name: Scope("node", cell, name) for name in silent}
    for name, scope in scopes.items():
        assert 0 < seen.after_s("silence", scope, [name]) <= WITHIN_S
    assert seen.told(cell) == {("silence", scope) for scope in scopes.values()}


@pytest.mark.parametrize("cell", ["one", "two"])
def test_only_those_that_are_silent_are_acted_on(seen: Seen, cell: str) -> None:
    acted = {one.scope.node for one in seen.commands if one.scope.cell == cell}
    assert acted == set(names(cell, SILENT[cell]))
