"""Real processes under real limits of their own, and that nothing of them stays behind."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farside.demo.arena import Arena
from farside.demo.curves import LEAK, PAGECACHE, STEADY, Curve
from farside.demo.disk import find_folder
from farside.demo.plan import Member, Plan
from farside.demo.truth import Child, Fate
from runtime.errors import Misconfigured
from runtime.files import SysTree
from runtime.process import run
from runtime.wait import wait_until

ROOT = Path(__file__).parents[3]
MB = 1_000_000
SOON_S = 30.0  # a bound for a machine under load


def quick_plan(seed: int = 1) -> Plan:
    """A plan for tests: a leak of 40 MB/s that meets its limit after 1.2 s, and a steady one."""
    return Plan(
        seed=seed,
        hard=False,
        members=(
            Member("loader", Curve(STEADY, 10 * MB, 0, 0.0, 1.0, 0.0), 1.5),
            Member("server", Curve(LEAK, 10 * MB, 40 * MB, 0.2, 1.0, 40.0 * MB), 1.0),
        ),
        onset_s=0.2,
        limit_s=1.2,
    )


@pytest.fixture(params=["a cgroup", "RLIMIT_DATA"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """An arena with the processes of the quick plan waiting for "go", by both means."""
    with Arena(containers=request.param == "a cgroup") as made:
        made.start(quick_plan())
        if request.param == "a cgroup" and made.scope_kind != "container":
            pytest.skip("no cgroup can be made here: " + "; ".join(made.why_not))
        yield made


def fates(arena: Arena) -> dict[str, Fate]:
    return {fate.child.name: fate for fate in arena.look()}


def groups_left() -> list[str]:
    """Return the groups of this process's runs; others may come and go meanwhile."""
    name = f"farside-demo-{os.getpid()}-"
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if name in folder]


def children_left() -> list[str]:
    """Return the command lines of this process's children that run a demo's process."""
    lines = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            lines += [line] if "farside.demo.child" in line else []
    return lines


def test_a_leak_dies_at_its_limit_and_its_neighbour_lives_on(arena: Arena) -> None:
    went = arena.go()
    wait_until(lambda: fates(arena)["server"].ending != "alive", SOON_S)
    leak, neighbour = fates(arena)["server"], fates(arena)["loader"]
    assert (leak.ending, leak.hits > 0) == ("at its limit", True)
    assert (neighbour.ending, neighbour.hits) == ("alive", 0)
    truth = arena.truth()
    assert (truth.go, truth.onset.since(went), truth.limit.since(went)) == (went, 0.2, 1.2)
    assert truth.leak == leak


def test_the_limit_is_the_plans_over_what_the_interpreter_holds_already(arena: Arena) -> None:
    plan = quick_plan()
    page = os.sysconf("SC_PAGE_SIZE")
    for child in arena.children:
        expected = plan.member(child.name).limit_bytes(child.baseline_bytes)
        assert expected - page < child.limit_bytes <= expected


def test_a_stopped_process_is_seen_as_stopped(arena: Arena) -> None:
    arena.go()
    loader = next(child for child in arena.children if child.name == "loader")
    os.kill(loader.pid, signal.SIGSTOP)
    wait_until(lambda: fates(arena)["loader"].ending == "stopped", SOON_S)
    os.kill(loader.pid, signal.SIGKILL)
    wait_until(lambda: fates(arena)["loader"].ending == "killed", SOON_S)


def test_a_frozen_group_is_seen_as_stopped_and_still_removed() -> None:
    with Arena() as arena:
        arena.start(quick_plan())
        mount = "/sys/fs/cgroup/unified" if arena.owned_unified else "/sys/fs/cgroup"
        folder = Path(mount + (arena.owned_unified or arena.owned_cgroup)) / "loader"
        if not (folder / "cgroup.freeze").exists():
            pytest.skip("no cgroup with a freezer can be made here: " + "; ".join(arena.why_not))
        (folder / "cgroup.freeze").write_text("1")
        wait_until(lambda: fates(arena)["loader"].ending == "stopped", SOON_S)
    assert groups_left() == []


def test_closing_ends_everybody_leaves_no_group_and_can_be_repeated(arena: Arena) -> None:
    arena.go()
    before = arena.look()
    arena.close()
    arena.close()
    assert [arena.alive(child) for child in arena.children] == [False, False]
    assert groups_left() == []
    assert arena.look() == before


def test_what_a_failed_start_had_begun_is_undone() -> None:
    plan = quick_plan()
    stranger = Member("trainer", Curve("no such kind", MB, 0, 0.0, 1.0, 0.0), 1.5)
    broken = Plan(2, hard=False, members=(*plan.members, stranger), onset_s=0.2, limit_s=1.2)
    with pytest.raises(Misconfigured, match="trainer ended at once with exit code 2"):
        Arena().start(broken)
    assert groups_left() == []
    assert children_left() == []


def test_file_pages_do_not_count_against_a_limit_on_data(tmp_path: Path) -> None:
    cache = Member("indexer", Curve(PAGECACHE, 5 * MB, 60 * MB, 0.0, 0.3, 200.0 * MB), 1.5)
    plan = Plan(3, hard=False, members=(cache,), onset_s=0.2, limit_s=1.2)
    with Arena(containers=False, file_folders=[tmp_path]) as arena:
        (child,) = arena.start(plan)
        arena.go()
        wait_until(lambda: file_bytes(child) > 59 * MB, SOON_S)
        assert fates(arena)["indexer"].ending == "alive"
        assert arena.used(child) < child.limit_bytes < 60 * MB


def file_bytes(child: Child) -> int:
    for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) * 1024
    return 0


MOUNTS = """\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:5 / {memory} rw - tmpfs tmpfs rw
"""


def test_a_folder_in_memory_is_no_place_for_page_cache(tmp_path: Path) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    for folder in (memory, disk, tmp_path / "proc" / "self"):
        folder.mkdir(parents=True)
    (tmp_path / "proc" / "self" / "mountinfo").write_text(MOUNTS.format(memory=memory))
    found = find_folder(SysTree(tmp_path), MB, [tmp_path / "none", memory, disk])
    assert found == (
        str(disk),
        [
            f"{tmp_path / 'none'} can't be used (no such file or directory)",
            f"{memory} lies in memory (tmpfs)",
        ],
    )


def test_a_disk_without_room_is_told_and_not_filled(tmp_path: Path) -> None:
    folder, why_not = find_folder(SysTree(), 1 << 60, [tmp_path])
    assert (folder, why_not[0].split(" ", 1)[1]) in [
        ("", "has too little room"),
        ("", "lies in memory (tmpfs)"),
    ]


UNPRIVILEGED = """
from farside.demo.arena import Arena
from farside.demo.curves import LEAK, STEADY, Curve
from farside.demo.plan import Member, Plan
from runtime.wait import wait_until
MB = 1_000_000
plan = Plan(1, False, (
    Member("loader", Curve(STEADY, 10 * MB, 0, 0.0, 1.0, 0.0), 1.5),
    Member("server", Curve(LEAK, 10 * MB, 40 * MB, 0.2, 1.0, 40.0 * MB), 1.0)), 0.2, 1.2)
with Arena() as arena:
    arena.start(plan)
    arena.go()
    wait_until(lambda: arena.look()[1].ending != "alive", 30.0)
    print(arena.scope_kind, [fate.ending for fate in arena.look()])
    print(*arena.why_not, sep="\\n")
"""


# `env` starts the interpreter once the rights are gone, as everything after it will
NOBODY = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/env"]


def nobodys_python() -> str:
    """Return a Python >= 3.11 that the user "nobody" can run, or skip with the reason."""
    if os.geteuid() != 0:
        pytest.skip("only root can become nobody; the other tests show this user's own way")
    if not Path(NOBODY[0]).exists():
        pytest.skip("setpriv is not installed")
    check = "import sys, farside.demo.arena; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3"):
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        if run([*NOBODY, python, "-c", check], SOON_S, env=environment, cwd=Path("/")).code == 0:
            return python
    pytest.skip("nobody can run no Python >= 3.11 here, or may not read the checkout")


def test_a_user_without_rights_gets_limits_on_data_and_is_told_why() -> None:
    python = nobodys_python()
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": "/"}
    argv = [*NOBODY, python, "-B", "-c", UNPRIVILEGED]
    code, out, err = run(argv, SOON_S, env=environment, cwd=Path("/"))
    assert (code, err) == (0, "")
    first, *why_not = out.splitlines()
    assert first == "process ['alive', 'at its limit']"
    assert [line.split(":")[0] for line in why_not] == ["cgroup v2", "cgroup v1"]
