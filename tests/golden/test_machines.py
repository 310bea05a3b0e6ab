"""Whole machines, recorded or composed, and what the collectors make of them.

Each folder under machines/ holds the machine (root/), where it comes from (PROVENANCE) and what is
to be seen of it (expected.json, derived without the collectors).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from bus.signals import catalogue
from collectors import cgroup, kernel_log, memory, process
from collectors.base import Collector, FoundLine
from runtime.clock import Instant
from runtime.files import SysTree

MACHINES = Path(__file__).parent / "machines"
NAMES = sorted(folder.name for folder in MACHINES.iterdir() if folder.is_dir())
NOW = Instant.parse("2026-03-01T12:00:00Z")


class Seen:
    """One look of all collectors at a machine, and the sentences about what they missed."""

    def __init__(self, name: str) -> None:
        tree = SysTree(MACHINES / name / "root")
        collectors: list[Collector] = [
            memory.build(memory.Settings(), tree),
            cgroup.build(cgroup.Settings(), tree),
            process.build(process.Settings(), tree),
            kernel_log.build(kernel_log.Settings(from_start=True), tree),
        ]
        readings = [collector.collect(NOW) for collector in collectors]
        self.samples = [sample for reading in readings for sample in reading.samples]
        self.lines: list[FoundLine] = [line for reading in readings for line in reading.lines]
        self.cannot_see = [one for collector in collectors for one in collector.cannot_see()]


def expected(name: str) -> Any:  # noqa: ANN401  # whatever the file holds is what is compared
    return json.loads((MACHINES / name / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_of_the_machine_is_what_awk_makes_of_its_files(name: str) -> None:
    seen = sorted(
        # The inode of a group is that of this checkout's folder: the path is what is compared.
        [metric, device.rsplit("@", 1)[0] if metric.startswith("container_") else device, value]
        for metric, device, value in Seen(name).samples
    )
    assert seen == expected(name)["samples"]


@pytest.mark.parametrize("name", NAMES)
def test_the_faults_in_its_kernel_log_are_recognised_with_their_moments(name: str) -> None:
    seen = [{"time": line.time.text(), "fields": line.fields} for line in Seen(name).lines]
    assert seen == expected(name)["lines"]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_machine_hides_is_said_in_one_sentence_each(name: str) -> None:
    assert Seen(name).cannot_see == expected(name)["cannot_see"]


@pytest.mark.parametrize("name", NAMES)
def test_only_signals_of_the_catalogue_are_sent(name: str) -> None:
    known = catalogue().signals
    assert [sample for sample in Seen(name).samples if sample.metric not in known] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_says_where_it_comes_from(name: str) -> None:
    text = (MACHINES / name / "PROVENANCE").read_text("utf-8")
    assert text.startswith(("Recorded", "Composed"))
