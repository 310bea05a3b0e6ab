"""`farside consume`: names as people type them, filters by field, a line for each record."""

from pathlib import Path

import pytest

from bus.codec import decode, type_of
from bus.messages import Message
from bus.topics import TOPICS
from bus.transport import Envelope
from farside.consuming import essence, filters_of, line_of, passes, topics_named
from runtime.clock import Instant
from runtime.errors import Misconfigured

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
        filters_of(["Incident"])


def test_filters_look_into_fields_and_all_must_hold() -> None:
    incident = golden("Incident")
    node = incident.scope.node  # type: ignore[union-attr]
    assert passes(incident, filters_of(["type=Incident", f"scope.node={node}"]))
    assert not passes(incident, filters_of(["type=Incident", "scope.node=another"]))
    assert not passes(incident, filters_of(["no.such.field=1"]))
    assert passes(incident, [])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_every_type_has_a_line_that_names_its_place_and_says_something(path: Path) -> None:
    message = decode(path.read_bytes())
    appended = Instant.parse("2026-11-30T12:00:00Z")
    line = line_of(Envelope("farside.incidents", 0, 7, appended, "key", message))
    assert line.startswith("2026-11-30T12:00:00.000Z incidents/0@7")
    assert type_of(message) in line
    assert essence(message)
    assert "\n" not in line
