"""What the topics should be, beside what they are. Nothing here shrinks or remakes a topic."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from bus.kafka import FoundTopic
from bus.topics import HOUR_MS, TOPICS, Topic

# Of these a larger value only loosens: more is kept, longer, or more fits.
_AT_LEAST = frozenset({"retention.ms", "max.message.bytes"})
# And of these a smaller one: what is closed sooner is compacted sooner.
_AT_MOST = frozenset({"segment.ms"})
_FOR_EVER = "-1"


class Difference(NamedTuple):
    """One thing that differs.

    mends: `--create` may put it right; passes: it may be over in a moment, by itself.
    """

    topic: str
    what: str
    mends: bool
    passes: bool = False


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

    @property
    def settled(self) -> bool:
        """Tell whether nothing is left that would mend itself or could be mended."""
        return not self.steps and not any(one.passes for one in self.differences)


def partitions_of(topic: Topic, cells: Iterable[int]) -> int:
    """Return how many partitions a topic needs; `cells` are the numbers that the table names."""
    return topic.partitions or max([0, *cells]) + 1


def plan(
    found: Mapping[str, FoundTopic], cells: Mapping[str, int], replicas: int, wanted: int = 0
) -> Plan:
    """Compare all topics of the table; `replicas` is what new ones get, `wanted` the least of all.

    `cells` is the table of the configuration: it says how many partitions telemetry needs.
    """
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
        told.append(Difference(topic.name, what, mends=False, passes=True))
    if there.replicas < wanted:
        what = (
            f"has {_copies(there.replicas)}, {wanted} are wanted: give it more with Kafka's own "
            f"kafka-reassign-partitions, or be content with --replicas {there.replicas}"
        )
        told.append(Difference(topic.name, what, mends=False))
    return told


def _of_config(topic: Topic, there: FoundTopic) -> list[tuple[Difference, tuple[str, str]]]:
    told = []
    for key, value in topic.config(there.replicas).items():
        has = there.config.get(key, "")
        if has == value or (key in _AT_LEAST and _is_more(has, value)):
            continue
        if key in _AT_MOST and has.isdigit() and int(has) < int(value):
            continue
        mends = key != "cleanup.policy"
        what = f"{key} is {has or 'not set'}, {value} is wanted"
        if not mends:
            what += f": set it with kafka-configs, after saving what {topic.short} holds"
        told.append((Difference(topic.name, what, mends=mends), (key, value)))
    return told


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"


def _is_more(has: str, wanted: str) -> bool:
    return has == _FOR_EVER or (has.isdigit() and int(has) >= int(wanted))


def lines_of(
    found: Mapping[str, FoundTopic], told: Plan, cells: Mapping[str, int]
) -> Iterator[str]:
    """Give the table of what is (and, where it differs, what is wanted), and what differs."""
    width = max(len(name) for name in TOPICS)
    yield f"{'topic':<{width}}  {'partitions':<12} {'copies':<7} kept"
    for topic in TOPICS.values():
        there = found.get(topic.name)
        wanted = partitions_of(topic, cells.values())
        if there is None:
            yield f"{topic.name:<{width}}  missing; wanted: {wanted}, kept {_wanted_time(topic)}"
            continue
        enough = there.partitions == wanted or (there.partitions > wanted and not topic.partitions)
        partitions = f"{there.partitions}" if enough else f"{there.partitions} of {wanted}"
        yield f"{topic.name:<{width}}  {partitions:<12} {there.replicas:<7} {_time(there)}"
    for one in told.differences:
        yield f"{one.topic}: {one.what}{' (--create mends it)' if one.mends else ''}"
    if not told.differences:
        yield "all topics are as they should be"


def as_values(
    found: Mapping[str, FoundTopic], told: Plan, cells: Mapping[str, int]
) -> dict[str, Any]:
    """Return the same as plain values for JSON."""
    return {
        "topics": [
            {
                "topic": topic.name,
                "wanted": {
                    "partitions": partitions_of(topic, cells.values()),
                    "config": topic.config(there.replicas if there else 3),
                },
                "found": there
                and {
                    "partitions": there.partitions,
                    "copies": there.replicas,
                    "leaders": there.leaders,
                    "config": there.config,
                },
            }
            for topic in TOPICS.values()
            for there in (found.get(topic.name),)
        ],
        "differences": [
            {"topic": one.topic, "what": one.what, "mends": one.mends} for one in told.differences
        ],
    }


def _wanted_time(topic: Topic) -> str:
    return f"{topic.retention_h} h" if topic.retention_h else "the newest of each key"


def _time(there: FoundTopic) -> str:
    if "compact" in there.config.get("cleanup.policy", ""):
        return "the newest of each key"
    kept_ms = there.config.get("retention.ms", "")
    if kept_ms == _FOR_EVER:
        return "for ever"
    return f"{int(kept_ms) / HOUR_MS:g} h" if kept_ms.isdigit() else "?"
