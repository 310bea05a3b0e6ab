"""A real leak seen across processes: collected, judged, stopped once, told once, let go at the end.

n1 is this machine as it is; n2 a captured one (tests/golden/machines) with an agent of its own.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from bus.messages import ExecutionReport, IsolationCommand, SampleBatch, Watermark
from bus.topics import COMMANDS, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from deploy.kafka.cluster import Cluster
from farside.demo.arena import Arena
from farside.demo.truth import Fate
from runtime.wait import wait_until
from tests.system.leaking import PLAN, TO_LIMIT_S, means
from tests.system.processes import Fleet, Reading
from tests.unit.notifiers.receiver import KEY, Receiver, receiving

CAPTURED = Path(__file__).parents[1] / "golden" / "machines" / "v2-pods" / "root"
AGENT = (
    "[agent]\nperiod_s = 0.5\ndeadline_s = 0.4\n"
    "[collect.process]\nrescan_s = 1.0\n[collect.cgroup]\nrescan_s = 1.0\n"
)
DETECT = (
    "[detect.frames]\nperiod_s = 0.5\nlateness_s = 2.0\n"
    "[decide]\nact_time_s = 1.0\nmargin_polls = 4.0\n"
    "[act.memory_leak.default]\nactions = ['freeze', 'reclaim']\n"
)
LOOK_S = 0.25


def told(receiver: Receiver) -> list[dict[str, Any]]:
    """Return what the receiver was told, each notice verified by the standard's own library."""
    key = standardwebhooks.Webhook(KEY)
    return [key.verify(heard.body, heard.headers) for heard in list(receiver.heard)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_a_leak_is_caught_before_its_limit_stopped_once_and_told_once(
    fresh_topics: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    shutil.copytree(CAPTURED, tmp_path / "n2")
    (tmp_path / "us").write_text(str(os.getpid()))
    (tmp_path / "secret").write_text(KEY)
    own = f"[execute.process]\nown_descendants_of = ['{tmp_path / 'us'}']\n"
    hook = f"[notify.webhook]\nurl = '{receiver.url}'\nsecret_file = '{tmp_path / 'secret'}'\n"
    topics = (TELEMETRY, SUSPICIONS, INCIDENTS, COMMANDS, REPORTS)
    with (
        Fleet(tmp_path, fresh_topics.bootstrap) as fleet,
        Reading(fleet, *topics) as reading,
        Arena(containers=False) as arena,
    ):
        arena.start(PLAN)
        fleet.role("collect", toml=AGENT)
        fleet.role("collect", node="n2", toml=f"root = '{tmp_path / 'n2'}'\n{AGENT}")
        fleet.role("detect", toml=f"{DETECT}{own}")
        executor = fleet.role("execute", toml=own)
        fleet.role("notify", toml=hook)
        wait_until(
            lambda: (
                {batch.node for batch in reading.of(SampleBatch)} == {"n1", "n2"}
                and reading.of(Watermark)
            ),
            60.0,
            what="both nodes are judged",
        )
        arena.go()

        def fate() -> Fate:
            return next(one for one in arena.look() if one.child.role == "leak")

        wait_until(lambda: not fate().running, TO_LIMIT_S + 20.0, every_s=LOOK_S, what="its end")
        leak = fate()
        assert leak.ending == "stopped"
        assert leak.used_bytes < leak.child.limit_bytes

        # Something else on this machine may leak as well; that is not ours, and is left alone.
        def commanded() -> list[IsolationCommand]:
            return [one for one in reading.of(IsolationCommand) if means(one, leak)]

        [command] = wait_until(commanded, 30.0, what="the command")

        def answers() -> list[ExecutionReport]:
            return [one for one in reading.of(ExecutionReport) if one.command == command.id]

        def kinds() -> list[str]:
            return [one["type"] for one in told(receiver) if one["data"]["id"] == command.incident]

        wait_until(answers, 30.0, what="the report")
        wait_until(
            lambda: {"incident.opened", "incident.contained"} <= set(kinds()),
            30.0,
            what="the receiver is told",
        )
        assert [one.id for one in commanded()] == [command.id]
        assert [one.outcome for one in answers()] == ["done"]
        assert (command.action, command.scope.node, command.dry_run) == ("freeze", "n1", False)
        assert len(kinds()) == len(set(kinds()))
        others = {one.command for one in reading.of(ExecutionReport)} - {command.id}
        assert not [
            one
            for one in reading.of(ExecutionReport)
            if one.command in others and one.outcome == "done"
        ]
        assert [one.running for one in arena.truth().neighbours] == [True, True]

        assert executor.stop() == 0
        wait_until(lambda: fate().ending != "stopped", 10.0, every_s=LOOK_S, what="it is let go")
        last = wait_until(lambda: answers()[1:], 10.0, what="the word on its release")
        assert [one.outcome for one in last] == ["expired"]
