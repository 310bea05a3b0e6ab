"""Faults in kernel lines. The lines have the shapes of public bug reports; names are made up."""

import pytest

from collectors.base import FoundLine
from collectors.kernel_faults import Recogniser
from collectors.kmsg import Record
from runtime.clock import Instant

NOW = Instant.parse("2026-03-01T12:00:00Z")
SECOND_US = 1_000_000


def record(text: str, time_us: int = 0, facility: int = 0) -> Record:
    return Record(facility, 3, 1, time_us, text)


def faults(*lines: str, apart_us: int = 100) -> list[FoundLine]:
    """Return what a fresh reader finds in lines that come shortly after one another."""
    reader = Recogniser()
    taken = [reader.take(record(line, number * apart_us), NOW) for number, line in enumerate(lines)]
    return [line for line in taken if line is not None]


def fields(*lines: str, apart_us: int = 100) -> list[dict[str, str]]:
    return [line.fields for line in faults(*lines, apart_us=apart_us)]


XIDS = [
    (
        (
            "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, SM Warp Exception "
            "on (GPC 7, TPC 7, SM 0): Illegal Instruction"
        ),
        ("13", "0000:cb:00", "warning"),
    ),
    (
        (
            "NVRM: Xid (PCI:0000:01:00): 31, pid=812, Ch 00000008, intr 00000000. MMU Fault: ENGINE "
            "GRAPHICS GPCCLIENT_T1_0 faulted. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
        ),
        ("31", "0000:01:00", "warning"),
    ),
    (
        "NVRM: Xid (PCI:0000:0b:00): 43, pid=81, name=pt_main_thread, Ch 00000008",
        ("43", "0000:0b:00", "info"),
    ),
    ("NVRM: Xid (PCI:0000:0b:00): 44, pid=81, name=python3", ("44", "0000:0b:00", "info")),
    (
        "NVRM: Xid (PCI:0000:0b:00): 45, pid=81, name=python3, Ch 00000001 caused by previous Xid 149",
        ("45", "0000:0b:00", "info"),
    ),
    (
        "NVRM: Xid (PCI:0000:0b:00): 48, pid=81, DBE (double bit error) ECC Error",
        ("48", "0000:0b:00", "error"),
    ),
    (
        (
            "NVRM: Xid (PCI:0000:45:00): 63, pid=81, Row Remapper: New row marked for remapping, reset "
            "gpu to activate."
        ),
        ("63", "0000:45:00", "info"),
    ),
    ("NVRM: Xid (PCI:0000:45:00): 64, pid=81, Row Remapper: Error", ("64", "0000:45:00", "fatal")),
    (
        (
            "NVRM: Xid (PCI:0000:b4:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error "
            "detected on link 14(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
        ),
        ("74", "0000:b4:00", "error"),
    ),
    ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus", ("79", "0000:44:00", "fatal")),
    (
        "NVRM: Xid (PCI:0000:44:00): 94, pid=81, Contained ECC error",
        ("94", "0000:44:00", "warning"),
    ),
    (
        "NVRM: Xid (PCI:0000:44:00): 95, pid=81, Uncontained ECC error",
        ("95", "0000:44:00", "error"),
    ),
    (
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=81, name=nvidia-smi, Timeout waiting for RPC from GSP!",
        ("119", "0000:9b:00", "error"),
    ),
    ("NVRM: Xid (PCI:0000:9b:00): 120, pid=81, GSP task timeout", ("120", "0000:9b:00", "error")),
    (
        "NVRM: Xid (PCI:0018:01:00): 144, SAW_MVB  Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)",
        ("144", "0018:01:00", "warning"),
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR  Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)",
        ("149", "0018:01:00", "warning"),
    ),
    ("NVRM: Xid (0000:3b:00): 8, Channel 00000010", ("8", "0000:3b:00", "warning")),
    ("NVRM: Xid (PCI:0000:3b:00): 9999, something new", ("9999", "0000:3b:00", "warning")),
]


@pytest.mark.parametrize(("line", "expected"), XIDS)
def test_an_xid_is_read_with_its_gpu_and_how_bad_it_is(
    line: str, expected: tuple[str, str, str]
) -> None:
    (found,) = fields(line)
    assert (found["kind"], found["code"], found["device"], found["severity"]) == ("xid", *expected)


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


LINES = [
    (
        "INFO: task strat1_sim:78808 blocked for more than 120 seconds.",
        {"kind": "hung_task", "process": "strat1_sim", "pid": "78808", "severity": "warning"},
    ),
    (
        "INFO: task nvc:[driver]:5403 blocked for more than 120 seconds.",
        {"kind": "hung_task", "process": "nvc:[driver]", "pid": "5403"},
    ),
    (
        "INFO: task dd:77 blocked in I/O wait for more than 241 seconds.",
        {"kind": "hung_task", "process": "dd", "code": "241"},
    ),
    (
        "watchdog: BUG: soft lockup - CPU#3 stuck for 226906s! [kworker/3:1:8841]",
        {"kind": "soft_lockup", "device": "cpu3", "process": "kworker/3:1", "pid": "8841"},
    ),
    (
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12",
        {"kind": "soft_lockup", "device": "cpu12", "code": "hard"},
    ),
    ("Kernel panic - not syncing: Fatal exception", {"kind": "panic", "severity": "fatal"}),
    (
        (
            "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0 "
            "page:0x1 offset:0x0 grain:32 syndrome:0x0 -  OVERFLOW err_code:0101:0092 socket:1)"
        ),
        {
            "kind": "edac",
            "code": "UE",
            "severity": "error",
            "count": "1",
            "device": "MC3 CPU_SrcID#1_MC#1_Chan#2_DIMM#0",
        },
    ),
    (
        (
            "EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 "
            "page:0x1 OVERFLOW area:DRAM err_code:0001:0091 socket:0 ha:0)"
        ),
        {
            "kind": "edac",
            "code": "CE",
            "severity": "warning",
            "count": "262",
            "device": "MC1 CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        },
    ),
    (
        "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0 page:0x0 offset:0x0)",
        {"kind": "edac", "count": "4", "device": "MC0 CPU#0Channel#2_DIMM#0"},
    ),
    (
        "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0)",
        {"kind": "edac", "code": "CE", "count": "1"},
    ),
    (
        "{1}[Hardware Error]: event severity: recoverable",
        {"kind": "mce", "code": "recoverable", "severity": "error"},
    ),
    (
        "{2}[Hardware Error]: event severity: corrected",
        {"kind": "mce", "code": "corrected", "severity": "warning"},
    ),
    ("mce: [Hardware Error]: Machine check events logged", {"kind": "mce", "severity": "warning"}),
    (
        "mce: [Hardware Error]: CPU 5: Machine Check Exception: 5 Bank 4: be00000000800400",
        {"kind": "mce", "severity": "error", "device": "cpu5"},
    ),
    (
        "mce: [Hardware Error]: CPU 5: Machine Check: 0 Bank 7: 8c00004000010091",
        {"kind": "mce", "severity": "warning", "device": "cpu5"},
    ),
    (
        "nvme nvme1: I/O 0 QID 0 timeout, disable controller",
        {"kind": "nvme", "device": "nvme1", "severity": "error"},
    ),
    (
        "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (Read) QID 3 timeout, reset controller",
        {"kind": "nvme", "device": "nvme0", "severity": "warning", "code": "timeout"},
    ),
    ("nvme nvme0: I/O 512 QID 7 timeout, aborting", {"kind": "nvme", "code": "timeout"}),
    (
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        {"kind": "nvme", "device": "nvme0", "code": "reset"},
    ),
    (
        "nvme nvme2: Disabling device after reset failure: -19",
        {"kind": "nvme", "device": "nvme2", "severity": "error"},
    ),
    (
        "block nvme0n1: no available path - failing I/O",
        {"kind": "nvme", "device": "nvme0n1", "severity": "error"},
    ),
    (
        "EXT4-fs error (device sda1): ext4_lookup:1785: inode #2: comm ls: deleted inode referenced",
        {"kind": "filesystem", "device": "sda1", "severity": "error"},
    ),
    (
        "EXT4-fs warning (device dm-3): ext4_end_bio:343: I/O error 10 writing to inode 5",
        {"kind": "filesystem", "device": "dm-3", "severity": "warning"},
    ),
    (
        "EXT4-fs (sda1): Remounting filesystem read-only",
        {"kind": "read_only", "device": "sda1", "severity": "error"},
    ),
    (
        "BTRFS: error (device sdb) in btrfs_commit_transaction:2377: errno=-5 (forced readonly)",
        {"kind": "read_only", "device": "sdb"},
    ),
    ("BTRFS info (device sdb): forced readonly", {"kind": "read_only", "device": "sdb"}),
    (
        "XFS (nvme0n1p1): Corruption of in-memory data detected.  Shutting down filesystem",
        {"kind": "filesystem", "device": "nvme0n1p1", "severity": "error"},
    ),
    (
        "XFS (dm-0): Filesystem has been shut down due to log error (0x2).",
        {"kind": "filesystem", "device": "dm-0"},
    ),
    (
        "XFS (dm-0): Metadata corruption detected at xfs_agi_verify+0x1/0x2 [xfs]",
        {"kind": "filesystem", "device": "dm-0"},
    ),
    (
        "Buffer I/O error on dev sdc1, logical block 0, async page read",
        {"kind": "io_error", "device": "sdc1", "severity": "error"},
    ),
    ("Buffer I/O error on device sdc1, logical block 0", {"kind": "io_error", "device": "sdc1"}),
    (
        "blk_update_request: I/O error, dev sdc, sector 2048 op 0x0:(READ) flags 0x0",
        {"kind": "io_error", "device": "sdc", "severity": "error"},
    ),
    (
        "I/O error, dev nvme0n1, sector 2048 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
        {"kind": "io_error", "device": "nvme0n1"},
    ),
    (
        "critical medium error, dev sdd, sector 99 op 0x0:(READ)",
        {"kind": "io_error", "device": "sdd"},
    ),
    (
        "Buffer I/O error on dev fd0, logical block 0, async page read",
        {"kind": "io_error", "device": "fd0", "severity": "info"},
    ),
    ("attempt to access beyond end of device", {"kind": "io_error"}),
    (
        "mount: attempt to access beyond end of device\nsda1: rw=1, sector=8, nr_sectors = 8 limit=4",
        {"kind": "io_error", "device": "sda1"},
    ),
    ("EXT4-fs (sda1): I/O error while writing superblock", {"kind": "io_error", "device": "sda1"}),
    (
        "md/raid1:md0: Disk failure on sda1, disabling device.",
        {"kind": "raid", "device": "md0", "code": "sda1"},
    ),
    (
        "nfs: server store-1 not responding, still trying",
        {"kind": "nfs", "device": "store-1", "severity": "warning"},
    ),
    ("nfs: server store-1 OK", {"kind": "nfs", "device": "store-1", "clears": "nfs"}),
    ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", {"kind": "link", "device": "mlx5_5"}),
    ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT", None),
    (
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
        {"kind": "link", "device": "mlx5_5", "clears": "link"},
    ),
    (
        "mlx5_core 0000:d2:00.0 enp1s0f0np0: Link down",
        {"kind": "link", "device": "enp1s0f0np0", "severity": "warning"},
    ),
    ("igb 0000:05:00.0 eth0: igb: eth0 NIC Link is Down", {"kind": "link", "device": "eth0"}),
    (
        "e1000e 0000:00:19.0 eno1: NIC Link is Up 1000 Mbps Full Duplex",
        {"kind": "link", "device": "eno1", "clears": "link"},
    ),
    ("r8169 0000:02:00.0 eth0: Link is Down", {"kind": "link", "device": "eth0"}),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_known_fault_is_recognised_with_what_it_names(
    line: str, expected: dict[str, str] | None
) -> None:
    found = fields(line)
    seen = [{name: one.get(name) for name in expected or {}} for one in found]
    assert seen == ([] if expected is None else [expected])


NO_FAULTS = [
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  550.54.15",
    "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    "CMCI storm detected: switching to poll mode",
    "workqueue: ib_cache_event_task [ib_core] hogged CPU for >10000us 4 times",
    "pt_main_thread[81]: segfault at 0 ip 0 sp 0 error 4 in libnccl.so.2[7f0000000000+1000]",
    "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed",
    "uwsgi invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Quota mode: none.",
    "EXT4-fs (sda1): re-mounted. Opts: errors=remount-ro",
    "XFS (sdb1): Ending clean mount",
    "ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "systemd[1]: Killed unit foo.service",
    "",
]


@pytest.mark.parametrize("line", NO_FAULTS)
def test_an_ordinary_line_is_no_fault(line: str) -> None:
    assert fields(line) == []


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
