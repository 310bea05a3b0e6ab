"""The executor's own disk: nothing that was noted is forgotten, nothing grows without end."""

from pathlib import Path

import pytest

from executors.ledger import Change, Ledger, Verdict
from runtime.clock import Instant
from runtime.errors import Unavailable
from tests.unit.executors.commands import command

NOW = Instant.parse("2026-11-30T12:00:00Z")
DONE = Verdict("done", "frozen", NOW.plus(60))
CHANGE = Change(place="/g", identity="7", before={"f": "0"}, after={"f": "1"}, members=("4:5",))


def again(path: Path, before: Ledger, **limits: float) -> Ledger:
    """Return the ledger as the next start finds it."""
    before.close()
    return Ledger(path, **limits)  # type: ignore[arg-type]  # the names are checked


def test_all_that_was_noted_is_there_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.begin(command("c1"), "boot", NOW.plus(60), NOW)
    ledger.change("c1", CHANGE)
    ledger.begin(command("c2"), "boot", None, NOW)
    ledger.answer(command("c1"), DONE, NOW)
    found = again(path, ledger)
    for _ in range(2):  # the file that a start writes anew says the same
        (held,) = found.holding()
        assert (held.change, held.verdict, held.boot, held.until) == (
            CHANGE, DONE, "boot", NOW.plus(60),
        )  # fmt: skip
        assert [case.command for case in found.pending()] == ["c2"]
        assert [case.command for case in found.untold()] == ["c1"]
        found = again(path, found)
    found.close()


def test_an_answer_is_repeated_as_already_done() -> None:
    ledger = Ledger(None)
    ledger.answer(command("c1"), DONE, NOW)
    ledger.answer(command("c2"), Verdict("refused", "not ours"), NOW)
    assert ledger.earlier("c1") == DONE._replace(outcome="already")
    assert ledger.earlier("c2") == Verdict("refused", "not ours")
    assert ledger.earlier("c3") is None


def test_what_was_lifted_is_said_to_be_held_no_longer() -> None:
    ledger = Ledger(None)
    ledger.begin(command("c1"), "boot", NOW.plus(60), NOW)
    ledger.change("c1", CHANGE)
    ledger.answer(command("c1"), DONE, NOW)
    ledger.lift("c1", "thawed", NOW)
    assert ledger.holding() == []
    assert ledger.earlier("c1") == Verdict("already", "frozen (no longer held)")


def test_an_intent_that_was_withdrawn_may_be_tried_again() -> None:
    ledger = Ledger(None)
    ledger.begin(command("c1"), "boot", None, NOW)
    ledger.withdraw("c1")
    assert (ledger.case("c1"), ledger.pending()) == (None, [])


def test_a_line_that_a_crash_cut_short_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.answer(command("c1"), DONE, NOW)
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"step":"answer","comm')
    ledger = Ledger(path)
    ledger.answer(command("c2"), DONE, NOW)
    found = again(path, ledger)
    assert ledger.torn == 1
    assert all(found.earlier(name) is not None for name in ("c1", "c2"))
    found.close()


def test_old_answers_go_and_what_is_held_stays(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", keep_s=100, cases_max=50)
    ledger.begin(command("held"), "boot", NOW.plus(60), NOW)
    ledger.change("held", CHANGE)
    ledger.answer(command("held"), DONE, NOW)
    for number in range(80):
        ledger.answer(command(f"many-{number}"), DONE, NOW)
    kept = [ledger.earlier(f"many-{number}") is not None for number in range(80)]
    assert kept == [False] * 31 + [True] * 49
    ledger.answer(command("late"), DONE, NOW.plus(101))
    assert ledger.earlier("many-79") is None
    assert [case.command for case in ledger.holding()] == ["held"]
    ledger.close()


def test_a_disk_that_takes_nothing_is_said_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = Ledger(tmp_path / "file" / "ledger.jsonl")
    with pytest.raises(Unavailable, match="state_dir"):
        ledger.begin(command("c1"), "boot", None, NOW)
