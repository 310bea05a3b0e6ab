"""The collectors on the kernel of this machine, whatever its layout."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors import cgroup, kernel_log, memory, process
from collectors.base import FoundLine
from collectors.cgroups import Host, Limits, find_layout, memory_group_of
from collectors.kernel_text import sizes
from runtime.clock import SystemClock
from runtime.errors import Unavailable
from runtime.files import SysTree
from runtime.process import Running, run, start
from runtime.wait import wait_until
from tests.unit.collectors.machine import MIB, by_path, values

TREE = SysTree()
CLOCK = SystemClock()
SOON_S = 20.0
HOLDS = 64 * MIB
ROOT = Path(__file__).parents[3]
NOBODY = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# Waits to be told, then maps and touches its memory, says so, and stays until its input ends.
ALLOCATE = """
import mmap, sys
sys.stdin.readline()
held = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held[::4096] = bytes([1]) * (len(held) // 4096)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child() -> Iterator[Running]:
    """A process that waits to be told to allocate."""
    argv = [sys.executable, "-I", "-c", ALLOCATE, str(HOLDS)]
    with start(argv, output="pipe") as running:
        yield running


def allocate(child: Running) -> None:
    child.send(b"go\n")
    assert next(child.lines()) == "held"


@pytest.fixture
def group() -> Iterator[str]:
    """A group of our own in the hierarchy that accounts for memory: its path."""
    layout = find_layout(TREE)
    if layout.memory is None:
        pytest.skip(f"no group can be made here: {layout.problem}")
    parent = layout.memory.root
    path = f"{parent.rstrip('/')}/farside-test-{os.getpid()}"
    folder = Path(layout.memory.folder(path) or "")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made here: {error}")
    if not (folder / "memory.stat").exists():
        folder.rmdir()
        pytest.skip("the root group does not hand its memory controller down")
    yield path

    def gone() -> bool:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    wait_until(gone, SOON_S, what="removing the test's group")


def test_a_group_is_seen_with_what_its_process_holds_and_its_limit(
    group: str, child: Running
) -> None:
    layout = find_layout(TREE)
    assert layout.memory is not None
    folder = layout.memory.folder(group)
    limit_file = "memory.max" if layout.v2 else "memory.limit_in_bytes"
    TREE.write_text(f"{folder}/{limit_file}", str(256 * MIB))
    TREE.write_text(f"{folder}/cgroup.procs", str(child.pid))
    allocate(child)
    collector = cgroup.build(cgroup.Settings(groups_max=10_000), TREE)

    def held() -> float:
        # The kernel adds up its counters within two seconds.
        reading = collector.collect(CLOCK.now())
        found = by_path(reading, "container_memory_unreclaimable_bytes").get(group, 0.0)
        return found if found >= 0.95 * HOLDS else 0.0

    found = wait_until(held, SOON_S, what="64 MiB in the test's group")
    limits = by_path(collector.collect(CLOCK.now()), "container_memory_limit_bytes")
    child.stop()
    assert found < 1.5 * HOLDS
    # With swap the group may hold more than its limit on memory: that room counts.
    assert limits[group] >= 256 * MIB


def test_a_process_is_seen_with_what_it_holds_and_is_gone_when_it_ends(child: Running) -> None:
    collector = process.Processes(process.Settings(rescan_s=0.1), TREE)
    if _limited(child.pid):
        pytest.skip("the tests run below a container's memory limit: judged with the container")
    allocate(child)
    now = CLOCK.now()
    private = values(collector.collect(now), "process_private_bytes")
    (device,) = [one for one in private if one.rsplit(":", 2)[1] == str(child.pid)]
    child.stop()
    after = values(collector.collect(now), "process_private_bytes")
    collector.close()
    assert HOLDS <= private[device] < 2 * HOLDS
    assert device not in after


def _limited(pid: int) -> bool:
    layout = find_layout(TREE)
    path = memory_group_of(TREE, layout, pid)
    host = Host.of(sizes(TREE.read_text("/proc/meminfo")))
    return path is not None and Limits(TREE, layout, host).of(path) is not None


def test_the_nodes_own_numbers_are_there_and_plausible() -> None:
    reading = memory.build(memory.Settings(), TREE).collect(CLOCK.now())
    one = {sample.metric: sample.value for sample in reading.samples}
    assert 0 < one["memory_unreclaimable_bytes"] < one["memory_total_bytes"]
    assert 0 < one["memory_available_bytes"] <= one["memory_total_bytes"]


def test_a_line_in_the_kernel_log_comes_back_as_a_fault() -> None:
    log = kernel_log.KernelLog(kernel_log.Settings(), TREE)
    if unseen := log.cannot_see():
        pytest.skip(unseen[0])
    server = f"farside-test-{os.getpid()}"
    try:
        TREE.write_text("/dev/kmsg", f"<4>nfs: server {server} not responding, still trying\n")
    except Unavailable as error:
        log.close()
        pytest.skip(f"this user may not write into the kernel log: {error}")
    before = CLOCK.now()
    found: list[FoundLine] = []

    def arrived() -> bool:
        log.wait(0.5)
        found.extend(
            line for line in log.collect(CLOCK.now()).lines if line.fields.get("device") == server
        )
        return bool(found)

    wait_until(arrived, SOON_S, what="the line in the kernel log")
    log.close()
    # Whoever else reads this machine's log shall not wait for a server that never was.
    TREE.write_text("/dev/kmsg", f"<4>nfs: server {server} OK\n")
    (line,) = found
    assert (line.fields["kind"], line.fields["severity"]) == ("nfs", "warning")
    assert abs(line.time.since(before)) < SOON_S


SAY = """
from collectors import cgroup, kernel_log, memory, process
from runtime.clock import SystemClock
from runtime.files import SysTree
for module in (memory, cgroup, process, kernel_log):
    collector = module.build(module.Settings(), SysTree())
    reading = collector.collect(SystemClock().now())
    print(module.__name__, len(reading.samples) > 0, *collector.cannot_see(), sep="|")
"""


def test_a_user_without_rights_sees_memory_and_is_told_what_it_does_not_see() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not Path(NOBODY[0]).exists():
        pytest.skip("setpriv is not installed")
    done = run([*NOBODY, sys.executable, "-c", SAY], SOON_S, cwd=ROOT)
    if "No module named" in done.err or "Permission denied" in done.err:
        pytest.skip("a user without rights may not read this checkout")
    assert (done.code, done.err) == (0, "")
    said = {line.split("|")[0]: line.split("|")[1:] for line in done.out.splitlines()}
    assert said["collectors.memory"][0] == "True"
    restricted = TREE.read_text("/proc/sys/kernel/dmesg_restrict").strip() == "1"
    if restricted:
        (_, sentence) = said["collectors.kernel_log"]
        assert "/dev/kmsg: operation not permitted (run farside as root or" in sentence
