"""Reading what topics hold until now: all of it, no more, in the log's own order."""

from itertools import pairwise

import pytest

from bus.messages import Tick
from bus.topics import INCIDENTS, SUSPICIONS, TELEMETRY
from bus.transport import Envelope
from farside.backlog import ends_of, in_order, up_to
from runtime.clock import Instant
from runtime.errors import Unavailable
from tests.unit.farside.fleet import START, Log


def ticks(log: Log, *moments: tuple[float, str, int]) -> None:
    for second, topic, partition in moments:
        moment = START.plus(second)
        log.add(moment, topic, "a", Tick(cell="a", time=moment), partition)


def seconds(envelopes: list[Envelope]) -> list[float]:
    return [one.appended.since(START) for one in envelopes]


def test_partitions_are_merged_in_the_order_in_which_the_log_took_them() -> None:
    log = Log(partitions=2)
    ticks(log, (1, TELEMETRY, 0), (2, TELEMETRY, 1), (3, SUSPICIONS, 0), (4, TELEMETRY, 0))
    ticks(log, (5, INCIDENTS, 0), (6, TELEMETRY, 1), (7, SUSPICIONS, 0))
    source = log.source([TELEMETRY, SUSPICIONS, INCIDENTS])
    found = list(in_order(source, ends_of(source), log.clock))
    assert seconds(found) == [1, 2, 3, 4, 5, 6, 7]


def test_beyond_what_may_be_held_order_between_partitions_is_given_up_but_nothing_is_lost() -> None:
    log = Log(partitions=2)
    ticks(log, *((second, TELEMETRY, int(second > 50)) for second in range(100)))
    source = log.source([TELEMETRY])
    found = list(in_order(source, ends_of(source), log.clock, held_max=7))
    assert len(found) == 100
    for number in (0, 1):
        own = [one.offset for one in found if one.partition == number]
        assert all(first < second for first, second in pairwise(own))


def test_what_comes_later_than_the_end_of_now_is_left_alone() -> None:
    log = Log()
    ticks(log, (1, TELEMETRY, 0), (2, TELEMETRY, 0))
    source = log.source([TELEMETRY])
    ends = ends_of(source)
    ticks(log, (3, TELEMETRY, 0))
    assert seconds(list(in_order(source, ends, log.clock))) == [1, 2]


def test_topics_that_hold_nothing_end_at_once() -> None:
    log = Log()
    source = log.source([TELEMETRY, INCIDENTS])
    assert list(up_to(source, ends_of(source), log.clock)) == []


def test_a_bus_that_gives_nothing_though_something_waits_is_given_up() -> None:
    log = Log()
    ticks(log, (1, TELEMETRY, 0))

    class Stuck:
        """Runs ahead of the clock, so that waiting takes no time."""

        def now(self) -> Instant:
            return log.clock.now()

        def monotonic(self) -> float:
            log.clock.advance(10.0)
            return log.clock.monotonic()

        def wait(self, event: object, timeout_s: float) -> bool:
            raise NotImplementedError

    source = log.source([TELEMETRY])
    ends = {(TELEMETRY, 0): 2}  # one more than there is
    with pytest.raises(Unavailable, match=r"farside\.telemetry 0"):
        list(up_to(source, ends, Stuck()))
