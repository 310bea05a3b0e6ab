"""CPU quotas and memory limits of real groups: lowered, read back, put back."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from executors.process import Settings
from runtime.process import start
from tests.unit.executors.machine import CLOCK, Box, boxes, children, executor, wish

MIB = 1 << 20


@pytest.fixture
def box() -> Iterator[Box]:
    """A box of the v1 memory and cpu hierarchies, limited to 64 MiB, with 16 MiB in use."""
    script = "import sys; sys.stdin.readline(); x = bytearray(16 << 20); print(len(x), flush=True)"
    with boxes("memory", "cpu") as (made,):
        (made.folder / "memory.limit_in_bytes").write_text(str(64 * MIB))
        with start([sys.executable, "-c", script + "; sys.stdin.read()"], output="pipe") as child:
            made.take(child.pid)
            child.send(b"go\n")
            assert next(child.lines()) == str(16 * MIB)
            yield made
            child.kill()


def test_a_throttled_container_gets_a_share_of_a_cpu_until_it_is_lifted(
    box: Box, tmp_path: Path
) -> None:
    acting = executor(tmp_path, Settings(own_cgroups=(box.path,), throttle_percent=20))
    verdict = acting.act(wish("throttle", box), CLOCK.now())
    period = int(box.read("cpu", "cpu.cfs_period_us"))
    assert verdict.outcome == "done"
    assert int(box.read("cpu", "cpu.cfs_quota_us")) == period // 5
    acting.lift("c1", CLOCK.now())
    assert box.read("cpu", "cpu.cfs_quota_us") == "-1"


def test_a_tighter_quota_is_not_touched(box: Box, tmp_path: Path) -> None:
    (box.folders["cpu"] / "cpu.cfs_quota_us").write_text("5000")
    acting = executor(tmp_path, Settings(own_cgroups=(box.path,), throttle_percent=20))
    assert acting.act(wish("throttle", box), CLOCK.now()).outcome == "refused"
    assert (box.read("cpu", "cpu.cfs_quota_us"), acting.held()) == ("5000", [])


def test_without_a_group_of_its_own_throttling_is_refused_with_the_reason(tmp_path: Path) -> None:
    with children(1) as (child,):
        acting = executor(tmp_path, Settings(own_descendants_of=("self",)))
        verdict = acting.act(wish("throttle", child), CLOCK.now())
        assert verdict.outcome == "refused"
        assert "no cgroup of its own with a CPU quota" in verdict.detail


FILES = {"soft": "memory.soft_limit_in_bytes", "hard": "memory.limit_in_bytes"}


@pytest.mark.parametrize("kind", FILES)
def test_a_limit_is_lowered_and_put_back(box: Box, kind: str, tmp_path: Path) -> None:
    before = box.read("memory", FILES[kind])
    acting = executor(tmp_path, Settings(own_cgroups=(box.path,), limit=kind))  # type: ignore[arg-type]  # one of the two
    verdict = acting.act(wish("limit", box, limit_bytes=str(32 * MIB)), CLOCK.now())
    assert (verdict.outcome, box.read("memory", FILES[kind])) == ("done", str(32 * MIB))
    acting.close(CLOCK.now())
    assert box.read("memory", FILES[kind]) == before


@pytest.mark.parametrize("limit_bytes", [8 * MIB, 64 * MIB, 1 << 40])
def test_a_limit_below_what_is_used_or_above_what_is_there_is_refused(
    box: Box, limit_bytes: int, tmp_path: Path
) -> None:
    acting = executor(tmp_path, Settings(own_cgroups=(box.path,), limit="hard"))
    verdict = acting.act(wish("limit", box, limit_bytes=str(limit_bytes)), CLOCK.now())
    assert verdict.outcome == "refused"
    assert box.read("memory", FILES["hard"]) == str(64 * MIB)


def test_without_a_wish_the_limit_lies_a_little_above_what_is_used(
    box: Box, tmp_path: Path
) -> None:
    settings = Settings(own_cgroups=(box.path,), limit_headroom_percent=50)
    verdict = executor(tmp_path, settings).act(wish("limit", box), CLOCK.now())
    limited = int(box.read("memory", FILES["soft"]))
    assert verdict.outcome == "done"
    assert 20 * MIB < limited < 40 * MIB


def test_what_somebody_else_changed_since_is_left_as_it_is(box: Box, tmp_path: Path) -> None:
    acting = executor(tmp_path, Settings(own_cgroups=(box.path,), limit="hard"))
    acting.act(wish("limit", box, limit_bytes=str(32 * MIB)), CLOCK.now())
    (box.folder / FILES["hard"]).write_text(str(48 * MIB))
    verdict = acting.lift("c1", CLOCK.now())
    assert "changed by somebody else" in verdict.detail
    assert box.read("memory", FILES["hard"]) == str(48 * MIB)
