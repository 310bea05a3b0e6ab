"""The built wheel in empty environments: the agent's base install, and the demo's."""

import os
import sys
from pathlib import Path

import pytest

from runtime.process import Finished, run

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done([sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(ROOT)])
    return next(folder.glob("*.whl"))


def done(argv: list[str], timeout_s: float = 300.0, **more: str) -> Finished:
    ended = run(argv, timeout_s=timeout_s, env={**os.environ, **more})
    assert ended.code == 0, ended.err + ended.out
    return ended


def installed(folder: Path, wheel: Path, requirements: str) -> Path:
    """Make an environment with the locked dependencies and the wheel; return its programs."""
    done([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
    done([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / requirements)])
    done([*pip, "--no-deps", str(wheel)])
    return folder / "bin"


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("base"), wheel, "base.txt")


def test_the_base_install_tells_its_version(base: Path, tmp_path: Path) -> None:
    ended = run([str(base / "farside"), "--version"], timeout_s=60.0, cwd=tmp_path)
    assert (ended.code, ended.out.strip()[:7]) == (0, "farside")


def test_the_base_install_checks_its_configuration(base: Path, tmp_path: Path) -> None:
    ended = run(
        [str(base / "farside"), "check"],
        timeout_s=60.0,
        cwd=tmp_path,
        env={**os.environ, "FARSIDE__FARSIDE__STATE_DIR": str(tmp_path / "state")},
    )
    assert ended.code == 0, ended.out + ended.err
    assert "pip install 'farside[detect]'" in ended.out


def test_the_base_install_says_what_the_demo_needs(base: Path, tmp_path: Path) -> None:
    ended = run([str(base / "farside"), "demo"], timeout_s=60.0, cwd=tmp_path)
    assert ended.code == 3
    assert "pip install 'farside[demo]'" in ended.err


def test_the_demo_install_catches_a_leak_outside_the_checkout(
    wheel: Path,
    tmp_path: Path,
) -> None:
    programs = installed(tmp_path / "env", wheel, "demo.txt")
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    ended = run(
        [str(programs / "farside"), "demo", "--seed", "3", "--page", "incident.html"],
        timeout_s=240.0,
        cwd=outside,
    )
    assert ended.code == 0, ended.out + ended.err
    assert "before the limit" in ended.out
    assert (outside / "incident.html").read_text("utf-8").startswith("<!doctype html>")
