"""Cells shared by a group of scorers: each is owned once, and restored where it goes."""

from pathlib import Path

from bus.messages import LogLine, Watermark
from bus.topics import SUSPICIONS, TELEMETRY
from bus.transport import Sink
from deploy.kafka.cluster import Cluster
from runtime.clock import SystemClock
from runtime.errors import Unavailable
from runtime.wait import wait_until
from tests.system.processes import Fleet, Process, Reading

CELLS = "[bus.cells]\na = 0\nb = 1\n"


def line(node: str, sequence: int) -> LogLine:
    return LogLine(
        cluster="test",
        node=node,
        boot="boot",
        start="start",
        sequence=sequence,
        time=SystemClock().now(),
        source="kernel",
        text="nothing of interest",
    )


def send(sink: Sink, sequence: int) -> None:
    for partition, node in enumerate(("in-a", "in-b")):
        sink.send(TELEMETRY, node, line(node, sequence), partition)
    sink.flush(10.0)


def owner(*processes: Process) -> dict[int, Process]:
    """Tell who said last that a partition is its own."""
    found: dict[int, Process] = {}
    for process in processes:
        for text in list(process.lines):
            for partition in (0, 1):
                if f"partition={partition}" in text and "a cell is ours" in text:
                    found[partition] = process
    return found


def test_each_cell_goes_on_where_it_was_when_its_scorer_is_killed(
    kafka: Cluster, tmp_path: Path
) -> None:
    kafka.heal()
    kafka.renew_topics(cells=2)
    arguments = ("--group", "scorers", "--no-decider")
    with (
        Fleet(tmp_path, kafka.bootstrap, "session_s = 6.0") as fleet,
        Reading(fleet, SUSPICIONS) as reading,
    ):
        sink = fleet.bus("writer").sink()
        one = fleet.role("detect", toml=CELLS, arguments=arguments)
        one.says("partition=0")
        one.says("partition=1")
        two = fleet.role("detect", toml=CELLS, arguments=arguments)
        two.says("a cell is ours", 90.0)
        wait_until(lambda: connected(sink), 30.0)
        send(sink, 1)
        wait_until(lambda: judged(reading) == {"a", "b"}, 60.0, what="both cells are judged")

        seen = len(reading.of(Watermark))
        two.kill()
        one.says("a cell was given back")
        wait_until(lambda: set(owner(one)) == {0, 1}, 90.0, what="the other one takes over")
        send(sink, 2)
        wait_until(
            lambda: {mark.cell for mark in reading.of(Watermark)[seen:]} == {"a", "b"},
            90.0,
            what="both cells go on",
        )
        assert one.stop() == 0
        sink.close(1.0)


def connected(sink: Sink) -> bool:
    try:
        sink.flush(0.1)
        sink.send(TELEMETRY, "in-a", line("in-a", 0), 0)
    except Unavailable:
        return False
    return True


def judged(reading: Reading) -> set[str]:
    return {mark.cell for mark in reading.of(Watermark)}
