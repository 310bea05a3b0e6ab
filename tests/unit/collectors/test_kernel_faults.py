"""Faults in kernel lines: those of kernel_lines.toml, and events of several lines."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from collectors.base import FoundLine
from collectors.kernel_faults import Recogniser
from collectors.kmsg import Record
from runtime.clock import Instant

NOW = Instant.parse("2026-03-01T12:00:00Z")
SECOND_US = 1_000_000
LINES: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("kernel_lines.toml").read_text("utf-8")
)["lines"]


def record(text: str, time_us: int = 0, facility: int = 0) -> Record:
    return Record(facility, 3, 1, time_us, text)


def faults(*lines: str, apart_us: int = 100) -> list[FoundLine]:
    """Return what a fresh reader finds in lines that come shortly after one another."""
    reader = Recogniser()
    taken = [reader.take(record(line, number * apart_us), NOW) for number, line in enumerate(lines)]
    return [line for line in taken if line is not None]


def fields(*lines: str, apart_us: int = 100) -> list[dict[str, str]]:
    return [line.fields for line in faults(*lines, apart_us=apart_us)]


@pytest.mark.parametrize("case", LINES, ids=[case["text"][:60] for case in LINES])
def test_a_line_is_read_for_what_it_is(case: dict[str, Any]) -> None:
    wanted = case.get("fields")
    seen = [{name: one.get(name) for name in wanted or one} for one in fields(case["text"])]
    assert seen == ([] if wanted is None else [wanted])


@pytest.mark.parametrize(
    ("change", "severity", "clears"),
    [
        ("0x0 (None) to 0x4 (Drain and Reset)", "error", None),
        ("0x0 (None) to 0x1 (GPU Reset Required)", "error", None),
        ("0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)", "fatal", None),
        ("0x4 (Drain and Reset) to 0x0 (None)", "info", "xid"),
    ],
)
def test_what_the_driver_recommends_is_read_and_withdrawn_again(
    change: str, severity: str, clears: str | None
) -> None:
    (found,) = fields(f"NVRM: Xid (PCI:0000:44:00): 154, GPU recovery action changed from {change}")
    assert (found["severity"], found.get("clears")) == (severity, clears)


def test_a_gpu_off_the_bus_is_one_fault_in_however_many_words() -> None:
    found = fields(
        "NVRM: Xid (PCI:0000:44:00): 79, pid=1, name=x, GPU has fallen off the bus.",
        "NVRM: GPU 0000:44:00.0: GPU has fallen off the bus.",
        "NVRM: GPU 0000:44:00.0: GPU serial number is 1234.",
    )
    assert [(one["kind"], one["device"]) for one in found] == [("xid", "0000:44:00")]


def test_a_gpu_off_the_bus_is_read_from_three_lines_without_an_xid() -> None:
    found = fields(
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [(one["kind"], one["device"], one["severity"]) for one in found] == [
        ("gpu_off_bus", "0000:b3:00", "fatal")
    ]


def test_two_gpus_off_the_bus_are_two_faults() -> None:
    found = fields(
        "NVRM: GPU 0000:44:00.0: GPU has fallen off the bus.",
        "NVRM: GPU 0000:45:00.0: GPU has fallen off the bus.",
    )
    assert [one["device"] for one in found] == ["0000:44:00", "0000:45:00"]


OOM_NEW = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-1.scope,"
    "mems_allowed=0-1,3,oom_memcg=/kubepods.slice/pod1,task_memcg=/kubepods.slice/pod1/c,1,"
    "task=pt_main_thread,pid=4711,uid=0"
)


def test_an_oom_kill_of_a_group_is_one_fault_with_group_process_and_pid() -> None:
    found = fields(
        "trainer invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986",
        OOM_NEW,
        "Memory cgroup out of memory: Killed process 4711 (pt_main_thread) total-vm:4478432kB, "
        "anon-rss:517656kB, file-rss:47148kB, shmem-rss:0kB, UID:0 pgtables:1636kB "
        "oom_score_adj:-997",
        "oom_reaper: reaped process 4711 (pt_main_thread), now anon-rss:0kB, file-rss:0kB, "
        "shmem-rss:0kB",
    )
    assert [
        (one["kind"], one["cgroup"], one["victim_cgroup"], one["process"], one["pid"])
        for one in found
    ] == [
        ("oom_kill", "/kubepods.slice/pod1", "/kubepods.slice/pod1/c,1", "pt_main_thread", "4711")
    ]


def test_an_oom_kill_of_the_whole_node_names_no_group_as_the_cause() -> None:
    (found,) = fields(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        "task_memcg=/user.slice,task=perl,pid=99,uid=1000",
        "Out of memory: Killed process 99 (perl) total-vm:87033376kB, anon-rss:60356340kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:169956kB oom_score_adj:0",
    )
    assert ("cgroup" in found, found["victim_cgroup"], found["process"]) == (
        False,
        "/user.slice",
        "perl",
    )


def test_in_the_old_form_the_victim_is_the_child_that_was_really_killed() -> None:
    found = fields(
        "Task in /kubepods.slice/pod7/c killed as a result of limit of /kubepods.slice/pod7",
        "memory: usage 1048576kB, limit 1048576kB, failcnt 189",
        "Memory cgroup out of memory: Kill process 24572 (java) score 0 or sacrifice child",
        "Killed process 28438 (java) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
    )
    assert [(one["pid"], one["process"], one["cgroup"]) for one in found] == [
        ("28438", "java", "/kubepods.slice/pod7")
    ]


def test_a_victim_whose_end_no_line_tells_is_told_after_a_second() -> None:
    reader = Recogniser()
    name = "runc:[2:INIT]"
    line = f"Memory cgroup out of memory: Kill process 1249 ({name}) score 978 or sacrifice child"
    at_once = reader.take(record(line), NOW)
    early = list(reader.overdue(NOW, SECOND_US // 2))
    (late,) = reader.overdue(NOW, SECOND_US)
    again = list(reader.overdue(NOW, 9 * SECOND_US))
    assert (at_once, early, late.fields["process"], again) == (None, [], name, [])


def test_the_same_process_number_a_minute_later_is_another_kill() -> None:
    line = "Memory cgroup out of memory: Killed process 5 (a) total-vm:1kB, anon-rss:1kB"
    assert len(faults(line, line, apart_us=60 * SECOND_US)) == 2


def test_a_line_that_a_program_wrote_into_the_log_says_so() -> None:
    line = Recogniser().take(record("NVRM: Xid (PCI:0000:44:00): 79, test", facility=1), NOW)
    assert line is not None
    assert line.fields["writer"] == "a program, not the kernel"


def test_text_and_fields_are_safe_to_print() -> None:
    (line,) = faults("INFO: task \x1b[2Jx:5 blocked for more than 120 seconds.")
    assert (line.text, line.fields["process"]) == (
        "INFO: task \\x1b[2Jx:5 blocked for more than 120 seconds.",
        "\\x1b[2Jx",
    )
