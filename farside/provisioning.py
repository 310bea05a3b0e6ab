"""What the topics should be, beside what they are. Nothing here shrinks or remakes a topic."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bus.kafka import FoundTopic
from bus.topics import TOPICS, Topic

# Of these a larger value only loosens: more is kept, longer, or more fits.
_AT_LEAST = frozenset({"retention.ms", "max.message.bytes"})
_FOR_EVER = "-1"


class Difference(NamedTuple):
    """One thing that differs; `mends`: `--create` may put it right."""

    topic: str
    what: str
    mends: bool


class Step(NamedTuple):
    """What is to be done to one topic: make it, give it partitions, set values."""

    topic: str
    config: dict[str, str]
    partitions: int = 0
    make: bool = False


class Plan(NamedTuple):
    """What differs, and the steps that mend what may be mended."""

    differences: list[Difference]
    steps: list[Step]


def partitions_of(topic: Topic, cells: Iterable[int]) -> int:
    """Return how many partitions a topic needs; `cells` are the numbers that the table names."""
    return topic.partitions or max([0, *cells]) + 1


def plan(
    found: Mapping[str, FoundTopic], cells: Mapping[str, int], replicas: int, wanted: int = 0
) -> Plan:
    """Compare all topics of the table; `replicas` is what new ones get, `wanted` was asked for."""
    differences: list[Difference] = []
    steps: list[Step] = []
    for topic in TOPICS.values():
        partitions = partitions_of(topic, cells.values())
        there = found.get(topic.name)
        if there is None:
            differences.append(Difference(topic.name, "is missing", mends=True))
            steps.append(Step(topic.name, topic.config(replicas), partitions, make=True))
            continue
        differences += _of_shape(topic, there, partitions, wanted)
        values = _of_config(topic, there)
        differences += [one for one, _ in values]
        config = {key: value for one, (key, value) in values if one.mends}
        grow = partitions if there.partitions < partitions else 0
        if grow or config:
            steps.append(Step(topic.name, config, grow))
    return Plan(differences, steps)


def _of_shape(topic: Topic, there: FoundTopic, partitions: int, wanted: int) -> list[Difference]:
    told = []
    if there.partitions < partitions:
        what = f"partitions: {there.partitions}, {partitions} are wanted"
        told.append(Difference(topic.name, what, mends=True))
    if there.partitions > partitions and topic.partitions:
        what = (
            f"has {there.partitions} partitions, its order needs one: delete it while all of "
            "farside is stopped, then run this with --create"
        )
        told.append(Difference(topic.name, what, mends=False))
    if not there.leaders:
        what = "has a partition without a leader: bring its brokers back"
        told.append(Difference(topic.name, what, mends=False))
    if there.replicas < wanted:
        what = (
            f"has {there.replicas} copies, {wanted} were asked for: move it with Kafka's own "
            "kafka-reassign-partitions"
        )
        told.append(Difference(topic.name, what, mends=False))
    return told


def _of_config(topic: Topic, there: FoundTopic) -> list[tuple[Difference, tuple[str, str]]]:
    told = []
    for key, value in topic.config(there.replicas).items():
        has = there.config.get(key, "")
        if has == value or (key in _AT_LEAST and _is_more(has, value)):
            continue
        mends = key != "cleanup.policy"
        what = f"{key} is {has or 'not set'}, {value} is wanted"
        if not mends:
            what += f": set it with kafka-configs, after saving what {topic.short} holds"
        told.append((Difference(topic.name, what, mends=mends), (key, value)))
    return told


def _is_more(has: str, wanted: str) -> bool:
    return has == _FOR_EVER or (has.isdigit() and int(has) >= int(wanted))
