"""What every notifier owes, judged by discovery: a new file in notifiers/ is judged as it appears.

Each notifier needs an arrangement below: people of its kind who keep what they are told, and can be
taken away. A notifier without one fails here, so that none goes unjudged.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import hypothesis
import pytest
from hypothesis import strategies as st

from bus.messages import Incident, IncidentState, Severity
from notifiers.base import Context, Notice, Notifier, notice_of
from runtime.clock import SystemClock
from runtime.errors import Rejected, Unavailable
from runtime.plugins import available, load
from tests.unit.notifiers.notices import START, incident, refusal
from tests.unit.notifiers.receiver import SECRET, receiving


@dataclass
class Arranged:
    """People who are told: what they heard, one text each, and how to take them away."""

    settings: dict[str, object]
    stream: io.StringIO
    heard: Callable[[], list[str]]
    leave: Callable[[], None]


@contextlib.contextmanager
def _console() -> Iterator[Arranged]:
    stream = io.StringIO()
    yield Arranged({}, stream, lambda: stream.getvalue().splitlines(), stream.close)


@contextlib.contextmanager
def _webhook() -> Iterator[Arranged]:
    with receiving() as receiver:
        yield Arranged(
            {"url": receiver.url, "secret": SECRET, "refusals": True},
            io.StringIO(),
            lambda: [heard.body.decode() for heard in receiver.heard],
            receiver.close,
        )


ARRANGEMENTS = {"console": _console, "webhook": _webhook}
pytestmark = pytest.mark.loopback


@dataclass
class Judged:
    """A notifier under judgement, and its people."""

    name: str
    people: Arranged
    telling: Notifier


@pytest.fixture(params=available("notifiers"))
def judged(request: pytest.FixtureRequest) -> Iterator[Judged]:
    if request.param not in ARRANGEMENTS:
        pytest.fail(f"say in ARRANGEMENTS whom the notifier {request.param} tells in a test")
    module: Any = load("notifiers", request.param)
    with ARRANGEMENTS[request.param]() as people:
        context = Context(SystemClock(), stream=people.stream)
        telling = module.build(module.Settings(**people.settings), context)
        yield Judged(request.param, people, telling)
        telling.close()


def notice(message: object) -> Notice:
    made = notice_of(message)  # type: ignore[arg-type]  # messages of the test
    assert made is not None
    return made


def test_it_is_named_as_its_file(judged: Judged) -> None:
    assert judged.telling.name == judged.name


def test_building_it_and_asking_what_it_can_not_do_tells_nobody(judged: Judged) -> None:
    judged.telling.cannot()
    assert judged.people.heard() == []


def test_every_state_of_an_incident_reaches_people_once_with_its_sentence(judged: Judged) -> None:
    told = [
        notice(incident(state, sentence=f"leaks, {state}")) for state in get_args(IncidentState)
    ]
    for one in told:
        if judged.telling.wants(one):
            judged.telling.tell(one, START)
    wanted = [one.sentence for one in told if judged.telling.wants(one)]
    heard = judged.people.heard()
    assert all(sentence in text for sentence, text in zip(wanted, heard, strict=True))


def test_a_refusal_that_it_wants_reaches_people_with_its_reason(judged: Judged) -> None:
    no = notice(refusal("acting is off"))
    if not judged.telling.wants(no):
        pytest.skip(f"{judged.name} tells no refusals")
    judged.telling.tell(no, START)
    assert ["acting is off" in text for text in judged.people.heard()] == [True]


def test_people_who_are_away_are_said_to_be_so_in_one_sentence(judged: Judged) -> None:
    judged.people.leave()
    with pytest.raises((Unavailable, Rejected)) as caught:
        judged.telling.tell(notice(incident()), START)
    assert str(caught.value).isprintable()


@hypothesis.given(sentence=st.text(max_size=200), severity=st.sampled_from(["info", "critical"]))
@hypothesis.settings(
    max_examples=30, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_whatever_a_sentence_holds_one_notice_stays_one(
    judged: Judged, sentence: str, severity: Severity
) -> None:
    before = len(judged.people.heard())
    one = notice(incident(sentence=sentence, severity=severity))
    assert isinstance(one.message, Incident)
    judged.telling.tell(one, START)
    assert len(judged.people.heard()) == before + 1
