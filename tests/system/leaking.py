"""Leaks: a real one among real processes that are children of the test, and a composed one.

The real ones are the demo's own (farside/demo/child.py), each under RLIMIT_DATA; the plan is
written down here: a leak of 5 MB/s that would meet its limit 36 s after its beginning, and two
healthy ones beside it, of which one is at times larger and grows faster.
"""

from collections.abc import Iterator

from bus.messages import IsolationCommand, SampleBatch
from bus.samples import Samples
from farside.demo.curves import LEAK, SAWTOOTH, STEADY, Curve
from farside.demo.plan import MB, Member, Plan
from farside.demo.truth import Fate
from runtime.clock import Instant

BEGINS_S = 2.0
TO_LIMIT_S = 36.0
RATE = 5 * MB
GROWTH = Curve(LEAK, 30 * MB, int(RATE * TO_LIMIT_S), BEGINS_S, TO_LIMIT_S, RATE)
LEAKING = Member("trainer", GROWTH, 1.0)
SAWING = Member("loader", Curve(SAWTOOTH, 20 * MB, 60 * MB, 2.0, 9.0, 0.0), 1.6)
RESTING = Member("server", Curve(STEADY, 60 * MB, 0, 0.0, 0.0, 0.0), 1.5)
PLAN = Plan(
    seed=1,
    hard=False,
    members=(SAWING, LEAKING, RESTING),
    onset_s=BEGINS_S,
    limit_s=BEGINS_S + TO_LIMIT_S,
)


def means(command: IsolationCommand, fate: Fate) -> bool:
    """Tell whether a command is for this process, alone or in a group of its own."""
    return command.scope.name in {fate.child.device, fate.child.process}


def composed(node: str, end: Instant, duration_s: int = 60) -> Iterator[SampleBatch]:
    """Give the batches of a node, one a second up to `end`, on which a container leaks 4 MB/s.

    Its first 15 s are level; at the end it is a few seconds from its limit.
    """
    for second in range(duration_s):
        used = 40 * MB + 4 * MB * max(second - 15, 0)
        yield SampleBatch(
            cluster="test",
            node=node,
            boot=f"boot-{node}",
            start="s1",
            sequence=second + 1,
            time=end.plus(second - duration_s),
            samples=Samples.of(
                [
                    ("memory_total_bytes", "", 64e9),
                    ("memory_available_bytes", "", 48e9),
                    ("container_memory_unreclaimable_bytes", "/jobs/1@11", used),
                    ("container_memory_limit_bytes", "/jobs/1@11", 240 * MB),
                ]
            ),
        )
