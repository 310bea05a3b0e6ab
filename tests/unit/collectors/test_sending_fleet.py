"""A thousand agents whose bus was away: how they come back, on one clock moved by hand."""

import heapq
from collections import Counter, defaultdict

import pytest

from bus.memory import Taken
from bus.messages import LogLine, Message, SampleBatch
from collectors.agent import until_moment_s
from collectors.pacing import Settings
from collectors.sending import Sending
from collectors.spool import Settings as SpoolSettings
from collectors.spool import Spool
from runtime.clock import ManualClock
from runtime.errors import Unavailable
from runtime.retries import lot
from tests.unit.collectors.spooling import batch

NODES = 1000
PERIOD_S = 5.0
BEGIN_S, BACK_S, END_S = 10.0, 610.0, 700.0  # away for ten minutes


class SharedBus:
    """What all nodes write to; away from BEGIN_S to BACK_S."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.taken: dict[str, list[int]] = defaultdict(list)
        self.records_in: Counter[int] = Counter()  # by second
        self.asked_in: Counter[int] = Counter()  # by second, while away
        self.first: dict[str, float] = {}  # when each node's first record after the outage came

    def away(self) -> bool:
        return BEGIN_S <= self.clock.monotonic() < BACK_S

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Taken:
        del topic, partition
        now_s = self.clock.monotonic()
        if self.away():
            self.asked_in[int(now_s)] += 1
            raise Unavailable("away", retry_after_s=1.0)
        assert isinstance(message, SampleBatch | LogLine)
        self.taken[key].append(message.sequence)
        self.records_in[int(now_s)] += 1
        if now_s >= BACK_S:
            self.first.setdefault(key, now_s)
        return Taken()

    def flush(self, timeout_s: float) -> None:
        del timeout_s

    def close(self, timeout_s: float) -> None:
        del timeout_s


class Node:
    """One agent's sending, without its threads."""

    def __init__(self, name: str, bus: SharedBus, settings: Settings) -> None:
        self.name = name
        self.appended = 0
        self.spool = Spool(SpoolSettings(disk=False))
        self.sending = Sending(settings, self.spool, bus, bus.clock, node=name, start="s")

    def append(self, now_s: float) -> float:
        self.appended += 1
        self.spool.append(batch(self.appended), now_s)
        return self.sending.step()


def lived(settings: Settings) -> tuple[SharedBus, list[Node]]:
    """Let the fleet live through the outage: batches at their moments, steps when they are due."""
    clock = ManualClock()
    bus = SharedBus(clock)
    nodes = [Node(f"gpu-{number:04d}", bus, settings) for number in range(NODES)]
    begin = clock.now()
    events = [
        (until_moment_s(node.name, PERIOD_S, begin), number, True)
        for number, node in enumerate(nodes)
    ]
    heapq.heapify(events)
    stepping: dict[int, float] = {}  # when each node takes its next step
    while events:
        at_s, number, appends = heapq.heappop(events)
        if at_s >= END_S or (not appends and stepping.get(number) != at_s):
            continue
        clock.advance(at_s - clock.monotonic())
        node = nodes[number]
        due_s = node.append(at_s) if appends else node.sending.step()
        if appends:
            heapq.heappush(events, (at_s + PERIOD_S, number, True))
        stepping[number] = at_s + due_s
        if due_s < 0.5:  # longer ones are asked for again by the next batch
            heapq.heappush(events, (at_s + due_s, number, False))
    return bus, nodes


@pytest.fixture(scope="module")
def fleet() -> tuple[SharedBus, list[Node]]:
    return lived(Settings())


def test_everything_arrives_from_each_node_in_order_and_once(
    fleet: tuple[SharedBus, list[Node]],
) -> None:
    bus, nodes = fleet
    assert [len(node.spool) for node in nodes] == [0] * NODES
    assert all(bus.taken[node.name] == list(range(1, node.appended + 1)) for node in nodes)


def test_nodes_ask_at_moments_of_their_own_and_ever_less_often(
    fleet: tuple[SharedBus, list[Node]],
) -> None:
    bus, _ = fleet
    at_first = max(bus.asked_in[second] for second in range(10, 30))
    later = max(bus.asked_in[second] for second in range(60, 610))
    firsts = Counter(int(at_s) for at_s in bus.first.values())
    # A pause is a second of patience and up to 15 s by lot: 8.5 s on average, 118 of 1,000 nodes
    # each second. The spread of a binomial around it is 10; 170 is five of them away.
    assert (at_first <= NODES / PERIOD_S * 2, later <= 170) == (True, True)
    assert (len(firsts) >= 15, max(firsts.values()) <= 170) == (True, True)


def test_the_backlog_comes_in_a_broad_wave_and_not_in_one_second(
    fleet: tuple[SharedBus, list[Node]],
) -> None:
    bus, nodes = fleet
    backlog = sum(node.appended for node in nodes) * (BACK_S - BEGIN_S) / END_S
    after = {second: bus.records_in[second] for second in range(int(BACK_S), int(END_S))}
    # Each node has 120 records and sends them at 20 a second within 30 s of its first: were all
    # nodes to begin at once, 120,000 would come in the first second.
    assert max(after.values()) <= 6_000 < backlog / 15
    # Beside the backlog each node may send what comes in meanwhile, and no more.
    limit = NODES * (Settings().catch_up_records_s + 1 / PERIOD_S)
    assert max(after.values()) <= limit


def test_no_node_sends_faster_than_its_allowance_while_it_catches_up() -> None:
    """One node alone: a burst of a second's allowance, then an even rate."""
    settings = Settings(catch_up_records_s=10.0, spread_s=0.0)
    clock = ManualClock()
    bus = SharedBus(clock)
    node = Node("gpu-0001", bus, settings)
    clock.advance(BEGIN_S)
    for number in range(300):
        clock.advance(2.0)
        node.append(BEGIN_S + 2.0 * number)
    while node.sending.away:
        clock.advance(0.1)
        node.sending.step()
    back_s = clock.monotonic()
    while len(node.spool) and clock.monotonic() < back_s + 60.0:
        clock.advance(0.1)
        node.sending.step()
    sent = [bus.records_in[second] for second in sorted(bus.records_in)]
    assert bus.taken["gpu-0001"] == list(range(1, 301))
    assert max(sent) <= 2 * settings.catch_up_records_s + 1
    assert 28.0 <= clock.monotonic() - back_s <= 31.0


def test_where_a_node_stands_in_the_spread_follows_from_its_name_alone() -> None:
    places = [lot(f"gpu-{number:04d}", "spread") for number in range(NODES)]
    tenths = Counter(int(place * 10) for place in places)
    assert places == [lot(f"gpu-{number:04d}", "spread") for number in range(NODES)]
    assert (len(tenths), max(tenths.values()) <= 140) == (10, True)
