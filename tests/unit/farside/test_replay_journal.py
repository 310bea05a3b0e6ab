"""`farside replay --journal`: the decider alone, in its own order, says what it published live."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from bus.codec import to_json
from bus.messages import Message
from bus.records import dump
from bus.topics import COMMANDS, INCIDENTS, TELEMETRY
from farside.main import run
from farside.parts import Parts
from farside.settings import read_settings
from tests.unit.detector.company import DECIDER_READS, Company, Killer, play

CONFIG = """
[decide]
quiet_s = 8.0
hold_s = 15.0
cooldown_s = 3.0
acts_per_hour = 600.0
held_max = 8
held_percent = 100.0

[act.memory_leak.default]
actions = ["freeze"]

[act.gpu_off_bus.default]
actions = ["hold"]

[execute.process]
own_cgroups = ["/jobs"]
"""


class Live(NamedTuple):
    """What a live run left behind."""

    folder: Path
    config: Path
    records: Path
    incidents: list[bytes]
    commands: list[bytes]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """Play with topics read by lot, a kill in between, and record everything."""
    folder = tmp_path_factory.mktemp("state")
    config = folder / "farside.toml"
    config.write_text(CONFIG)
    company = Company(folder, lot=np.random.default_rng(7))
    company.decider = Parts(read_settings(config)).decider
    company.killers["decider"] = Killer("before save", 19)
    play(company)
    assert company.kills == 1
    records = folder / "records.jsonl"
    everything = company.everything(*DECIDER_READS, TELEMETRY)
    records.write_bytes(b"".join(dump(one) for one in everything))
    return Live(
        folder, config, records, lines(company.said(INCIDENTS)), lines(company.said(COMMANDS))
    )


def lines(messages: list[Message]) -> list[bytes]:
    return [to_json(message) for message in messages]


def replayed(
    capfdbinary: pytest.CaptureFixture[bytes], live: Live, *more: str, records: Path | None = None
) -> tuple[int, list[bytes], str]:
    arguments = [str(records or live.records), "--config", str(live.config), *more]
    code = run(["replay", *arguments])
    captured = capfdbinary.readouterr()
    return code, captured.out.splitlines(), captured.err.decode()


def test_it_says_what_was_published_with_the_same_identifiers(
    live: Live, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, output, told = replayed(capfdbinary, live, "--journal", str(live.folder))
    assert (code, told) == (0, "")
    incidents = [line for line in output if line.startswith(b'{"type":"Incident"')]
    assert incidents == live.incidents
    assert [line for line in output if line not in incidents] == live.commands
    assert len(live.commands) > 3


def test_one_file_of_the_journal_will_do(
    live: Live, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    first = min(live.folder.glob("decider.journal.*"))
    code, output, _ = replayed(capfdbinary, live, "--journal", str(first))
    assert code == 0
    assert output[:2] == live.incidents[:2]


def test_records_that_the_file_lacks_are_told_and_the_rest_is_replayed(
    live: Live, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fewer = tmp_path / "fewer.jsonl"
    kept = [
        line
        for line in live.records.read_bytes().splitlines(keepends=True)
        if not line.startswith(b'{"topic":"farside.suspicions","partition":0,"offset":7,')
    ]
    fewer.write_bytes(b"".join(kept))
    code, output, told = replayed(
        capfdbinary, live, "--journal", str(live.folder), records=fewer
    )  # fmt: skip
    assert code == 1
    assert "records are not in the file (farside.suspicions 0: offset" in told
    assert told.endswith("1 records that the journal names are missing\n")
    assert len(output) > 3


def test_turns_that_the_journal_lacks_are_told(
    live: Live, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    last = max(live.folder.glob("decider.journal.*"))
    number = int(last.suffix[1:])
    (tmp_path / last.name).write_bytes(last.read_bytes())
    code, _, told = replayed(capfdbinary, live, "--journal", str(tmp_path))
    assert code == 1
    assert told == f"the journal begins with turn {number}: what came before is not known\n"


def test_a_damaged_line_of_the_journal_is_told(
    live: Live, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for path in live.folder.glob("decider.journal.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    first = min(tmp_path.glob("decider.journal.*"))
    first.write_bytes(first.read_bytes().replace(b'"turn":5,', b'"turn":6,', 1))
    code, _, told = replayed(capfdbinary, live, "--journal", str(tmp_path))
    assert code == 1
    assert told.splitlines() == [
        f"{first}: line 5 is damaged and passed over",
        "turns 5 to 5 are not in the journal",
    ]


@pytest.mark.parametrize("name", ["", "nothing-there"])
def test_where_there_is_no_journal_a_sentence_says_what_to_name(
    name: str, live: Live, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, output, told = replayed(capfdbinary, live, "--journal", str(tmp_path / name))
    assert (code, output) == (2, [])
    assert told.startswith("farside: ")
    assert "journal" in told
