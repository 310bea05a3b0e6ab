"""`farside topics`: what differs is said, what may be mended is mended, nothing ever shrinks."""

from bus.kafka import FoundTopic
from bus.topics import TELEMETRY, TOPICS
from farside.provisioning import Plan, as_values, lines_of, plan


def as_wanted(cells: int = 1, replicas: int = 3) -> dict[str, FoundTopic]:
    return {
        topic.name: FoundTopic(
            topic.name, topic.partitions or cells, replicas, topic.config(replicas), leaders=True
        )
        for topic in TOPICS.values()
    }


def changed(**fields: object) -> Plan:
    found = as_wanted()
    found["farside.incidents"] = found["farside.incidents"]._replace(**fields)  # type: ignore[arg-type]
    return plan(found, {}, 3)


def test_topics_as_wanted_need_nothing() -> None:
    assert plan(as_wanted(), {}, 3) == Plan([], [])


def test_everything_is_made_where_nothing_is() -> None:
    made = plan({}, {"a": 0, "b": 4}, 1)
    assert [step.topic for step in made.steps] == list(TOPICS)
    assert {step.topic: step.partitions for step in made.steps}[TELEMETRY] == 5
    assert all(step.make and step.config["min.insync.replicas"] == "1" for step in made.steps)


def test_a_new_cell_adds_a_partition_and_no_cell_less_takes_one_away() -> None:
    grown = plan(as_wanted(), {"a": 0, "b": 1}, 3)
    assert [(step.topic, step.partitions, step.make) for step in grown.steps] == [
        (TELEMETRY, 2, False)
    ]
    assert plan(as_wanted(cells=7), {"a": 0}, 3) == Plan([], [])


def test_longer_retention_is_left_alone_and_shorter_is_mended() -> None:
    config = TOPICS["farside.incidents"].config(3)
    assert changed(config=config | {"retention.ms": "-1"}) == Plan([], [])
    assert changed(config=config | {"retention.ms": str(10**15)}) == Plan([], [])
    shorter = changed(config=config | {"retention.ms": "1000"})
    assert [step.config for step in shorter.steps] == [{"retention.ms": config["retention.ms"]}]


def test_what_would_lose_records_is_told_with_a_remedy_and_not_done() -> None:
    config = TOPICS["farside.incidents"].config(3) | {"cleanup.policy": "compact"}
    for found in (changed(config=config), changed(partitions=4), changed(leaders=False)):
        assert found.steps == []
        assert [one.mends for one in found.differences] == [False]
        assert ":" in found.differences[0].what  # the remedy follows


def test_too_few_copies_are_told_with_two_ways_out_and_more_are_left_alone() -> None:
    found = plan(as_wanted(replicas=1), {}, 3, wanted=3)
    assert len(found.differences) == len(TOPICS)
    assert found.steps == []
    assert "has 1 copy, 3 are wanted" in found.differences[0].what
    assert "--replicas 1" in found.differences[0].what
    assert plan(as_wanted(replicas=5), {}, 3, wanted=3) == Plan([], [])


def test_a_topic_that_is_compacted_sooner_is_left_alone_and_later_is_mended() -> None:
    def with_segments_of(hours: int) -> Plan:
        found = as_wanted()
        config = found["farside.health"].config | {"segment.ms": str(hours * 3_600_000)}
        found["farside.health"] = found["farside.health"]._replace(config=config)
        return plan(found, {}, 3)

    assert with_segments_of(1) == Plan([], [])
    assert [step.config for step in with_segments_of(168).steps] == [{"segment.ms": "86400000"}]


def test_it_is_settled_when_nothing_is_left_to_do_and_nothing_passes_by_itself() -> None:
    config = TOPICS["farside.incidents"].config(3)
    assert plan(as_wanted(), {}, 3).settled
    assert not changed(leaders=False).settled
    assert not changed(config=config | {"retention.ms": "1000"}).settled
    # That needs a person: waiting would be in vain.
    assert changed(partitions=4).settled


def test_the_table_has_a_line_for_each_topic_and_says_what_is_wanted() -> None:
    cells = {"a": 0, "b": 2}
    found = as_wanted(cells=2)
    del found["farside.audit"]
    found["farside.incidents"].config["retention.ms"] = "-1"
    lines = list(lines_of(found, plan(found, cells, 3), cells))
    table = dict(zip(TOPICS, lines[1 : 1 + len(TOPICS)], strict=True))
    assert table["farside.telemetry"].split() == [
        "farside.telemetry",
        "2",
        "of",
        "3",
        "3",
        "24",
        "h",
    ]
    assert table["farside.incidents"].endswith("for ever")
    assert table["farside.health"].endswith("the newest of each key")
    assert "missing; wanted: 1, kept 8760 h" in table["farside.audit"]
    assert lines[1 + len(TOPICS) :] == [
        "farside.telemetry: partitions: 2, 3 are wanted (--create mends it)",
        "farside.audit: is missing (--create mends it)",
    ]


def test_without_a_difference_the_last_line_says_so() -> None:
    assert list(lines_of(as_wanted(), Plan([], []), {}))[-1] == "all topics are as they should be"


def test_as_values_it_tells_what_is_wanted_beside_what_is() -> None:
    found = as_wanted()
    del found["farside.audit"]
    told = as_values(found, plan(found, {}, 3), {})
    topics = {one["topic"]: one for one in told["topics"]}
    assert topics["farside.audit"]["found"] is None
    assert topics["farside.audit"]["wanted"]["partitions"] == 1
    assert topics["farside.health"]["found"]["copies"] == 3
    assert told["differences"] == [{"topic": "farside.audit", "what": "is missing", "mends": True}]
