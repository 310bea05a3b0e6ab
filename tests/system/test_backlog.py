"""Detection that was away comes back to a backlog: it says so, and nothing old is acted on."""

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bus.messages import ExecutionReport, Incident, IsolationCommand, Refusal, Scope, Watermark
from bus.topics import COMMANDS, INCIDENTS, REPORTS, SUSPICIONS
from deploy.kafka.cluster import Cluster
from runtime.clock import Instant
from runtime.process import run
from runtime.wait import wait_until
from tests.system.processes import CHECKOUT, Fleet, Process, Reading
from tests.system.telemetry import Nodes, newest

# Enough of them that what a minute leaves behind can't be read in one turn.
NAMES = [f"gpu-{number:02}" for number in range(60)]
PERIOD_S = 0.2
GPU = "0000:3b:00.0"
WAIT_S = 90.0
LATER_S = 10.0  # so long it is watched on, for what might still be done
TOO_OLD = re.compile(r"is \d+ s old, limit")
pytestmark = pytest.mark.timeout(1200)  # of the first test, which waits for what all of them see
CELL = Scope("cell", "default")
LAG = re.compile(
    r'^farside_lag_records\{(?=[^}]*topic="farside\.telemetry")[^}]*\} ([0-9.e+]+)$', re.MULTILINE
)


def settings(age_limit_s: float) -> str:
    return f"""
[decide]
age_limit_s = {age_limit_s}
burst = 100
acts_per_hour = 100000.0
held_max = 100
held_percent = 100.0
[act.gpu_off_bus.default]
actions = ["drain"]
dry_run = true
"""


def lag_records(detect: Process) -> float:
    """Return how many records of telemetry wait, as /metrics says."""
    line = detect.says("metrics and health on")
    with urllib.request.urlopen(line.split()[-1], timeout=10.0) as answer:  # noqa: S310  # our own
        found = LAG.search(answer.read().decode())
    return float(found[1]) if found else 0.0


def top(fleet: Fleet) -> dict[str, Any]:
    """Return what `farside top --json` shows of the one cell."""
    farside = str(Path(sys.executable).with_name("farside"))
    config = str(fleet.configure("top"))
    ended = run([farside, "top", "--json", "--config", config], 60.0, cwd=CHECKOUT)
    [cell] = json.loads(ended.out)["cells"]
    return dict(cell)


class Seen(NamedTuple):
    """What came of it: two faults from while detection was away, a fresh one after."""

    age_limit_s: float
    lag_of_top_s: float
    blind_in_top_after: str
    lag_records: float
    blindness: list[str]
    incidents: set[str]
    commands: set[str]
    too_old: set[str]


OLD, FRESH = set(NAMES[:2]), NAMES[2]


def come_back(cluster: Cluster, folder: Path, age_limit_s: float) -> Seen:
    """Have detection stopped for three times the age limit, and started again."""
    with (
        Fleet(folder, cluster.bootstrap) as fleet,
        Nodes(fleet.bus("nodes"), NAMES, period_s=PERIOD_S) as nodes,
        Reading(fleet, SUSPICIONS, INCIDENTS, COMMANDS, REPORTS) as reading,
    ):
        fleet.role("execute")
        detect = fleet.role("detect", toml=settings(age_limit_s))
        reading.wait_for(Watermark, 5, WAIT_S)
        assert detect.stop() == 0

        stopped = newest(cluster.bootstrap)

        def move_on(limits: float) -> None:
            wait_until(
                lambda: newest(cluster.bootstrap).since(stopped) >= limits * age_limit_s,
                4 * age_limit_s,
                every_s=0.5,
                what=f"the log moves on by {limits:g} age limits",
            )

        nodes.fail(NAMES[0], GPU)
        move_on(1.5)
        nodes.fail(NAMES[1], GPU)
        move_on(3.0)
        before = top(fleet)

        detect = fleet.role("detect", toml=settings(age_limit_s))
        lag = wait_until(lambda: lag_records(detect), WAIT_S, what="the lag shows in /metrics")
        wait_until(lambda: blindness(reading)[-1:] == ["closed"], WAIT_S, what="it sees again")
        wait_until(lambda: lag_records(detect) < len(NAMES), WAIT_S, what="the lag is gone")
        after = top(fleet)

        nodes.fail(FRESH, GPU)
        wait_until(lambda: FRESH in acted_on(reading), WAIT_S, what="the fresh fault is acted on")
        later = reading.of(IsolationCommand)[-1].issued.plus(LATER_S)
        wait_until(lambda: head(reading) >= later, WAIT_S, what="some seconds more are judged")
        return Seen(
            age_limit_s=age_limit_s,
            lag_of_top_s=before["lag_s"],
            blind_in_top_after=after["blind"],
            lag_records=lag,
            blindness=blindness(reading),
            incidents={one.scope.node for one in reading.of(Incident) if one.scope != CELL},
            commands={one.scope.node for one in reading.of(IsolationCommand)},
            too_old={one.scope.node for one in reading.of(Refusal) if TOO_OLD.search(one.reason)},
        )


@pytest.fixture(scope="module", params=[20.0, pytest.param(200.0, marks=pytest.mark.long)])
def seen(
    request: pytest.FixtureRequest, kafka: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Seen:
    kafka.heal()
    kafka.renew_topics()
    return come_back(kafka, tmp_path_factory.mktemp("backlog"), request.param)


def test_the_lag_is_visible_in_metrics_and_in_top(seen: Seen) -> None:
    assert seen.lag_records > len(NAMES)
    assert seen.lag_of_top_s >= 2 * seen.age_limit_s


def test_blindness_is_told_once_and_taken_back(seen: Seen) -> None:
    assert seen.blindness == ["open", "closed"]
    assert seen.blind_in_top_after == ""


def test_old_faults_are_told_as_incidents_and_refused_for_their_age(seen: Seen) -> None:
    assert seen.incidents == OLD | {FRESH}
    assert seen.too_old == OLD


def test_a_fresh_fault_is_acted_on_once_detection_has_caught_up(seen: Seen) -> None:
    assert FRESH in seen.commands


@pytest.mark.xfail(
    strict=True,
    reason="a named fault is told again every 10 s with the time of that moment, so after the "
    "backlog it passes for fresh: its age has to be that of the newest line",
)
def test_nothing_old_is_acted_on(seen: Seen) -> None:
    assert seen.commands & OLD == set()


def blindness(reading: Reading) -> list[str]:
    """Return the states that the incident of a blind cell went through."""
    states = [one.state for one in reading.of(Incident) if one.scope == CELL]
    return [state for at, state in enumerate(states) if states[at - 1 : at] != [state]]


def acted_on(reading: Reading) -> set[str]:
    """Return the nodes for which a command was carried out."""
    done = {one.command for one in reading.of(ExecutionReport) if one.outcome == "done"}
    return {one.scope.node for one in reading.of(IsolationCommand) if one.id in done}


def head(reading: Reading) -> Instant:
    return max(one.head_time for one in reading.of(Watermark))
