"""What may be declared as farside's own: judged when the settings are read, entry by entry."""

from pathlib import Path

import pytest

from executors.process.settings import Settings
from runtime.errors import Misconfigured
from runtime.settings import Table, plugin_settings
from tests.unit.executors.machine import CLOCK, children, executor, wish


def read(**values: object) -> Settings:
    return plugin_settings(Table(values, "execute.process"), Settings)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("relative", "is no absolute path"),
        ("", "is no absolute path"),
        ("./slurm", "is no absolute path"),
        ("/", "is the whole machine"),
        ("//", "is the whole machine"),
        ("/sys/fs/cgroup/slurm", "is a folder: write the group as /proc/PID/cgroup shows it"),
        ("/sys/fs/cgroup", "is a folder: write the group as /proc/PID/cgroup shows it"),
        ("/slurm/../system.slice", "has a part that is empty, . or .."),
        ("/slurm//a", "has a part that is empty, . or .."),
        ("/slurm/job_*", "is a pattern"),
        ("/" + "a" * 5000, "is longer than a path can be"),
    ],
)
def test_a_group_that_cant_be_ours_is_refused_by_name(path: str, why: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        read(own_cgroups=["/jobs", path])
    assert f"execute.process own_cgroups: {path[:80]!r} {why}" in str(caught.value)


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("", 'is neither "self", nor a pid'),
        ("nobody", 'is neither "self", nor a pid'),
        ("-5", 'is neither "self", nor a pid'),
        ("run/x.pid", 'is neither "self", nor a pid'),
        ("0", "is the ancestor of the whole machine"),
        ("1", "is the ancestor of the whole machine"),
        ("001", "is the ancestor of the whole machine"),
        ("1:0", "is the ancestor of the whole machine"),
        ("/run/../x.pid", "has a part that is empty, . or .."),
    ],
)
def test_a_root_that_cant_be_ours_is_refused_by_name(root: str, why: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        read(own_descendants_of=["self", root])
    assert f"execute.process own_descendants_of: {root!r} {why}" in str(caught.value)


def test_groups_and_roots_as_the_kernel_writes_them_are_taken() -> None:
    groups = ["/slurm", "/kubepods.slice/", r"/system.slice/a\x2db.service", "/docker/0a1b"]
    roots = ["self", "4711", "4711:123456", "/run/launcher.pid"]
    settings = read(own_cgroups=groups, own_descendants_of=roots)
    assert settings == Settings(own_cgroups=tuple(groups), own_descendants_of=tuple(roots))


@pytest.mark.parametrize("text", ["1", "001\n", "0", "", "1:7"])
def test_a_pid_file_that_names_the_whole_machine_makes_nothing_ours(
    text: str, tmp_path: Path
) -> None:
    pid_file = tmp_path / "launcher.pid"
    pid_file.write_text(text)
    settings = Settings(own_descendants_of=(str(pid_file),))
    with children(1) as (child,):
        acting = executor(tmp_path, settings)
        assert "not ours" in acting.act(wish("freeze", child), CLOCK.now()).detail
        assert child.answers()
        acting.close(CLOCK.now())
