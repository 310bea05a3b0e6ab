"""The pages are read by people, so what is checked is what they must be able to rely on."""

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from bus.messages import (
    Contribution,
    ExecutionReport,
    Incident,
    IsolationCommand,
    Message,
    NodeHealth,
    SampleBatch,
    Scope,
    Source,
    Suspicion,
)
from bus.samples import Samples
from bus.transport import Envelope
from farside.view.cases import Truth
from farside.view.page import incident_page, node_page
from farside.view.story import Story
from runtime.errors import Rejected
from tests.unit.view import composed

TRUTH = Truth(composed.at(composed.ONSET_S), composed.at(composed.LIMIT_S))
EVIL = "</title><script>alert(1)</script>\"' onload=x \x1b[2J\u202e&amp;"
VOID = {"meta", "br", "hr"}


class Reader(HTMLParser):
    """Reads a page as a browser does: its text, its tags, and whether they are balanced."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.titles: list[str] = []
        self.balanced = True
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.balanced = self.balanced and not self._open

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        self.balanced = self.balanced and bool(self._open) and self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.words.append(data)
        if self._open[-1:] == ["title"] and "svg" not in self._open:
            self.titles.append(data)


def told(messages: list[Envelope] | None = None) -> Story:
    story = Story()
    story.see_all(composed.record() if messages is None else messages)
    return story


def without(*kinds: type[Message]) -> list[Envelope]:
    return [one for one in composed.record() if not isinstance(one.message, kinds)]


def test_the_page_is_one_file_that_runs_and_fetches_nothing() -> None:
    page = incident_page(told(), composed.INCIDENT, TRUTH)
    read = Reader(page)
    assert read.balanced
    assert not {"script", "link", "img", "iframe", "object", "a"} & set(read.tags)
    assert not [
        name for name, value in read.attributes if name in {"src", "href"} or name.startswith("on")
    ]
    assert "url(" not in page
    assert "@import" not in page
    assert len(page.encode()) < 300_000


def test_its_title_is_the_sentence_and_all_parts_of_the_way_are_there() -> None:
    read = Reader(incident_page(told(), composed.INCIDENT, TRUTH, {"python": "3.11.9"}))
    sentence = composed.SAID[6][2]
    assert isinstance(sentence, Incident)
    assert read.titles == [f"{sentence.sentence} - farside"]
    for words in (
        "09:26:22 +0.0 s the leak begins",
        "09:26:48 +26.0 s suspected",
        "first forecast : its limit in 28 s (24\u201335 s)",
        "09:27:10 +48.0 s incident opened : container /farside-demo-7/ingest on gpu-0421 leaks",
        "reclaim is refused : one width only",
        "+49.0 s freeze is ordered : memory leak: its limit is at most 6 s away",
        "09:27:17 +55.0 s would have met its limit",
        "6 s frozen before it would have met its limit",
        "6 s to its limit (5\u20138 s), when it was decided; in truth 6 s",
        "compactor grew and fell back 6 times",
        "embedder grew by 216 MiB, then levelled off",
        "logwriter steady; only its file pages grew, by 394 MiB",
        "its floor rose in every test for 24 s: steady, no step, nothing given back, 3.4 MiB/s",
        "inode = 4711",
        "done: cgroup /farside-demo-7/ingest is frozen",
        "all tests passed with blocks of 1 s",
        "python 3.11.9",
        composed.INCIDENT,
        composed.COMMAND,
    ):
        assert words in read.text


def test_without_the_truth_the_page_says_what_was_forecast_and_claims_no_more() -> None:
    read = Reader(incident_page(told(), composed.INCIDENT))
    assert "6 s frozen before the forecast limit" in read.text
    assert "would have met its limit" not in read.text
    assert "the leak begins" not in read.text


def test_a_leak_that_nobody_stopped_is_shown_to_meet_its_limit() -> None:
    calm = without(IsolationCommand, ExecutionReport)
    read = Reader(incident_page(told(calm), composed.INCIDENT, TRUTH))
    assert read.balanced
    assert "09:27:17 +55.0 s meets its limit" in read.text
    assert "Lead time" not in read.text


def test_an_order_that_no_executor_answered_is_shown_as_that() -> None:
    read = Reader(incident_page(told(without(ExecutionReport)), composed.INCIDENT, TRUTH))
    assert "Lead time none freeze was ordered, but nothing was carried out" in read.text
    assert "no executor has answered" in read.text


def test_an_incident_without_readings_has_a_page_too() -> None:
    silent = Incident(
        id="inc-2",
        scope=Scope("node", "lab", "gpu-9"),
        state="open",
        severity="warning",
        opened=composed.at(5),
        sentence="gpu-9 has been silent for 30 s",
        fault="silence",
        evidence=(
            Contribution(signal="heartbeat", nats=9.0, value=30.0, text="nothing heard for 30 s"),
        ),
    )
    envelope = Envelope("farside.incidents", 0, 0, composed.at(5), "", silent)
    read = Reader(incident_page(told([envelope]), "inc-2"))
    assert read.balanced
    assert "nothing heard for 30 s heartbeat 30 +9.0" in read.text
    assert "svg" not in read.tags


def hostile(second: int) -> Iterator[Envelope]:
    """Give one second of a record in which every name that a stranger may choose is hostile."""
    scope = Scope("container", "lab", EVIL, f"/x/{EVIL}@1")
    at = composed.at(second)
    readings = [
        ("container_memory_unreclaimable_bytes", scope.name, 1e7 + 1e6 * second),
        ("container_memory_limit_bytes", scope.name, 1e8),
        ("container_memory_unreclaimable_bytes", f"/y/{EVIL}@2", 1e7),
    ]
    yield Envelope(
        "farside.telemetry", 0, second, at, "",
        SampleBatch(cluster="c", node=scope.node, boot=EVIL, start="s", sequence=second, time=at,
                    samples=Samples.of(readings)),
    )  # fmt: skip
    if second == 30:
        evidence = (Contribution(signal=EVIL, device=EVIL, value=1.0, nats=2.0, text=EVIL),)
        yield Envelope(
            "farside.suspicions", 0, second, at, "",
            Suspicion(scope=scope, time=at, state="suspect", boot=EVIL, contributions=evidence,
                      source=Source(partition=0, offset=1), exhaustion=composed.exhaustion(30)),
        )  # fmt: skip
        yield Envelope(
            "farside.incidents", 0, second, at, "",
            Incident(id="inc-3", scope=scope, state="open", severity="critical", opened=at,
                     sentence=EVIL, evidence=evidence),
        )  # fmt: skip
        yield Envelope(
            "farside.commands", 0, second, at, "",
            IsolationCommand(id=EVIL, scope=scope, action="freeze", executor=EVIL, generation=1,
                             reason=EVIL, incident="inc-3", issued=at, expires=at, dry_run=False,
                             precondition={EVIL: EVIL}),
        )  # fmt: skip
        yield Envelope(
            "farside.reports", 0, second, at, "",
            ExecutionReport(command=EVIL, executor=EVIL, outcome="done", detail=EVIL, finished=at),
        )  # fmt: skip
        yield Envelope(
            "farside.health", 0, second, at, "",
            NodeHealth(node=scope.node, cell=EVIL, state="suspect", since=at, sentence=EVIL),
        )  # fmt: skip


@pytest.mark.parametrize("which", ["incident", "node"])
def test_no_name_on_a_page_becomes_markup(which: str) -> None:
    story = told([one for second in range(40) for one in hostile(second)])
    page = incident_page(story, "inc-3") if which == "incident" else node_page(story, EVIL)
    read = Reader(page)
    assert read.balanced
    assert "script" not in read.tags
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert not {"\x1b", "\u202e"} & set(page)
    assert "</title><script>alert(1)</script>" in read.text


def test_the_page_of_a_long_run_stays_small() -> None:
    story = Story(window_s=10_000, points_max=6000)
    story.see_all(composed.record())
    for second in range(96, 3000):
        sample = composed.story_of(second)
        topic, key, appended, message = next(sample)
        story.see(Envelope(topic, 0, second, composed.at(appended), key, message))
    for page in (
        incident_page(story, composed.INCIDENT, TRUTH),
        node_page(story, composed.NODE),
    ):
        assert len(page.encode()) < 300_000
        assert Reader(page).balanced


def test_the_page_of_a_node_tells_its_incidents_and_what_runs_on_it() -> None:
    read = Reader(node_page(told(), composed.NODE))
    assert read.titles == ["gpu-0421 is suspect: one container leaks - farside"]
    assert "1 incident; 7 scopes are watched on it." in read.text
    assert f"contained container {composed.LEAK.label.removeprefix('container ')}" in read.text
    assert "ingest grew by 169 MiB" in read.text
    assert read.balanced


def test_a_page_of_what_is_unknown_is_refused_in_a_sentence() -> None:
    with pytest.raises(Rejected, match="no incident 'inc-9' is known"):
        incident_page(told(), "inc-9")
    with pytest.raises(Rejected, match="nothing is known of a node 'nobody'"):
        node_page(told(), "nobody")
