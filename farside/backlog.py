"""What topics hold until now: read to its end, in the order in which the log took it."""

import heapq
import math
from collections.abc import Iterator, Mapping

from bus.topics import TOPICS
from bus.transport import Envelope, Place, Source
from runtime.clock import Clock
from runtime.errors import Unavailable

LIMIT = 1000
WAIT_S = 0.5
PATIENCE_S = 30.0
# So many records wait at most for older ones of other partitions; beyond it, order is given up.
HELD_MAX = 20_000
_RANK = {name: rank for rank, name in enumerate(TOPICS)}


def ends_of(source: Source) -> dict[Place, int]:
    """Return the offsets at which the topics of a reader end now; errors: `Unavailable`."""
    source.log()  # connects
    waiting = source.lag()
    return {place: at + waiting[place] for place, at in source.positions().items()}


def up_to(source: Source, ends: Mapping[Place, int], clock: Clock) -> Iterator[list[Envelope]]:
    """Give what lies before `ends`, as it comes.

    Errors: `Unavailable` when the bus can't be read, or gives nothing though something waits.
    """
    heard_s = clock.monotonic()
    while _left(source, ends):
        found = source.poll(LIMIT, WAIT_S)
        now_s = clock.monotonic()
        if found:
            heard_s = now_s
        elif now_s - heard_s > PATIENCE_S:
            places = ", ".join(f"{topic} {number}" for topic, number in _left(source, ends))
            raise Unavailable(f"nothing more comes of {places}: a broker is away; try it again")
        yield [one for one in found if one.offset < ends.get((one.topic, one.partition), 0)]


def in_order(
    source: Source, ends: Mapping[Place, int], clock: Clock, held_max: int = HELD_MAX
) -> Iterator[Envelope]:
    """Give what lies before `ends` in the order in which the log took it.

    Partitions come one after the other, so records are held until no older one can come; of more
    than `held_max` the oldest go first all the same. A partition keeps its own order always.
    """
    held: list[tuple[float, int, int, int, Envelope]] = []
    newest: dict[Place, float] = dict.fromkeys(ends, 0.0)
    for found in up_to(source, ends, clock):
        for one in found:
            place = (one.topic, one.partition)
            newest[place] = max(newest[place], one.appended)
            rank = _RANK.get(one.topic, len(_RANK))
            heapq.heappush(held, (newest[place], rank, one.partition, one.offset, one))
        safe = min((newest[place] for place in _left(source, ends)), default=math.inf)
        while held and (held[0][0] < safe or len(held) > held_max):
            yield heapq.heappop(held)[-1]
    while held:
        yield heapq.heappop(held)[-1]


def _left(source: Source, ends: Mapping[Place, int]) -> list[Place]:
    at = source.positions()
    return [place for place, end in ends.items() if at.get(place, end) < end]
