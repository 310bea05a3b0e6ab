"""A recorded run of the demo, judged again: the same story, from every point of it."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.codec import to_json
from bus.records import load
from bus.transport import Envelope
from farside.parts import Parts
from farside.replaying import Replay
from farside.settings import read_settings

HERE = Path(__file__).parent / "records"
GOLDEN = HERE / "demo-seed-7.replayed.jsonl"


def recorded() -> list[Envelope]:
    with gzip.open(HERE / "demo-seed-7.jsonl.gz", "rb") as file:
        return [one for one in load(file) if isinstance(one, Envelope)]


def parts() -> Parts:
    return Parts(read_settings(HERE / "acting.toml"))


def told(replay: Replay, records: list[Envelope]) -> list[bytes]:
    return [to_json(message) for record in records for message in replay.see(record)]


def rounded(value: Any) -> Any:  # noqa: ANN401  # any JSON
    """Round numbers to six digits: sums of floats differ between processors."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def moments_cut(value: Any) -> Any:  # noqa: ANN401  # any JSON
    """Cut forecasts' moments to milliseconds: they are sums of floats as well."""
    if isinstance(value, dict):
        return {key: moments_cut(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [moments_cut(inner) for inner in value]
    if isinstance(value, str) and value.endswith("Z") and len(value) == 30:
        return f"{value[:23]}Z"
    return value


@pytest.fixture(scope="module")
def undisturbed() -> list[bytes]:
    return told(Replay(parts(), answered=False), recorded())


def test_the_recorded_leak_is_judged_as_it_was(undisturbed: list[bytes]) -> None:
    lines = [
        json.dumps(moments_cut(rounded(json.loads(line))), separators=(",", ":"))
        for line in undisturbed
    ]
    if os.environ.get("FARSIDE_GOLDEN") == "write":
        GOLDEN.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == GOLDEN.read_text("utf-8").splitlines()


def test_only_the_leaking_one_is_frozen_and_before_its_limit(undisturbed: list[bytes]) -> None:
    messages = [json.loads(line) for line in undisturbed]
    commands = [one for one in messages if one["type"] == "IsolationCommand"]
    suspected = {one["scope"]["name"] for one in messages if one["type"] == "Suspicion"}
    assert [one["action"] for one in commands] == ["freeze"]
    assert suspected == {commands[0]["scope"]["name"]}
    assert commands[0]["scope"]["name"].startswith("/demo/loader@")


def test_restored_after_every_record_it_tells_the_same(undisturbed: list[bytes]) -> None:
    replay, lines = Replay(parts(), answered=False), []
    for record in recorded():
        lines += told(replay, [record])
        replay = _restored(replay)
    assert lines == undisturbed


def _restored(replay: Replay) -> Replay:
    """Save both cores of a replay and load them into fresh ones."""
    fresh = Replay(parts(), answered=False)
    fresh.load(replay.save())
    return fresh


def test_from_any_point_on_a_repeated_turn_changes_nothing(undisturbed: list[bytes]) -> None:
    records = recorded()
    for cut in _points(len(records)):
        replay = Replay(parts(), answered=False)
        before = told(replay, records[:cut])
        saved = _restored(replay)
        told(replay, records[cut : cut + 25])  # judged, then lost: the process died unsaved
        assert before + told(saved, records[cut:]) == undisturbed


def _points(length: int) -> Iterator[int]:
    yield from range(0, length, max(length // 6, 1))
