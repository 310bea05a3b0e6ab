"""Where a run's groups are made in each layout, and that they are undone.

PROVENANCE: every machine here is composed, from the kernel's cgroup-v2.rst and cgroup-v1/memory.rst
and from what a systemd desktop, a container and a hybrid machine show in /proc/self/mountinfo.
"""

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from farside.demo.groups import Folders, RunGroup, clear_leftovers
from farside.demo.layout import Place, places
from runtime.errors import FarsideError, NotPermitted
from runtime.files import SysTree

PURE = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_PART = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
GIB = 1 << 30


class Machine(Folders):
    """A composed kernel: folders get the control files that the real one would put into them."""

    def __init__(self, root: Path, mountinfo: Collection[str], own: Mapping[str, str]) -> None:
        super().__init__(SysTree(root))
        self.refused: set[str] = set()
        self.killed: list[int] = []
        self.root = root
        self.put("/proc/self/mountinfo", "\n".join(mountinfo) + "\n")
        self.put("/proc/self/cgroup", "".join(f"{key}:{path}\n" for key, path in own.items()))
        self.put("/proc/meminfo", "MemTotal: 8 kB\nSwapTotal:       0 kB\n")

    def put(self, path: str, text: str) -> None:
        real = self.root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text)

    def read(self, path: str) -> str:
        return self.tree.read_text(path)

    def group(
        self, folder: str, controllers: str = "", hands_down: str = "", kind: str = ""
    ) -> str:
        """Compose a v2 group; only one with a `kind` ("domain") is not the real root."""
        self.put(f"{folder}/cgroup.controllers", controllers + "\n")
        self.put(f"{folder}/cgroup.subtree_control", hands_down + "\n")
        self.put(f"{folder}/cgroup.procs", "")
        if kind:
            self.put(f"{folder}/cgroup.type", kind + "\n")
        return folder

    def make(self, folder: str) -> None:
        parent = folder.rsplit("/", 1)[0]
        if parent in self.refused:
            raise NotPermitted(f"{folder}: permission denied")
        super().make(folder)
        if folder.startswith("/sys/fs/cgroup/memory/"):
            names = ["memory.limit_in_bytes", "memory.swappiness", "memory.memsw.limit_in_bytes"]
        else:
            handed = "memory" in self.read(f"{parent}/cgroup.subtree_control")
            self.group(folder, "memory" if handed else "", kind="domain")
            names = ["cgroup.freeze", "cgroup.kill"]
            names += ["memory.max", "memory.swap.max"] if handed else []
        for name in ["cgroup.procs", *names]:
            self.put(f"{folder}/{name}", "")

    def remove(self, folder: str) -> None:
        shutil.rmtree(self.tree.path(folder))  # the kernel takes the control files along

    def kill(self, pid: int) -> None:
        self.killed.append(pid)


def open_first(machine: Machine) -> tuple[RunGroup | None, list[str]]:
    """Open a run's group at the first place that allows it; return the refusals before it."""
    said: list[str] = []
    for place in places(machine.tree)[0]:
        try:
            return RunGroup(machine, place, "farside-demo-7-1"), said
        except FarsideError as error:
            said.append(str(error))
    return None, said


def desktop(root: Path) -> Machine:
    """Compose a systemd desktop: a terminal's scope below a user's delegated part of the tree."""
    own = "/user.slice/user@1000.service/app.slice/term.scope"
    machine = Machine(root, [PURE], {"0:": own})
    top = "/sys/fs/cgroup"
    machine.group(top, "cpu memory", "cpu memory")
    for path in ("/user.slice", "/user.slice/user@1000.service"):
        machine.group(top + path, "cpu memory", "cpu memory", kind="domain")
    machine.group(f"{top}/user.slice/user@1000.service/app.slice", "memory", "memory", "domain")
    machine.group(top + own, "memory", "", "domain")
    return machine


def hybrid(root: Path) -> Machine:
    """Compose a hybrid machine: memory in v1, nothing but freezing in v2."""
    machine = Machine(root, [V1, UNIFIED], {"4:memory": "/jobs/one", "0:": "/"})
    machine.group("/sys/fs/cgroup/unified", "hugetlb", "")
    machine.put("/sys/fs/cgroup/memory/jobs/one/cgroup.procs", "")
    return machine


def test_v2_takes_the_nearest_group_that_hands_the_memory_controller_down(tmp_path: Path) -> None:
    run, said = open_first(desktop(tmp_path))
    assert run is not None
    assert said == []
    assert run.path == "/user.slice/user@1000.service/app.slice/farside-demo-7-1"
    assert run.layout == "v2"


def test_v2_goes_further_up_where_the_nearest_refuses(tmp_path: Path) -> None:
    machine = desktop(tmp_path)
    machine.refused = {"/sys/fs/cgroup/user.slice/user@1000.service/app.slice"}
    run, said = open_first(machine)
    assert run is not None
    assert run.path == "/user.slice/user@1000.service/farside-demo-7-1"
    assert said[0].endswith("app.slice/farside-demo-7-1: permission denied")


def test_v2_limits_a_member_and_keeps_swap_out(tmp_path: Path) -> None:
    machine = desktop(tmp_path)
    run, _ = open_first(machine)
    assert run is not None
    group = run.member("loader")
    group.limit(GIB)
    group.take(4711)
    written = {
        name: machine.read(f"{group.folder}/{name}")
        for name in ("memory.max", "memory.swap.max", "cgroup.procs")
    }
    assert written == {"memory.max": str(GIB), "memory.swap.max": "0", "cgroup.procs": "4711"}
    assert group.device == f"{run.path}/loader@{machine.tree.inode(group.folder)}"


def test_a_container_that_owns_its_root_but_no_controllers_gets_no_place(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [PURE], {"0:": "/"})
    machine.group("/sys/fs/cgroup", "cpu memory", "", kind="domain")
    found, why_not = places(machine.tree)
    assert found == []
    assert why_not == {
        "cgroup v2": "/sys/fs/cgroup does not hand its memory controller down",
        "cgroup v1": "no memory hierarchy is mounted",
    }


def test_the_real_root_is_told_to_hand_memory_down_and_told_back_at_the_end(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [PURE], {"0:": "/"})
    control = machine.group("/sys/fs/cgroup", "cpu memory", "") + "/cgroup.subtree_control"
    run, _ = open_first(machine)
    assert run is not None
    assert machine.read(control) == "+memory"
    run.member("loader")
    run.remove()
    assert machine.read(control) == "-memory"


def test_hybrid_makes_a_group_of_the_same_name_in_both_hierarchies(tmp_path: Path) -> None:
    machine = hybrid(tmp_path)
    run, _ = open_first(machine)
    assert run is not None
    group = run.member("loader")
    group.limit(GIB)
    group.take(4711)
    assert run.layout == "hybrid"
    assert (group.folder, group.unified) == (
        "/sys/fs/cgroup/memory/jobs/one/farside-demo-7-1/loader",
        "/sys/fs/cgroup/unified/farside-demo-7-1/loader",
    )
    assert machine.read(f"{group.folder}/memory.limit_in_bytes") == str(GIB)
    assert machine.read(f"{group.folder}/memory.memsw.limit_in_bytes") == ""
    assert machine.read(f"{group.folder}/cgroup.procs") == "4711"
    assert machine.read(f"{group.unified}/cgroup.procs") == "4711"


def test_v1_bounds_swap_where_there_is_some(tmp_path: Path) -> None:
    machine = hybrid(tmp_path)
    machine.put("/proc/meminfo", "SwapTotal:    2048 kB\n")
    run, _ = open_first(machine)
    assert run is not None
    group = run.member("loader")
    group.limit(GIB)
    assert machine.read(f"{group.folder}/memory.memsw.limit_in_bytes") == str(GIB + (1 << 20))


def test_hybrid_goes_without_the_second_group_where_it_is_refused(tmp_path: Path) -> None:
    machine = hybrid(tmp_path)
    machine.refused = {"/sys/fs/cgroup/unified"}
    run, _ = open_first(machine)
    assert run is not None
    assert (run.layout, run.member("loader").unified, run.unified_path) == ("v1", None, None)


def test_v1_names_groups_as_the_kernel_does_where_a_part_is_mounted(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [V1_PART], {"4:memory": "/docker/abc/inner"})
    machine.put("/sys/fs/cgroup/memory/inner/cgroup.procs", "")
    run, _ = open_first(machine)
    assert run is not None
    group = run.member("loader")
    assert group.path == "/docker/abc/inner/farside-demo-7-1/loader"
    assert group.folder == "/sys/fs/cgroup/memory/inner/farside-demo-7-1/loader"


def test_read_only_hierarchies_are_all_tried_and_leave_nothing(tmp_path: Path) -> None:
    machine = hybrid(tmp_path)
    memory = "/sys/fs/cgroup/memory"
    machine.refused = {memory, f"{memory}/jobs", f"{memory}/jobs/one"}
    run, said = open_first(machine)
    assert run is None
    assert said == [
        f"{memory}/jobs/one/farside-demo-7-1: permission denied",
        f"{memory}/jobs/farside-demo-7-1: permission denied",
        f"{memory}/farside-demo-7-1: permission denied",
    ]
    assert list(tmp_path.rglob("farside-demo-*")) == []


def test_a_group_outside_of_what_is_mounted_is_no_place(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [V1_PART], {"4:memory": "/elsewhere"})
    assert places(machine.tree) == (
        [],
        {
            "cgroup v2": "not mounted",
            "cgroup v1": "this process's group lies outside of what is mounted",
        },
    )


def test_without_a_readable_proc_the_reason_is_told(tmp_path: Path) -> None:
    found, why_not = places(SysTree(tmp_path))
    assert found == []
    assert why_not["cgroup v2"].startswith("can't tell which groups this process is in")


def test_removing_a_run_takes_all_of_its_groups_and_no_other(tmp_path: Path) -> None:
    machine = hybrid(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    run, _ = open_first(machine)
    assert run is not None
    run.member("loader")
    run.member("server")
    run.remove()
    assert sorted(tmp_path.rglob("*")) == before


class Leftovers:
    """A hybrid machine with the groups of an earlier run, pid 4321, below ours."""

    def __init__(self, root: Path) -> None:
        self.machine = hybrid(root)
        self.folder = "/sys/fs/cgroup/memory/jobs/one/farside-demo-4321-9"
        self.twin = "/sys/fs/cgroup/unified/farside-demo-4321-9"
        place = places(self.machine.tree)[0][0]
        self.run = RunGroup(self.machine, place, "farside-demo-4321-9")
        self.run.member("loader")

    def clear(self, own_pid: int = 99) -> list[str]:
        found: list[Place] = places(self.machine.tree)[0]
        return clear_leftovers(self.machine, found, own_pid)


def test_what_a_dead_run_left_is_thawed_killed_and_removed(tmp_path: Path) -> None:
    left = Leftovers(tmp_path)
    left.machine.put(f"{left.folder}/loader/cgroup.procs", "5001\n5002\n")
    assert sorted(left.clear()) == sorted([left.folder, left.twin])
    assert left.machine.killed == [5001, 5002]
    assert list(tmp_path.rglob("farside-demo-*")) == []


def test_the_groups_of_a_run_that_is_alive_stay(tmp_path: Path) -> None:
    left = Leftovers(tmp_path)
    left.machine.put("/proc/4321/stat", "4321 (farside) S")
    assert left.clear() == []
    assert left.machine.tree.exists(left.folder)


def test_groups_with_processes_that_can_not_be_seen_stay(tmp_path: Path) -> None:
    left = Leftovers(tmp_path)
    left.machine.put(f"{left.folder}/loader/cgroup.procs", "0\n")
    left.machine.put(f"{left.twin}/loader/cgroup.procs", "0\n")
    assert left.clear() == []
    assert left.machine.killed == []


@pytest.mark.parametrize(("procs", "cleared"), [("", 2), ("5001\n", 0)])
def test_groups_under_our_own_recycled_pid_go_only_when_empty(
    tmp_path: Path, procs: str, cleared: int
) -> None:
    left = Leftovers(tmp_path)
    for folder in (left.folder, left.twin):
        left.machine.put(f"{folder}/loader/cgroup.procs", procs)
    assert len(left.clear(own_pid=4321)) == cleared
    assert left.machine.killed == []
