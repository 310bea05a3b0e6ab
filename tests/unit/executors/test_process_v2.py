"""cgroup v2 alone, on a composed kernel: which files are written, and what stays untouched."""

from pathlib import Path

import pytest
from msgspec import structs

from bus.messages import Action, IsolationCommand, Scope
from executors.base import Context
from executors.process import ProcessExecutor, Settings
from runtime.clock import ManualClock
from tests.unit.executors.commands import NODE, START, command
from tests.unit.executors.kernel import OWN_PID, POINT, Kernel

JOB = "/jobs.slice/7"


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path / "root")
    made.group(JOB, 501, 502)
    made.group(f"{JOB}/step", 503)
    made.group("/jobs.slice/8", 601)
    return made


def ours(kernel: Kernel, **changes: object) -> ProcessExecutor:
    settings = Settings(own_cgroups=("/jobs.slice",), **changes)  # type: ignore[arg-type]  # checked by msgspec
    context = Context(tree=kernel, clock=ManualClock(START), node=NODE, own_pid=OWN_PID)
    return ProcessExecutor(settings, context, kernel.signals)


def wish(kernel: Kernel, action: Action, path: str = JOB, **changes: str) -> IsolationCommand:
    inode = str(kernel.inode(f"{POINT}{path}"))
    precondition = {"boot": "composed-boot", "cgroup": path, "inode": inode, **changes}
    scope = Scope("container", "a", NODE, f"{path}@{inode}")
    return structs.replace(command(action, action), scope=scope, precondition=precondition)


def test_freezing_writes_the_groups_own_file_and_sends_no_signal(kernel: Kernel) -> None:
    acting = ours(kernel)
    assert acting.act(wish(kernel, "freeze"), START).outcome == "done"
    assert [kernel.value(path, "cgroup.freeze") for path in (JOB, "/jobs.slice/8")] == ["1", "0"]
    acting.close(START)
    assert kernel.value(JOB, "cgroup.freeze") == "0"
    assert kernel.signals.sent == []


def test_reclaim_writes_cgroup_kill_and_sees_the_groups_below_gone_too(kernel: Kernel) -> None:
    acting = ours(kernel)
    verdict = acting.act(wish(kernel, "reclaim"), START)
    assert (verdict.outcome, kernel.value(JOB, "cgroup.kill")) == ("done", "1")
    assert [kernel.state(pid) for pid in (501, 502, 503, 601)] == ["", "", "", "S"]


def test_a_process_whose_main_thread_alone_ended_is_not_taken_for_gone(kernel: Kernel) -> None:
    kernel.main_thread_ends(601)
    verdict = ours(kernel).act(wish(kernel, "reclaim", "/jobs.slice/8"), START)
    assert (verdict.outcome, kernel.state(601)) == ("done", "")


def test_throttling_lowers_cpu_max_and_puts_it_back(kernel: Kernel) -> None:
    acting = ours(kernel, throttle_percent=25)
    assert acting.act(wish(kernel, "throttle"), START).outcome == "done"
    assert kernel.value(JOB, "cpu.max") == "25000 100000"
    acting.close(START)
    assert kernel.value(JOB, "cpu.max") == "max 100000"


@pytest.mark.parametrize(("limit", "file"), [("soft", "memory.high"), ("hard", "memory.max")])
def test_limiting_lowers_the_file_of_its_kind_and_puts_it_back(
    kernel: Kernel, limit: str, file: str
) -> None:
    before = {name: kernel.value(JOB, name) for name in ("memory.high", "memory.max")}
    acting = ours(kernel, limit=limit)
    wished = wish(kernel, "limit", limit_bytes="33554432")
    assert acting.act(wished, START).outcome == "done"
    after = {name: kernel.value(JOB, name) for name in before}
    assert after == {**before, file: "33554432"}
    acting.close(START)
    assert {name: kernel.value(JOB, name) for name in before} == before


def test_a_group_without_a_cpu_controller_can_not_be_throttled(kernel: Kernel) -> None:
    kernel.path_of(f"{POINT}{JOB}/cpu.max").unlink()
    verdict = ours(kernel).act(wish(kernel, "throttle"), START)
    assert (verdict.outcome, "lacks that controller" in verdict.detail) == ("refused", True)


def test_processes_of_another_pid_namespace_are_refused(kernel: Kernel) -> None:
    kernel.path_of(f"{POINT}{JOB}/cgroup.procs").write_text("0\n501\n")
    verdict = ours(kernel).act(wish(kernel, "freeze"), START)
    assert (verdict.outcome, "another pid namespace" in verdict.detail) == ("refused", True)


def test_a_freeze_that_the_kernel_does_not_confirm_is_undone_and_can_be_tried_again(
    kernel: Kernel,
) -> None:
    acting = ours(kernel)
    events = kernel.path_of(f"{POINT}{JOB}/cgroup.events")
    events.unlink()
    with pytest.raises(Exception, match="not so within"):
        acting.act(wish(kernel, "freeze"), START)
    assert (kernel.value(JOB, "cgroup.freeze"), acting.held()) == ("0", [])
    events.write_text("frozen 0")
    assert acting.act(wish(kernel, "freeze"), START).outcome == "done"


def test_what_was_held_before_the_machine_restarted_is_held_no_longer(kernel: Kernel) -> None:
    acting = ours(kernel)
    acting.act(wish(kernel, "freeze"), START)
    kernel.path_of("/proc/sys/kernel/random/boot_id").write_text("next-boot")
    (sentence,) = acting.settle(START)
    assert (acting.held(), "machine was restarted" in sentence) == ([], True)
