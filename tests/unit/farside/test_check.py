"""`farside check` and wrong configurations: one sentence with file, key and remedy, exit code 2."""

import json
from pathlib import Path

import pytest

from farside.main import run


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "farside.toml"
    path.write_text(text)
    return str(path)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARSIDE__FARSIDE__STATE_DIR", str(tmp_path / "state"))


def test_the_defaults_are_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check"]) == 0
    assert "off everywhere" in capsys.readouterr().out


def test_a_state_folder_that_cant_be_used_is_exit_3(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    config = written(tmp_path, "")
    code = run(["check", "--config", config, "--json"])
    assert code == 0
    capsys.readouterr()
    text = f"[farside]\nstate_dir = '{blocked}/below'\n"
    path = tmp_path / "other.toml"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("FARSIDE__FARSIDE__STATE_DIR")
        assert run(["check", "--config", str(path), "--json"]) == 3
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["text"] for one in findings if not one["ok"]] == [
        (
            f"{blocked}/below can't be used, {blocked} is a file, not a folder: "
            "set [farside] state_dir to a folder of this user"
        ),
    ]


def test_a_path_that_no_folder_can_have_is_exit_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARSIDE__FARSIDE__STATE_DIR", f"/{'s' * 300}")
    monkeypatch.setenv("FARSIDE__BUS__KIND", "kafka")
    monkeypatch.setenv("FARSIDE__BUS__KAFKA__BOOTSTRAP", '["k:9092"]')
    assert run(["check"]) == 3
    assert "file name too long" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[act.memory_leak.batch]\nactions = ['freeze']",
            "freeze in [act.memory_leak.batch] is only rehearsed: [execute.process] would carry",
        ),
        (
            "[act.memory_leak.batch]\nactions = ['freeze']\n[execute.dry_run]\nenabled = false",
            "freeze in [act.memory_leak.batch] is refused: [execute.process] would carry it out",
        ),
        (
            "[act.memory_leak.batch]\nactions = ['release']",
            "release in [act.memory_leak.batch] does nothing: it is for people to ask for",
        ),
        (
            "[bus.cells]\na = 0\nb = 1",
            "an agent needs farside.cell, one of bus.cells (a, b): it is not set",
        ),
        (
            "[execute.process]",
            "nothing is declared as farside's own: set own_cgroups or own_descendants_of",
        ),
        (
            "[execute.process]\nown_descendants_of = ['/run/none.pid']",
            "nothing can be owned through own_descendants_of = '/run/none.pid'",
        ),
    ],
)
def test_what_comes_to_less_than_it_says_is_told_and_is_no_failure(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", "--json", "--config", written(tmp_path, text)]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    told = [one["text"] for one in findings if one["limits"]]
    assert [text for text in told if text.startswith(expected)]


def test_a_rule_whose_executor_is_here_needs_no_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
        [act.memory_leak.default]
        actions = ["notify", "freeze"]
        [execute.process]
        own_descendants_of = ["self"]
        """
    assert run(["check", "--config", written(tmp_path, text)]) == 0
    assert "note  configuration" not in capsys.readouterr().out


def test_print_shows_what_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path, "[farside]\ncluster = 'main'\n")
    assert run(["check", "--config", config, "--print"]) == 0
    output = capsys.readouterr().out
    assert 'cluster = "main"' in output
    assert "[collect.memory]" in output
    assert "[notifier]" in output


def test_what_print_shows_is_a_configuration_that_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(tmp_path, "[bus.kafka]\nbootstrap = ['k:9092']\n[agent]\nperiod_s = 2.0\n")
    assert run(["check", "--config", config, "--print"]) == 0
    shown = capsys.readouterr().out.partition("\n[farside]")
    again = tmp_path / "again.toml"
    again.write_text(shown[1] + shown[2])
    assert run(["check", "--config", str(again), "--print"]) == 0
    assert capsys.readouterr().out.partition("\n[farside]")[2] == shown[2]
