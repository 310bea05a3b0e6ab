"""`farside replay`: the same file gives the same bytes, and broken lines hide nothing."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from bus.records import dump
from farside.main import run
from runtime.process import run as execute
from tests.unit.detector.cells import MB, Node, envelopes, leak, run_of, sawtooth

ROOT = Path(__file__).parents[3]
ACTING = """
[act.memory_leak.default]
actions = ["freeze"]

[execute.process]
own_cgroups = ["/jobs"]
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute of one node, composed: one container leaks, one has teeth."""
    node = Node(
        containers={
            "/jobs/1@11": (leak(40 * MB, 4 * MB, 20.0), 240 * MB),
            "/jobs/2@12": (sawtooth(60 * MB, 150 * MB, 13.0), 252 * MB),
        },
    )
    path = tmp_path_factory.mktemp("records") / "leak.jsonl"
    path.write_bytes(b"".join(dump(one) for one in envelopes(run_of([node], 69.0))))
    return path


def replayed(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, bytes]:
    code = run(["replay", *arguments])
    return code, capfdbinary.readouterr().out


def kinds(output: bytes) -> list[str]:
    return [json.loads(line)["type"] for line in output.splitlines()]


def test_the_same_file_gives_the_same_bytes(
    record: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    first = replayed(capfdbinary, str(record))
    assert first == replayed(capfdbinary, str(record))
    assert first[0] == 0
    assert first[1]


def test_without_a_configuration_nothing_is_commanded_and_the_refusal_says_why(
    record: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    _, output = replayed(capfdbinary, str(record))
    assert "IsolationCommand" not in kinds(output)
    refusals = [json.loads(line) for line in output.splitlines() if b'"Refusal"' in line]
    assert "[act.memory_leak.default]" in refusals[0]["reason"]


def test_a_configuration_that_allows_it_freezes_only_the_leaking_one(
    record: Path,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    config = tmp_path / "farside.toml"
    config.write_text(ACTING)
    _, output = replayed(capfdbinary, str(record), "--config", str(config))
    commands = [json.loads(line) for line in output.splitlines() if b'"IsolationCommand"' in line]
    assert [(one["action"], one["scope"]["name"], one["dry_run"]) for one in commands] == [
        ("freeze", "/jobs/1@11", True),
    ]


def test_broken_lines_are_told_and_change_nothing_else(
    record: Path,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    _, whole = replayed(capfdbinary, str(record))
    broken = tmp_path / "broken.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    broken.write_bytes(b"".join([b"garbage\n", *lines[:40], b'{"message":{}}\n', *lines[40:]]))
    code = run(["replay", str(broken)])
    captured = capfdbinary.readouterr()
    assert code == 1
    assert captured.out == whole
    assert b"line 1: no record" in captured.err
    assert b"line 42: no message" in captured.err


def test_a_file_that_is_not_there_is_a_plain_sentence(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert run(["replay", "/nowhere/at/all.jsonl"]) == 2
    assert b"farside: /nowhere/at/all.jsonl can't be read" in capfdbinary.readouterr().err


def test_a_closed_standard_input_is_a_plain_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as Python finds it after `<&-`
    assert run(["replay", "-"]) == 2
    told = capfdbinary.readouterr().err
    assert told == b"farside: - means standard input, which is closed: name a file instead\n"


def test_what_the_scorer_cannot_use_is_counted_by_reason_and_breaks_nothing(
    record: Path,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    odd = tmp_path / "odd.jsonl"
    node = Node("")
    empty = Node("n2")
    bad = [(70.0, node.batch(70.0)), (70.1, node.batch(70.1)), (70.2, empty.send(70.2, []))]
    odd.write_bytes(b"".join(dump(one) for one in envelopes(bad)))
    code = run(["replay", str(record), str(odd)])
    captured = capfdbinary.readouterr()
    assert code == 0
    assert captured.err.decode().splitlines() == [
        "2 rejected: bad node name (the first is farside.telemetry 0, offset 0: from '')",
        "1 rejected: empty batch (the first is farside.telemetry 0, offset 2: from 'n2')",
    ]


@pytest.mark.skipif(shutil.which("bash") is None, reason="the shell that knows pipefail is absent")
def test_a_reader_that_has_seen_enough_is_no_failure(record: Path) -> None:
    replay = f"{sys.executable} -m farside.main replay {record}"
    ended = execute(["bash", "-c", f"set -o pipefail; {replay} | head -1"], 60.0, cwd=ROOT)
    assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 1)
