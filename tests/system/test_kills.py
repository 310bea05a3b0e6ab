"""Killed at named points and started again: the same commands, each carried out once."""

import os
import shutil
import signal
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
    Scope,
    Tick,
)
from bus.topics import COMMANDS, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from collectors.spool import Spool
from deploy.kafka.cluster import Cluster
from runtime.clock import Instant, SystemClock
from runtime.errors import Unavailable
from runtime.process import run, start
from runtime.wait import wait_until
from tests.system.leaking import composed
from tests.system.processes import CHECKOUT, Fleet, Process, Reading
from tests.system.telemetry import insist, off_bus, plain

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


def test_behind_what_a_restart_repeats_every_topic_is_read_on(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    with Fleet(tmp_path, fresh_topics.bootstrap) as fleet:
        bus = fleet.bus()
        sink, source = bus.sink(), bus.source([SUSPICIONS, REPORTS])
        for topic in [*[SUSPICIONS] * 9, REPORTS]:
            insist(partial(sink.send, topic, "", Tick(cell="a", time=CLOCK.now())))
        insist(partial(sink.flush, 5.0))
        for place, first, end in (
            ((SUSPICIONS, 0), 0, 7),
            ((SUSPICIONS, 0), 7, 8),
            ((REPORTS, 0), 0, 1),
        ):
            assert len(insist(partial(source.reread, place, first, end))) == end - first
        rest = wait_until(lambda: source.poll(9, 0.5), 30.0, what="the last suspicion")
        assert [(one.topic, one.offset) for one in rest] == [(SUSPICIONS, 8)]
        source.close()
        sink.close(1.0)
        bus.close()


# --- the executor --------------------------------------------------------------------------------


class Target:
    """A process that does nothing, for an executor to freeze."""

    def __init__(self) -> None:
        """Start it."""
        self._running = start(["sleep", "600"], own_group=True)
        self.pid = self._running.pid

    def stat(self) -> list[str]:
        """Return the fields of its stat behind the name: state, …, start (the 20th), …."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()

    @property
    def stopped(self) -> bool:
        """Whether it is stopped."""
        return self.stat()[0] == "T"

    def freezing(self, identity: str) -> IsolationCommand:
        """Return a command to freeze it."""
        started, now = self.stat()[19], CLOCK.now()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return IsolationCommand(
            id=identity,
            scope=Scope("process", "default", "n1", f"sleep:{self.pid}:{started}"),
            action="freeze",
            executor="process",
            generation=1,
            reason="a test",
            incident="i1",
            issued=now,
            expires=now.plus(60.0),
            dry_run=False,
            precondition={"boot": boot, "pid": str(self.pid), "start": started},
            hold_until=now.plus(300.0),
        )

    def close(self) -> None:
        """End it."""
        self._running.kill()
        self._running.stop()


def test_an_executor_killed_between_act_and_report_acts_once_and_answers(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "us").write_text(str(os.getpid()))
    own = f"[execute.process]\nown_descendants_of = ['{tmp_path / 'us'}']\n"
    with (
        Fleet(tmp_path, fresh_topics.bootstrap) as fleet,
        Reading(fleet, REPORTS) as reading,
        closing(Target()) as target,
    ):
        sink = fleet.bus("decider").sink()
        first = fleet.crashing("execute", "executor", "before report", toml=own)
        insist(lambda: sink.send(COMMANDS, "i1", target.freezing("c1")))
        assert first.ended() == KILLED
        sink.close(1.0)
        assert target.stopped
        assert reading.of(ExecutionReport) == []

        second = fleet.role("execute", toml=own)
        reading.wait_for(ExecutionReport)
        assert target.stopped
        assert second.stop() == 0
        assert not target.stopped
        ledger = (tmp_path / "n1-execute" / "executor-process.jsonl").read_bytes().splitlines()
        steps = [msgspec.json.decode(line)["step"] for line in ledger]
        assert (steps.count("intent"), steps.count("change")) == (1, 1)
        outcomes = [one.outcome for one in reading.of(ExecutionReport)]
        # The command comes again after the restart: that it was done already is another answer.
        assert [one for one in outcomes if one != "already"] == ["done", "expired"]
        assert outcomes.count("already") <= 1


# --- the agent -----------------------------------------------------------------------------------

PERIOD_S = 0.2
AGENT = (
    f"[agent]\nperiod_s = {PERIOD_S}\ndeadline_s = 0.15\n"
    "[agent.sending]\nin_flight_records_max = 4\npause_s = 0.2\npause_s_max = 0.5\n"
    "spread_s = 0.5\ncatch_up_records_s = 200.0\n"
    "[agent.spool]\nsync_s = 0.1\n"
)
LOST_S_MAX = 3.0  # disk_after_s is 0.5, a slow machine takes its time
Name = tuple[str, str, str, int]


class Told(NamedTuple):
    """A record of a node: its name, and its moment in ns."""

    name: Name
    time: int


def told_by_nodes(bootstrap: list[str]) -> list[Told]:
    """Return all records of nodes in the order of the log, by a plain consumer and msgspec."""
    records = (msgspec.msgpack.decode(one.value) for one in plain(bootstrap, TELEMETRY))
    return [
        Told((one["node"], one["boot"], one["start"], one["sequence"]), one["time"])
        for one in records
        if one["type"] in {"SampleBatch", "LogLine"}
    ]


def spooled(folder: Path) -> list[Told]:
    """Return the records that a killed agent left on disk, in their order."""
    spool = Spool(folder=folder)
    found = []
    while (kept := spool.take()) is not None:
        one = kept.record
        found.append(Told((one.node, one.boot, one.start, one.sequence), int(one.time)))
    spool.close()
    return found


def metric(process: Process, name: str) -> float:
    """Return a metric as the process shows it; 0 where it shows none."""
    address = process.says("metrics and health on").split()[-1]
    with urllib.request.urlopen(address, timeout=5.0) as answer:  # noqa: S310  # our own server
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)


class Killing:
    """An agent that is killed while the only broker hangs, and started again when it goes on."""

    def __init__(self, cluster: Cluster, fleet: Fleet, disk_after_s: float) -> None:
        """Let it write to disk what has waited for so long."""
        self._cluster = cluster
        self._fleet = fleet
        self._toml = f"{AGENT}disk_after_s = {disk_after_s}\n"
        self.killed = CLOCK.now()
        self.before: list[Told] = []
        self.left: list[Told] = []

    def kill(self, place: str) -> None:
        """Kill it when ten records wait in this place; note what was acknowledged and is left."""
        agent = self._fleet.role("collect", toml=self._toml)
        wait_until(lambda: len(self.found()) >= 5, 60.0, what="the first records")
        self.before = self.found()
        [broker] = self._cluster.brokers
        broker.suspend()
        waiting = f'farside_spool_records{{place="{place}"}}'
        wait_until(lambda: metric(agent, waiting) >= 10, 60.0, what=f"ten records in {place}")
        self.killed = CLOCK.now()
        agent.kill()
        broker.resume()
        folder = self._fleet.folder / "spool"
        shutil.copytree(self._fleet.folder / "n1-collect" / "spool", folder)
        self.left = spooled(folder)

    def start(self) -> Process:
        """Start it again, and wait until it sends of itself."""
        agent = self._fleet.role("collect", toml=self._toml)
        wait_until(lambda: len(self.starts()) == 2, 60.0, what="records of its next start")
        return agent

    def found(self) -> list[Told]:
        """Return what the log holds."""
        return told_by_nodes(self._cluster.bootstrap)

    def starts(self) -> dict[str, list[int]]:
        """Return the numbers of each start in the order of the log, repeats left out."""
        numbers: dict[str, list[int]] = {}
        for _, _, begun, number in dict.fromkeys(one.name for one in self.found()):
            numbers.setdefault(begun, []).append(number)
        return numbers


def test_an_agent_killed_while_it_spools_sends_all_that_was_on_disk_in_order(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    with Fleet(tmp_path, fresh_topics.bootstrap) as fleet:
        killing = Killing(fresh_topics, fleet, disk_after_s=0.5)
        killing.kill("disk")
        assert len(killing.left) >= 10
        assert killing.start().stop() == 0

    counted = Counter(one.name for one in killing.found())
    kept = {one.name for one in (*killing.before, *killing.left)}
    assert kept <= counted.keys()
    first, second = killing.starts().values()
    assert first == list(range(1, first[-1] + 1))
    assert second == list(range(1, second[-1] + 1))
    # Sent twice is only what was on disk: on its way at the kill, or acknowledged just before.
    assert {name for name, times in counted.items() if times > 1} <= {
        one.name for one in killing.left
    }
    # What was in memory alone is the end of the first start: no more than its last few seconds.
    last = max(one.time for one in killing.found() if one.name[2] == killing.left[0].name[2])
    assert killing.killed.since(Instant(last)) < LOST_S_MAX


def test_what_an_agent_had_in_memory_alone_when_it_was_killed_is_counted_as_lost(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    with Fleet(tmp_path, fresh_topics.bootstrap) as fleet:
        killing = Killing(fresh_topics, fleet, disk_after_s=60.0)
        killing.kill("memory")
        assert killing.left == []
        agent = killing.start()
        lost = metric(agent, "farside_spool_lost_total")
        assert agent.stop() == 0

    assert {one.name for one in killing.before} <= {one.name for one in killing.found()}
    first, _ = killing.starts().values()
    assert first == list(range(1, first[-1] + 1))
    last = max(one.time for one in killing.found() if one.name[2] == killing.before[0].name[2])
    made = killing.killed.since(Instant(last)) / PERIOD_S
    assert 5 <= lost <= made + 10
