"""A composed kernel with cgroup v2 alone, for machines (like many of ours) that mount it hybrid.

PROVENANCE: composed from the kernel's admin-guide/cgroup-v2.rst: which files a group has, what
writing to cgroup.freeze and cgroup.kill does, how values read back. Signals reach the composed
processes and no real one.
"""

import signal
from pathlib import Path

from runtime.files import SysTree

POINT = "/sys/fs/cgroup"
MOUNT = f"30 23 0:26 / {POINT} rw,nosuid,nodev,noexec - cgroup2 cgroup2 rw\n"
FILES = {
    "cgroup.procs": "", "cgroup.freeze": "0", "cgroup.kill": "", "cgroup.events": "frozen 0",
    "cpu.max": "max 100000", "memory.current": "16777216", "memory.high": "max",
    "memory.max": "67108864",
}  # fmt: skip
OWN_PID = 900_000


class Kernel(SysTree):
    """Processes by pid and groups by path, as files below a folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._put("/proc/self/mountinfo", MOUNT)
        self._put("/proc/sys/kernel/random/boot_id", "composed-boot\n")
        self.parents = {OWN_PID: 1, 1: 0}
        for pid in self.parents:
            self._stat(pid, "S")
        self.signals = Signals(self)

    def group(self, path: str, *pids: int) -> None:
        """Make a group with these processes in it."""
        for file, text in FILES.items():
            self._put(f"{POINT}{path}/{file}", text)
        self._put(f"{POINT}{path}/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        for pid in pids:
            self.parents[pid] = 1
            self._stat(pid, "S")
            self._put(f"/proc/{pid}/cgroup", f"0::{path}\n")

    def value(self, path: str, file: str) -> str:
        return self.read_text(f"{POINT}{path}/{file}")

    def state(self, pid: int) -> str:
        text = self.read_text(f"/proc/{pid}/stat") if self.exists(f"/proc/{pid}/stat") else ""
        return text.rpartition(")")[2].split()[0] if text else ""

    def write_text(self, path: str, text: str) -> None:
        """Write as to a control file, with what the kernel does about it."""
        super().write_text(path, text + " " * 32)  # a control file is not shortened
        self.path_of(path).write_text(text)
        folder, _, file = path.rpartition("/")
        if file == "cgroup.freeze":
            for events in self.path_of(folder).rglob("cgroup.events"):
                events.write_text(f"frozen {text}")
        if file == "cgroup.kill":
            for pid in self.read_text(f"{folder}/cgroup.procs").split():
                self.end(int(pid))

    def main_thread_ends(self, pid: int) -> None:
        """Let the main thread of a process end while another one goes on."""
        self._stat(pid, "Z", threads=2)

    def end(self, pid: int) -> None:
        """Let a process end."""
        for file in self.path_of(f"/proc/{pid}").rglob("stat"):
            file.unlink()
        for procs in self.path_of(POINT).rglob("cgroup.procs"):
            left = [word for word in procs.read_text().split() if word != str(pid)]
            procs.write_text("".join(f"{word}\n" for word in left))

    def path_of(self, path: str) -> Path:
        return Path(self.path(path))

    def _stat(self, pid: int, state: str, threads: int = 1) -> None:
        between = " ".join(["0"] * 15)
        line = f"{pid} (leak) x) {state} {self.parents[pid]} {between} {threads} 0 77 0"
        self._put(f"/proc/{pid}/stat", line)
        self._put(f"/proc/{pid}/task/{pid}/stat", line)

    def _put(self, path: str, text: str) -> None:
        file = self.path_of(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


class Signals:
    """Signals to the composed processes; a descriptor is the pid."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.sent: list[tuple[int, int]] = []

    def open(self, pid: int) -> int | None:
        return pid if self._kernel.state(pid) else None

    def send(self, descriptor: int, number: int) -> bool:
        self.sent.append((descriptor, number))
        if number == signal.SIGKILL:
            self._kernel.end(descriptor)
        else:
            self._kernel._stat(descriptor, "T" if number == signal.SIGSTOP else "S")  # noqa: SLF001
        return True

    def close(self, descriptor: int) -> None:
        pass
