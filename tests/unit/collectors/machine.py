"""Machines composed file by file, for collectors to look at."""

import os
import shutil
from pathlib import Path
from typing import Self

from collectors.base import Reading
from runtime.clock import Instant
from runtime.files import SysTree

MIB = 1 << 20
GIB = 1 << 30
NOW = Instant.parse("2026-03-01T12:00:00Z")
V1_UNLIMITED = 9_223_372_036_854_771_712  # what v1 shows where no limit is set
CGROUPS = "/sys/fs/cgroup"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CGROUP2 = "31 23 0:27 {root} {point} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
_CGROUP1 = "32 31 0:29 {root} {point} rw,relatime - cgroup cgroup rw,{controller}\n"


class Machine:
    """A tree of the kernel's files below a folder: 16 GiB of memory, 8 GiB of it available."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.tree = SysTree(folder)
        self.meminfo()

    def write(self, path: str, text: str) -> Self:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        # A new file each time: what was opened before must not show what is written now.
        file.unlink(missing_ok=True)
        file.write_text(text)
        return self

    def remove(self, path: str) -> Self:
        shutil.rmtree(self.root / path.lstrip("/"))
        return self

    def meminfo(self, swap: int = 0, swap_used: int = 0, available: int = 8 * GIB) -> Self:
        sizes = {
            "MemTotal": 16 * GIB,
            "MemAvailable": available,
            "SwapTotal": swap,
            "SwapFree": swap - swap_used,
        }
        lines = (f"{name}: {size // 1024} kB\n" for name, size in sizes.items())
        return self.write("/proc/meminfo", "".join(lines))

    # --- cgroups -------------------------------------------------------------------------------

    def v2(self, root: str = "/", point: str = CGROUPS) -> Self:
        self.write("/proc/self/mountinfo", _CGROUP2.format(root=root, point=point))
        plain = point.replace("\\040", " ")
        return self.write(f"{plain}/cgroup.controllers", "cpu memory\n")

    def v1(self, *, unified: bool = False) -> Self:
        lines = "".join(
            _CGROUP1.format(root="/", point=f"{CGROUPS}/{name}", controller=name)
            for name in ("memory", "freezer")
        )
        if unified:
            lines += _CGROUP2.format(root="/", point=f"{CGROUPS}/unified")
        return self.write("/proc/self/mountinfo", lines)

    def v2_group(
        self, path: str, anon: int = 64 * MIB, *, limit: int | None = None, stat: str | None = None
    ) -> str:
        """Make a group; return its folder."""
        folder = f"{CGROUPS}{path}"
        self.write(f"{folder}/memory.current", f"{anon}\n")
        self.write(f"{folder}/memory.stat", f"anon {anon}\nfile 0\n" if stat is None else stat)
        self.write(f"{folder}/memory.max", "max\n" if limit is None else f"{limit}\n")
        self.write(f"{folder}/cgroup.events", "populated 1\nfrozen 0\n")
        return folder

    def v1_group(
        self, path: str, rss: int = 64 * MIB, *, limit: int = V1_UNLIMITED, pids: str = ""
    ) -> str:
        """Make a group; return its folder."""
        folder = f"{CGROUPS}/memory{path}"
        self.write(f"{folder}/memory.usage_in_bytes", f"{rss}\n")
        self.write(f"{folder}/memory.stat", f"total_cache 0\ntotal_rss {rss}\ntotal_shmem 0\n")
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/cgroup.procs", pids)
        return folder

    # --- processes -----------------------------------------------------------------------------

    def process(
        self,
        pid: int,
        private: int,
        *,
        comm: str = "work",
        start: int = 500,
        swapped: int = 0,
        data_limit: int | None = None,
        group: str = "/",
    ) -> str:
        """Make (or change) a process; return the name of its device."""
        rest = f"S 1 {pid} {pid} 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {start} 1 1"
        self.write(f"/proc/{pid}/stat", f"{pid} ({comm}) {rest}\n")
        file = 2 * MIB
        resident, shared = (private + file) // _PAGE, file // _PAGE
        self.write(f"/proc/{pid}/statm", f"{resident * 2} {resident} {shared} 1 0 9 0\n")
        status = {
            "VmRSS": private + file,
            "RssAnon": private,
            "RssFile": file,
            "RssShmem": 0,
            "VmData": private + MIB,
            "VmSwap": swapped,
        }
        lines = "".join(f"{name}:\t{size // 1024:8} kB\n" for name, size in status.items())
        self.write(f"/proc/{pid}/status", f"Name:\t{comm}\n{lines}")
        limit = "unlimited" if data_limit is None else str(data_limit)
        self.write(f"/proc/{pid}/limits", f"Max data size   {limit}  unlimited  bytes\n")
        self.write(f"/proc/{pid}/cgroup", f"0::{group}\n")
        return f"{comm}:{pid}:{start}"


def values(reading: Reading, metric: str) -> dict[str, float]:
    """Return a metric's values by device."""
    return {sample.device: sample.value for sample in reading.samples if sample.metric == metric}


def by_path(reading: Reading, metric: str) -> dict[str, float]:
    """Return a container metric's values by the group's path, without its inode."""
    found = values(reading, metric)
    return {device.rpartition("@")[0]: value for device, value in found.items()}
