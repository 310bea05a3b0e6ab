"""Killed at named points and started again: the same commands, each carried out once."""

import signal
import sys
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.codec import to_json
from bus.messages import (
    ExecutionReport,
    Incident,
    IsolationCommand,
    LogLine,
    Refusal,
    SampleBatch,
)
from bus.topics import COMMANDS, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from deploy.kafka.cluster import Cluster
from runtime.clock import SystemClock
from runtime.errors import Unavailable
from runtime.process import run
from runtime.wait import wait_until
from tests.system.leaking import composed
from tests.system.processes import CHECKOUT, Fleet, Reading
from tests.system.telemetry import insist, off_bus

READ = (SUSPICIONS, REPORTS, TELEMETRY, INCIDENTS, COMMANDS)
# Records of the last two minutes are judged as if they came in time: a minute is sent at once.
DETECT = (
    "[detect.frames]\nlateness_s = 120.0\n"
    "[decide]\nage_limit_s = 300.0\nacts_per_hour = 600.0\nheld_max = 9\nheld_percent = 100.0\n"
    "[act.memory_leak.default]\nactions = ['freeze']\ndry_run = true\n"
    "[act.gpu_off_bus.default]\nactions = ['hold']\ndry_run = true\n"
)
KILLED = -signal.SIGKILL
CLOCK = SystemClock()


class Feed:
    """The telemetry of a few nodes, from a writer of the test's own."""

    def __init__(self, fleet: Fleet) -> None:
        """Begin to connect."""
        self._sink = fleet.bus("feed").sink()

    def leak(self, node: str) -> None:
        """Send a minute of a node on which a container leaks."""
        self._send(composed(node, CLOCK.now()))

    def fall(self, node: str) -> None:
        """Let a GPU of this node fall off the bus."""
        self._send([off_bus(node, 1, CLOCK.now(), gpu="0000:3b:00")])

    def _send(self, records: Iterable[SampleBatch | LogLine]) -> None:
        """Have these taken by the log."""
        for record in records:
            insist(partial(self._sink.send, TELEMETRY, record.node, record))
        insist(partial(self._sink.flush, 5.0))

    def close(self) -> None:
        """Let go."""
        self._sink.close(1.0)


def commanded(reading: Reading, *nodes: str) -> list[str]:
    """Wait until something is commanded for each of these nodes; return all identifiers."""
    try:
        wait_until(
            lambda: set(nodes) <= {one.scope.node for one in reading.of(IsolationCommand)}, 30.0
        )
    except Unavailable:
        said = [one.reason for one in reading.of(Refusal)]
        said += [one.sentence for one in reading.of(Incident)]
        pytest.fail(f"no command for one of {', '.join(nodes)}: {said}")
    return sorted({one.id for one in reading.of(IsolationCommand)})


def done(reading: Reading) -> list[str]:
    """Return the commands that were carried out, as often as they were."""
    return sorted(one.command for one in reading.of(ExecutionReport) if one.outcome == "done")


def told(lines: Iterable[bytes], *kinds: str) -> list[Any]:
    """Return messages of these kinds from JSON, repeats left out: a crash publishes some again."""
    found = [msgspec.json.decode(line) for line in dict.fromkeys(lines)]
    return [one for one in found if one["type"] in kinds]


def published(reading: Reading, *kinds: str) -> list[Any]:
    """Return what was published of these kinds, in its order."""
    return told((to_json(one.message) for one in reading.all()), *kinds)


def replayed(*arguments: str) -> list[bytes]:
    """Return what an undisturbed `farside replay` says."""
    program = str(Path(sys.executable).with_name("farside"))
    ended = run([program, "replay", *arguments], timeout_s=60.0, cwd=CHECKOUT)
    assert (ended.code, ended.err) == (0, "")
    return [line.encode() for line in ended.out.splitlines()]


@pytest.mark.parametrize(
    ("worker", "point"),
    [
        ("decider", "after poll"),
        ("decider", "after journal"),
        ("decider", "after publish"),
        ("decider", "before save"),
        ("decider", "during save"),
        ("scorer", "after poll"),
        ("scorer", "after publish"),
        ("scorer", "before save"),
        ("scorer", "during save"),
    ],
)
def test_a_detector_killed_at_a_named_point_says_what_an_undisturbed_replay_says(
    worker: str, point: str, fresh_topics: Cluster, tmp_path: Path
) -> None:
    armed = tmp_path / "armed"
    with (
        Fleet(tmp_path, fresh_topics.bootstrap) as fleet,
        Reading(fleet, *READ) as reading,
        closing(Feed(fleet)) as feed,
    ):
        fleet.role("execute")
        first = fleet.crashing("detect", worker, point, armed=armed, toml=DETECT)
        feed.leak("leaking")
        commanded(reading, "leaking")
        armed.touch()
        feed.fall("fallen")
        assert first.ended() == KILLED
        feed.fall("fallen-meanwhile")

        config = fleet.configure("detect", toml=DETECT)
        second = fleet.role("detect", toml=DETECT)
        commands = commanded(reading, "fallen", "fallen-meanwhile")
        wait_until(lambda: done(reading) == commands, 30.0, what="each is carried out once")
        assert second.stop() == 0

        records = reading.write(tmp_path / "records.jsonl")
        configured = ("--config", str(config), str(records))
        decided = replayed(*configured, "--journal", str(tmp_path / "n1-detect"))
        for kinds in (("IsolationCommand", "Refusal"), ("Incident",)):
            assert told(decided, *kinds) == published(reading, *kinds)
        suspected = published(reading, "Suspicion")
        assert suspected == told(replayed(*configured), "Suspicion")[: len(suspected)]
