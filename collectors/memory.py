"""The node's memory: /proc/meminfo, /proc/vmstat, /proc/pressure/memory.

Sources: the kernel's filesystems/proc.rst and accounting/psi.rst.
"""

import msgspec

from bus.samples import Sample
from collectors.base import Collector, Reading
from collectors.kernel_text import keyed, pressure_full_percent, sizes
from runtime.clock import Instant
from runtime.errors import Unavailable
from runtime.files import SysTree

PRESSURE = "/proc/pressure/memory"

# What can't be given back on demand. Shmem counts as page cache elsewhere, but nobody can drop it.
_UNRECLAIMABLE = ("AnonPages", "Shmem", "SUnreclaim", "PageTables", "KernelStack")
_SIZES = {
    "memory_total_bytes": "MemTotal",
    "memory_available_bytes": "MemAvailable",
    "memory_anonymous_bytes": "AnonPages",
    "memory_shared_bytes": "Shmem",
    "memory_slab_unreclaimable_bytes": "SUnreclaim",
    "memory_page_tables_bytes": "PageTables",
    "memory_kernel_stack_bytes": "KernelStack",
}
# The newer name first; before 5.9 refaults of files and of anonymous pages were one number.
_COUNTERS = {
    "memory_oom_kills_total": ("oom_kill",),
    "memory_swap_in_pages_total": ("pswpin",),
    "memory_refaults_total": ("workingset_refault_file", "workingset_refault"),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[collect.memory]`: nothing to set yet."""


class Memory:
    """Reads the node's memory."""

    def __init__(self, tree: SysTree) -> None:
        """Read from `tree`."""
        self._tree = tree

    def collect(self, now: Instant) -> Reading:
        """Return the node's samples; `Unavailable` where /proc/meminfo can't be read."""
        del now
        samples = _of_meminfo(sizes(self._tree.read_text("/proc/meminfo")))
        samples += _of_vmstat(keyed(self._text("/proc/vmstat")))
        pressure = pressure_full_percent(self._text(PRESSURE))
        if pressure is not None:
            samples.append(Sample("memory_pressure_full_percent", "", pressure))
        return Reading(samples, [])

    def cannot_see(self) -> list[str]:
        """Say what this kernel does not tell."""
        unseen = []
        if pressure_full_percent(self._text(PRESSURE)) is None:
            unseen.append(
                "how long this node's work waits for memory: the kernel has no pressure stall "
                "information (boot it with psi=1)"
            )
        if "MemAvailable" not in sizes(self._text("/proc/meminfo")):
            unseen.append(
                "how much memory new work could get: /proc/meminfo has no MemAvailable "
                "(use kernel 3.14 or newer)"
            )
        if "oom_kill" not in keyed(self._text("/proc/vmstat")):
            unseen.append(
                "how many processes the kernel ended for want of memory: /proc/vmstat has no "
                "oom_kill (use kernel 4.13 or newer)"
            )
        return unseen

    def _text(self, path: str) -> str:
        try:
            return self._tree.read_text(path)
        except Unavailable:
            return ""


def build(settings: Settings, tree: SysTree) -> Collector:
    """Return the collector."""
    del settings
    return Memory(tree)


def _of_meminfo(known: dict[str, int]) -> list[Sample]:
    samples = [Sample(metric, "", known[key]) for metric, key in _SIZES.items() if key in known]
    if all(key in known for key in _UNRECLAIMABLE):
        held = sum(known[key] for key in _UNRECLAIMABLE)
        samples.append(Sample("memory_unreclaimable_bytes", "", held))
    if "Cached" in known and "Shmem" in known:
        file_bytes = max(known["Cached"] + known.get("Buffers", 0) - known["Shmem"], 0)
        samples.append(Sample("memory_file_bytes", "", file_bytes))
    if "SwapTotal" in known and "SwapFree" in known:
        swapped = known["SwapTotal"] - known["SwapFree"]
        samples.append(Sample("memory_swap_used_bytes", "", swapped))
    return samples


def _of_vmstat(known: dict[str, int]) -> list[Sample]:
    samples = []
    for metric, names in _COUNTERS.items():
        name = next((name for name in names if name in known), None)
        if name is not None:
            samples.append(Sample(metric, "", known[name]))
    return samples
