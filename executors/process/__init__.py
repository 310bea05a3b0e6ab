"""Acts on this machine's processes and control groups: freeze, throttle, limit, reclaim, release.

Only inside what `[execute.process]` declares as its own, checked at the moment of acting. In the
order of an act: `targets` (who is meant, and is it ours), `freezing`, `limiting` or `ending`,
`executor` (what is noted before and after, and how it is undone).
"""

from executors.base import Context
from executors.process.executor import ProcessExecutor
from executors.process.processes import Pidfds
from executors.process.settings import Settings


def build(settings: Settings, context: Context) -> ProcessExecutor:
    """Return the executor for this machine; opens and changes nothing yet."""
    return ProcessExecutor(settings, context, Pidfds())


__all__ = ["ProcessExecutor", "Settings", "build"]
