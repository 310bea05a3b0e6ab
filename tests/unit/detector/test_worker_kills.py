"""Killed at any named point and made anew: the same incidents and commands, in the same order."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.messages import Incident, IsolationCommand, Message, Refusal
from bus.topics import COMMANDS, INCIDENTS
from tests.unit.detector.company import POINTS, Company, Killer, play


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Message]:
    return play(Company(tmp_path_factory.mktemp("undisturbed"))).said()


def test_the_undisturbed_play_acts_refuses_and_releases(undisturbed: list[Message]) -> None:
    commands = [one.action for one in undisturbed if isinstance(one, IsolationCommand)]
    assert {"freeze", "hold", "release"} == set(commands)
    assert len(commands) >= 6
    assert any(isinstance(one, Refusal) for one in undisturbed)


def points(worker: str) -> tuple[str, ...]:
    """The scorer keeps no journal: it reads one partition, whose order is the log's."""
    return tuple(point for point in POINTS if worker == "decider" or "journal" not in point)


@pytest.mark.parametrize(
    ("worker", "point", "nth"),
    [
        (worker, point, nth)
        for worker in ("scorer", "decider")
        for point in points(worker)
        for nth in ((2, 19) if "save" in point else (2, 95))
    ],
)
def test_killed_once_it_says_the_same(
    worker: str, point: str, nth: int, undisturbed: list[Message], tmp_path: Path
) -> None:
    company = Company(tmp_path)
    company.killers[worker] = Killer(point, nth)
    assert play(company).said() == undisturbed
    assert company.kills == 1


@given(
    kills=st.lists(
        st.tuples(st.sampled_from(("scorer", "decider")), st.sampled_from(POINTS)),
        min_size=1,
        max_size=6,
    ),
    every=st.integers(1, 40),
)
@settings(max_examples=8)
def test_killed_again_and_again_it_says_the_same(
    kills: list[tuple[str, str]],
    every: int,
    undisturbed: list[Message],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _killed(Path(folder), kills, every, undisturbed)


def _killed(
    folder: Path, kills: list[tuple[str, str]], every: int, undisturbed: list[Message]
) -> None:
    company = Company(folder)
    for worker in ("scorer", "decider"):
        company.killers[worker] = Series([p for who, p in kills if who == worker], every)
    assert play(company).said() == undisturbed


class Series(Killer):
    """Kills at one point after the other, each when it comes for the nth time."""

    def __init__(self, points: list[str], nth: int) -> None:
        super().__init__()
        self._waiting = [Killer(point, nth) for point in points]

    def __call__(self, point: str) -> None:
        if self._waiting:
            before = self._waiting[0]
            if before.point == point and before.left == 1:
                self._waiting.pop(0)
            before(point)


@given(
    seed=st.integers(0, 2**32 - 1),
    points=st.lists(st.sampled_from(POINTS), max_size=6),
    every=st.integers(1, 30),
)
@settings(max_examples=10)
def test_in_whatever_order_it_took_its_topics_the_journal_tells_the_same_again(
    seed: int, points: list[str], every: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        company = Company(Path(folder), lot=np.random.default_rng(seed))
        company.killers["decider"] = Series(points, every)
        play(company)
        said = company.said()
        assert by_topic(company.replayed()) == by_topic(said)
        assert said


def by_topic(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Keep the order within each topic: nothing orders two topics against each other."""
    incidents: list[Message] = [one for one in messages if isinstance(one, Incident)]
    return incidents, [one for one in messages if not isinstance(one, Incident)]


def test_what_was_published_twice_is_told_apart_by_its_identifier(tmp_path: Path) -> None:
    company = Company(tmp_path)
    company.killers["decider"] = Killer("before save", 20)
    play(company)
    everything = company.everything(INCIDENTS, COMMANDS)
    assert len(everything) > len(company.said())
    ids = [one.id for one in company.said(COMMANDS) if isinstance(one, IsolationCommand)]
    assert len(set(ids)) == len(ids)
