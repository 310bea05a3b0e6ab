"""Real processes that hold memory, one of them leaking, as children of the test.

They are the demo's own (farside/demo/child.py), each under RLIMIT_DATA; the plan is written down
here: a leak of 5 MB/s that would meet its limit 36 s after its beginning, and two healthy ones
beside it, of which one is at times larger and grows faster.
"""

from bus.messages import IsolationCommand
from farside.demo.curves import LEAK, SAWTOOTH, STEADY, Curve
from farside.demo.plan import MB, Member, Plan
from farside.demo.truth import Fate

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
