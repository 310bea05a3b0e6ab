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


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[farside]\nnodename = 'x'\n", "farside.nodename"),
        ("[collect.gpu_fan]\n", "gpu_fan"),
        ("[collect.memory]\nspeed = 3\n", "collect.memory.speed"),
        ("[act.memory_leak.default]\nactions = ['explode']\n", "act.memory_leak.default.actions"),
        ("[http]\nport = 'many'\n", "http.port"),
        ("[detect.frames]\nperiod = 1\n", "detect.frames.period"),
        ("[models.floor]\n", "models.floor"),
        ("[decide]\nheld_max = 0\n", "decide.held_max"),
        ("[execute.process]\nown_cgroup = '/x'\n", "execute.process.own_cgroup"),
        ("[notify.console]\ncolour = true\n", "notify.console.colour"),
        ("this is no toml", "farside.toml"),
    ],
)
def test_a_mistake_is_named_with_its_key(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    named: str,
) -> None:
    assert run(["check", "--config", written(tmp_path, text)]) == 2
    captured = capsys.readouterr()
    assert named in captured.out + captured.err
    assert "Traceback" not in captured.err


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
    assert [one["about"] for one in findings if not one["ok"]] == ["state_dir"]


def test_print_shows_what_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path, "[farside]\ncluster = 'main'\n")
    assert run(["check", "--config", config, "--print"]) == 0
    output = capsys.readouterr().out
    assert 'cluster = "main"' in output
    assert "[collect.memory]" in output
