"""`farside topics`: what differs is said, what may be mended is mended, nothing ever shrinks."""

from bus.kafka import FoundTopic
from bus.topics import TELEMETRY, TOPICS
from farside.provisioning import Plan, plan


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


def test_too_few_copies_are_told_where_they_were_asked_for() -> None:
    found = plan(as_wanted(replicas=1), {}, 3, wanted=3)
    assert len(found.differences) == len(TOPICS)
    assert found.steps == []
