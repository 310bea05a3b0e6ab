"""The demo's other modes on this machine: without rights, as a control run, and without farside."""

import json
import os
import shutil
import site
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runtime.process import Finished, run

ROOT = Path(__file__).parents[2]
NOBODY = 65534

pytestmark = pytest.mark.long


def demo(*options: str, argv: Sequence[str] = (sys.executable,), **env: str) -> Finished:
    """Run the demo with these options; `argv` is what runs Python, `env` the whole environment."""
    command = [*argv, "-m", "farside.main", "demo", "--json", *options]
    return run(command, timeout_s=300.0, cwd=ROOT, env=env or None)


def figures(ended: Finished) -> dict[str, Any]:
    assert ended.out, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_the_control_run_with_slow_neighbours_opens_no_incident(tmp_path: Path) -> None:
    ended = demo("--seed", "41", "--no-leak", "--hard", "--page", str(tmp_path / "p.html"))
    assert (ended.code, figures(ended)["failures"]) == (0, [])
    assert figures(ended)["incident_s"] is None


def test_without_acting_the_leaking_one_dies_at_its_limit(tmp_path: Path) -> None:
    ended = demo("--seed", "42", "--no-act", "--page", str(tmp_path / "p.html"))
    assert (ended.code, figures(ended)["failures"]) == (0, [])
    assert figures(ended)["caught"] is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user for this run")
def test_an_unprivileged_user_with_read_only_cgroups_sees_the_leak_caught(tmp_path: Path) -> None:
    setpriv, unshare = shutil.which("setpriv"), shutil.which("unshare")
    if setpriv is None or unshare is None:
        pytest.skip("setpriv and unshare (util-linux) are not installed")
    python = _python_for_all()
    if python is None or not _readable_by_all(ROOT):
        pytest.skip(f"Python or {ROOT} lies in a private folder: nobody else can start the demo")
    home = tmp_path / "home"
    home.mkdir()
    for folder in (home, tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o777)
    read_only = 'mount --bind -o ro /sys/fs/cgroup /sys/fs/cgroup && exec "$@"'
    ended = demo(
        *("--seed", "43", "--page", str(home / "p.html")),
        argv=(
            *(unshare, "--mount", "sh", "-c", read_only, "sh"),
            *(setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python),
        ),
        PATH=os.environ["PATH"],
        HOME=str(home),
        TMPDIR=str(home),
        PYTHONPATH=f"{ROOT}:{site.getsitepackages()[0]}",
    )
    assert (ended.code, figures(ended)["failures"]) == (0, []), ended.err
    assert figures(ended)["lead_s"] > 0


def _python_for_all() -> str | None:
    """Return a Python of this version that every user may start."""
    same = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    found = (path for path in (sys.executable, same) if Path(path).exists())
    return next((path for path in found if _readable_by_all(Path(path).resolve())), None)


def _readable_by_all(path: Path) -> bool:
    return all(part.stat().st_mode & 0o005 == 0o005 for part in (path, *path.parents))
