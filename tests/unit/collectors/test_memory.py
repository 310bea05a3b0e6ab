"""The node's memory; whole machines are in tests/golden/test_machines.py."""

from pathlib import Path

import pytest

from collectors.memory import Settings, build
from runtime.errors import Unavailable
from tests.unit.collectors.machine import NOW, Machine, values


def test_a_number_that_the_kernel_does_not_print_is_absent_and_not_zero(tmp_path: Path) -> None:
    machine = Machine(tmp_path).write("/proc/meminfo", "MemTotal: 1024 kB\nMemFree: 512 kB\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert [tuple(sample) for sample in reading.samples] == [
        ("memory_total_bytes", "", 1024 * 1024)
    ]


def test_a_node_without_a_readable_meminfo_is_an_error_to_be_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path).remove("/proc")
    with pytest.raises(Unavailable, match="/proc/meminfo"):
        build(Settings(), machine.tree).collect(NOW)


def test_refaults_of_kernels_before_5_9_are_taken_from_their_one_counter(tmp_path: Path) -> None:
    machine = Machine(tmp_path).write("/proc/vmstat", "workingset_refault 7\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert values(reading, "memory_refaults_total") == {"": 7}


def test_numbers_in_another_shape_are_passed_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write(
        "/proc/meminfo", "MemTotal: many kB\nMemAvailable: -5 kB\nShmem: 8\nAnonPages: 4 kB\n"
    )
    machine.write("/proc/vmstat", "oom_kill\npswpin ten\n")
    machine.write("/proc/pressure/memory", "full avg10=? avg60=0 total=1\n")
    reading = build(Settings(), machine.tree).collect(NOW)
    assert [tuple(sample) for sample in reading.samples] == [("memory_anonymous_bytes", "", 4096)]
