"""`farside consume`: names as people type them, filters by field, a line for each record."""

import io
from pathlib import Path

import pytest

from bus.codec import decode, type_of
from bus.messages import Message, NodeHealth, Reject, Tick
from bus.records import Broken, load
from bus.topics import COMMANDS, HEALTH, INCIDENTS, REJECTS, REPORTS, SUSPICIONS, TELEMETRY, TOPICS
from bus.transport import Envelope
from farside.consuming import (
    Show,
    essence,
    filters_of,
    line_of,
    passes,
    read,
    start_of,
    topics_named,
)
from runtime.clock import Instant
from runtime.errors import Misconfigured, Unavailable
from tests.unit.farside.fleet import START, Log, record

GOLDEN = sorted((Path(__file__).parents[2] / "golden/messages").glob("*.v1"))


def golden(kind: str) -> Message:
    return decode(next(path for path in GOLDEN if path.name.startswith(kind)).read_bytes())


def test_topics_go_by_their_short_and_their_whole_name() -> None:
    assert topics_named(["incidents", "farside.commands", "incidents"]) == [
        "farside.incidents",
        "farside.commands",
    ]
    assert topics_named([topic.short for topic in TOPICS.values()]) == list(TOPICS)


def test_a_mistyped_topic_is_told_what_was_meant() -> None:
    with pytest.raises(Misconfigured, match="did you mean incidents"):
        topics_named(["incident"])


def test_a_filter_without_a_value_is_told_how_to_write_it() -> None:
    with pytest.raises(Misconfigured, match=r"scope\.node=gpu-17"):
        filters_of(["Incident"], [INCIDENTS])


@pytest.mark.parametrize(
    ("mistake", "meant"),
    [("stat=open", "state"), ("type=Incidents", "Incident"), ("scop.node=n1", "scope")],
)
def test_a_filter_that_nothing_could_pass_is_told_what_was_meant(mistake: str, meant: str) -> None:
    with pytest.raises(Misconfigured, match=f"did you mean {meant}"):
        filters_of([mistake], [INCIDENTS])


def test_a_field_is_one_of_the_topics_that_are_read() -> None:
    assert filters_of(["detail=done"], [INCIDENTS, REPORTS])
    with pytest.raises(Misconfigured, match="issued=x"):
        filters_of(["issued=x"], [INCIDENTS])


def test_filters_look_into_fields_and_all_must_hold() -> None:
    incident = golden("Incident")
    node = incident.scope.node  # type: ignore[union-attr]

    def passed(*texts: str) -> bool:
        return passes(incident, filters_of(texts, [INCIDENTS]))

    assert passed("type=Incident", f"scope.node={node}")
    assert not passed("type=Incident", "scope.node=another")
    assert not passed("scope.no.such=1")
    assert passed()


def test_a_filter_looks_into_lists_numbers_and_yes_or_no() -> None:
    health = NodeHealth(
        node="n1", cell="a", state="suspect", since=Instant(0), incidents=("i-1", "i-2")
    )
    assert passes(health, filters_of(["incidents=i-2", "version=1"], [HEALTH]))
    assert not passes(health, filters_of(["incidents=i-3"], [HEALTH]))
    command = golden("IsolationCommand")
    dry = str(command.dry_run).lower()  # type: ignore[union-attr]
    assert passes(command, filters_of([f"dry_run={dry}"], [COMMANDS]))


def test_where_to_begin_is_a_word_or_a_time() -> None:
    assert start_of("earliest") == "earliest"
    assert start_of("latest") == "latest"
    assert start_of("2026-11-30T12:00:00Z") == Instant.parse("2026-11-30T12:00:00Z")
    with pytest.raises(Misconfigured, match="2026-11-30T12:00:00Z"):
        start_of("yesterday")


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_every_type_has_a_line_that_names_its_place_and_says_something(path: Path) -> None:
    message = decode(path.read_bytes())
    appended = Instant.parse("2026-11-30T12:00:00Z")
    line = line_of(Envelope("farside.incidents", 0, 7, appended, "key", message))
    assert line.startswith("2026-11-30T12:00:00.000Z incidents/0@7")
    assert type_of(message) in line
    assert essence(message)
    assert "\n" not in line


class Ticking:
    """Time that passes by itself, a second at each look, so that no test waits."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def now(self) -> Instant:
        return self._log.clock.now()

    def monotonic(self) -> float:
        self._log.clock.advance(1.0)
        return self._log.clock.monotonic()

    def wait(self, event: object, timeout_s: float) -> bool:
        del event
        self._log.clock.advance(timeout_s)
        return False


def shown(
    log: Log, *topics: str, limit: int | None = None, as_json: bool = True, wanted: str = ""
) -> tuple[bytes, int]:
    stream = io.BytesIO()
    filters = filters_of([wanted] if wanted else [], topics)
    show = Show(stream, filters, limit, as_json=as_json)
    read(log.source(topics), show, Ticking(log), follow=False, tell=pytest.fail)
    return stream.getvalue(), show.broken


def test_what_is_written_is_read_back_record_by_record_in_the_logs_order() -> None:
    log = Log(record())
    topics = [TELEMETRY, SUSPICIONS, INCIDENTS, COMMANDS, REPORTS, HEALTH]
    lines, broken = shown(log, *topics)
    found = list(load(lines.splitlines(keepends=True)))
    assert not any(isinstance(one, Broken) for one in found)
    assert [one.message for one in found if isinstance(one, Envelope)] == [
        one.message for one in record() if one.topic in topics
    ]
    assert broken == 0


def test_no_more_is_shown_than_was_asked_for() -> None:
    lines, _ = shown(Log(record()), TELEMETRY, limit=3)
    assert len(lines.splitlines()) == 3


def test_a_limit_counts_what_passes_the_filters() -> None:
    lines, _ = shown(Log(record()), COMMANDS, limit=1, wanted="type=IsolationCommand")
    assert lines.count(b"IsolationCommand") == 1


def test_bytes_that_are_no_message_are_shown_as_rejects_and_counted() -> None:
    log = Log()
    log.bus.append(INCIDENTS, "i", b"not a message")
    lines, broken = shown(log, INCIDENTS, as_json=False)
    assert b"Reject" in lines
    assert broken == 1


def test_rejects_that_others_wrote_are_records_like_any_other() -> None:
    log = Log()
    reject = golden("Reject")
    assert isinstance(reject, Reject)
    log.add(START, REJECTS, "telemetry", reject)
    assert shown(log, REJECTS)[1] == 0


class Flaky(Log):
    """A log whose reader fails twice after the backlog, and gives one more record then."""

    def source(self, *args: object) -> object:  # type: ignore[override]
        inner = super().source(*args)  # type: ignore[arg-type]
        log, failures = self, [0]

        class Reader:
            def __getattr__(self, name: str) -> object:
                return getattr(inner, name)

            def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
                if inner.lag()[INCIDENTS, 0] == 0:
                    failures[0] += 1
                    if failures[0] <= 2:
                        raise Unavailable("Kafka at k:9092 can't be reached")
                    log.add(log.clock.now(), INCIDENTS, "i", Tick(cell="new", time=Instant(0)))
                return inner.poll(limit, timeout_s)

        return Reader()


def test_one_who_follows_waits_for_a_broker_that_went_away_and_says_so_once() -> None:
    log = Flaky()
    log.add(START, INCIDENTS, "i", Tick(cell="old", time=Instant(0)))
    stream, told = io.BytesIO(), list[str]()
    show = Show(stream, [], 2, as_json=True)
    read(log.source([INCIDENTS]), show, Ticking(log), follow=True, tell=told.append)  # type: ignore[arg-type]
    assert told == ["Kafka at k:9092 can't be reached; waiting"]
    assert b'"old"' in stream.getvalue()
    assert b'"new"' in stream.getvalue()
