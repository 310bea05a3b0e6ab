"""`farside explain` over topics: an incident or a node told again, with readings, within bounds."""

import json
from itertools import count

import pytest
from msgspec.structs import replace

from bus.messages import SampleBatch
from bus.topics import HEALTH, TELEMETRY
from bus.transport import Envelope
from farside.explaining import explained, page_of
from farside.retelling import Retelling
from farside.view.story import Story
from runtime.clock import Instant
from runtime.errors import Rejected
from tests.unit.farside.fleet import CELL, NODE, START, Log, record
from tests.unit.view.composed import INCIDENT


def with_company(envelopes: list[Envelope], nodes: int, partition: int = 0) -> list[Envelope]:
    """Return the records with so many more nodes that send as often, in the same partition."""
    found = []
    for one in envelopes:
        if isinstance(one.message, SampleBatch):
            batch = one.message
            found += [
                one._replace(partition=partition, key=f"n{i}", message=replace(batch, node=f"n{i}"))
                for i in range(nodes)
            ]
        found.append(one._replace(partition=partition if one.topic == TELEMETRY else 0))
    return found


def retold(log: Log, name: str, cells: dict[str, int] | None = None) -> tuple[Story, list[str]]:
    retelling = Retelling(log, log.clock, cells or {})
    return retelling.told(name), retelling.notes


def test_an_incident_is_told_as_a_record_of_everything_tells_it() -> None:
    whole = Story()
    whole.see_all(record())
    story, notes = retold(Log(record()), INCIDENT)
    assert explained(story, INCIDENT) == explained(whole, INCIDENT)
    case, other = story.incident(INCIDENT), whole.incident(INCIDENT)
    assert case.said == other.said
    assert case.curve == other.curve
    assert notes == []


def test_an_incident_of_yesterday_is_found_with_its_readings() -> None:
    log = Log(record())
    log.clock.advance(86_400.0)
    case = retold(log, INCIDENT)[0].incident(INCIDENT)
    assert case.curve is not None
    assert len(case.curve.held) > 50
    assert case.reports


def test_a_node_is_told_with_its_incidents_and_has_a_page() -> None:
    story, _ = retold(Log(with_company(record(), 3)), NODE)
    assert story.nodes() == (NODE,)
    told = json.loads(explained(story, NODE, as_json=True))
    assert (told["node"], len(told["incidents"])) == (NODE, 1)
    assert told["health"]["state"] == "suspect"
    assert page_of(story, NODE).startswith("<!doctype html>")


def test_a_healthy_node_is_known_by_its_telemetry_alone() -> None:
    story, _ = retold(Log(with_company(record(), 3)), "n2")
    assert story.nodes() == ("n2",)
    assert "n2" in explained(story, "n2")


def test_the_partition_of_a_node_is_searched_for_where_no_table_names_it() -> None:
    log = Log(with_company(record(), 2, partition=1), partitions=3)
    story, _ = retold(log, "n1")
    assert story.node("n1").curve is not None


def test_the_partition_of_a_cell_is_taken_from_the_table() -> None:
    elsewhere = Log(with_company(record(), 0, partition=2), partitions=3)
    assert retold(elsewhere, INCIDENT, {CELL: 2})[0].incident(INCIDENT).curve is not None
    assert retold(elsewhere, INCIDENT, {CELL: 1})[0].incident(INCIDENT).curve is None


def test_what_nobody_knows_is_said() -> None:
    story, _ = retold(Log(record()), "nobody")
    with pytest.raises(Rejected, match="nobody"):
        explained(story, "nobody")


def test_of_too_much_telemetry_what_lies_around_the_event_is_read_and_the_rest_is_told() -> None:
    log = Log(with_company(record(), 9))
    retelling = Retelling(log, log.clock, {}, readings_max=400)
    curve = retelling.told(INCIDENT).incident(INCIDENT).curve
    assert curve is not None
    assert "400 were read" in retelling.notes[0]
    times = [Instant(time) for time, _ in curve.held]
    assert min(times) < START.plus(69.0) < max(times)


def test_a_node_that_moved_to_another_cell_is_read_where_it_was_last_named() -> None:
    log = Log(with_company(record(), 0, partition=1), partitions=2)
    health = next(one.message for one in record() if one.topic == HEALTH)
    numbers = count()
    for cell in ("old", "new"):
        moment = log.clock.now().plus(1.0 + next(numbers))
        log.add(moment, HEALTH, NODE, replace(health, cell=cell))
    story, _ = retold(log, NODE, {"old": 0, "new": 1})
    assert story.node(NODE).curve is not None
