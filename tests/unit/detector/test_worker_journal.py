"""The worker and its journal: synced before anything is published, repeated after a crash."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus.topics import REPORTS
from detector.journal import Journal
from tests.unit.detector.company import Killed, Killer
from tests.unit.detector.troubled import Bench, Parrot


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_while_the_journal_cannot_be_written_nothing_is_published(bench: Bench) -> None:
    bench.journal_folder = bench.folder / "away"
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    seen: list[list[str]] = []

    def mend() -> None:
        seen.append(bench.said())
        bench.journal_folder.mkdir()

    bench.clock.then = {4: mend}
    with capture_logs() as lines:
        worker.turn(bench.stop)
    assert seen == [[]]
    assert bench.said() == ["a1"]
    assert [line["event"] for line in lines] == [
        "the journal can't be written, so nothing is published",
        "over",
    ]
    assert bench.metrics.value("farside_journal_failures_total", worker="parrot") >= 2


def test_asked_to_stop_before_the_journal_is_written_nothing_is_published_or_saved(
    bench: Bench,
) -> None:
    bench.journal_folder = bench.folder / "away"
    bench.order("a")
    bench.clock.then = {2: bench.stop.set}
    bench.worker().run(bench.stop)
    assert (bench.said(), bench.saved()) == ([], None)


def test_turns_without_output_are_synced_with_the_next_one_or_the_checkpoint(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a", kind="label")
    worker.turn()
    assert turns(bench) == []
    bench.order("b")
    worker.turn()
    assert turns(bench) == [1, 2]
    bench.order("c", kind="label")
    worker.turn()
    worker.save()
    assert turns(bench) == [1, 2, 3]


def turns(bench: Bench) -> list[int]:
    return [found.turn.turn for found in Journal(bench.folder, "parrot").read() if found.turn]


def test_the_order_of_two_topics_is_repeated_as_it_was_taken(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("r", topic=REPORTS)
    worker.turn()
    bench.order("d")
    worker.turn()
    assert bench.said() == ["r1", "d2"]
    bench.worker().restore()  # without the journal it would take the directives first
    assert bench.said() == ["r1", "d2", "r1", "d2"]


def test_what_the_log_no_longer_holds_is_counted_told_and_passed_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path, records_max=2)
    worker = bench.worker()
    worker.restore()
    for name in "abcd":
        bench.order(name)
        worker.turn()
    with capture_logs() as lines:
        bench.worker().restore()
    assert bench.metrics.value("farside_journal_gone_total", worker="parrot") == 2
    assert [line["why"] for line in lines if line["event"] == "journal"] == [
        f"turn {turn}: 1 of 1 records are no longer in the log (farside.directives 0: offset {at})"
        for turn, at in ((1, 0), (2, 1))
    ]
    assert bench.said()[-2:] == ["c1", "d2"]


def test_the_journal_of_another_log_is_not_repeated_and_that_is_said(bench: Bench) -> None:
    worker = bench.worker()
    worker.restore()
    bench.order("a")
    worker.turn()
    bench.bus.identity = "another"
    core = Parrot()
    with capture_logs() as lines:
        bench.worker(core).restore()
    assert core.heard == 0
    assert [line["event"] for line in lines] == ["the journal is of another log and not repeated"]


def test_without_its_checkpoint_what_the_journal_does_not_hold_is_judged_first(
    bench: Bench,
) -> None:
    worker = bench.worker()
    worker.restore()
    for name in "abc":
        bench.order(name)
        worker.turn()
    line = next(bench.folder.glob("parrot.journal.*"))
    line.write_bytes(b"".join(line.read_bytes().splitlines(keepends=True)[1:]))
    with capture_logs() as lines:
        bench.worker().restore()
    assert bench.said()[3:] == ["a1", "b2", "c3"]
    assert [line["event"] for line in lines] == ["journal", "repeated"]


def test_a_worker_that_crashed_before_it_ever_saved_takes_everything_again(bench: Bench) -> None:
    bench.journal_folder = bench.folder
    core = Parrot()
    worker = bench.worker(core, crash=Killer("after poll", 2))
    worker.restore()
    bench.order("a")
    worker.turn()
    bench.order("b")
    with pytest.raises(Killed):
        worker.turn()
    worker.restore()  # as its service does: the same worker runs again
    worker.turn()
    assert bench.said() == ["a1", "a1", "b2"]
