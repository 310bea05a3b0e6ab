"""The same without root: what a user may do to its own processes, and a plain "no" for the rest."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bus.codec import encode
from executors.ledger import Ledger
from executors.process import Settings
from runtime.process import run
from tests.unit.executors.machine import SOON_S, Child, children, wish

ROOT = Path(__file__).parents[3]
NOBODY = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.fixture(scope="module")
def nobody() -> list[str]:
    """Return the words that start a program as a user without rights, or skip."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not Path(NOBODY[0]).exists():
        pytest.skip("setpriv is not installed")
    probe = [*NOBODY, sys.executable, "-c", "import executors.process"]
    if run(probe, SOON_S, cwd=ROOT).code != 0:
        pytest.skip("a user without rights may not read this checkout")
    return NOBODY


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that everybody may use (pytest's own belongs to root alone)."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


def answer(nobody: list[str], folder: Path, child: Child) -> tuple[str, str]:
    """Let that user freeze a child; return outcome and sentence from its ledger."""
    settings = Settings(own_descendants_of=(str(os.getpid()),))
    given = [str(folder / "state"), "", msgspec.json.encode(settings).decode()]
    module = "tests.unit.executors.crashing"
    command = encode(wish("freeze", child)).decode()
    done = run([*nobody, sys.executable, "-m", module, *given, command], 60.0, cwd=ROOT)
    assert (done.code, done.err) == (0, "")
    ledger = Ledger(folder / "state" / "executor-process.jsonl")
    verdict = ledger.earlier("c1")
    ledger.close()
    assert verdict is not None
    return verdict.outcome, verdict.detail


@contextlib.contextmanager
def child_of(user: list[str]) -> Iterator[Child]:
    """Start a child of another user."""
    child = Child([*user, "cat"])
    try:
        assert child.answers()
        yield child
    finally:
        child.running.kill()
        child.running.stop()


def test_a_user_freezes_its_own_process_by_signals(nobody: list[str], folder: Path) -> None:
    with child_of(nobody) as child:
        outcome, detail = answer(nobody, folder, child)
        assert (outcome, child.state()) == ("already", "T")
        assert "SIGSTOP" in detail


def test_a_process_of_somebody_else_is_refused_with_the_reason(
    nobody: list[str], folder: Path
) -> None:
    with children(1) as (child,):
        outcome, detail = answer(nobody, folder, child)
        assert outcome == "refused"
        assert "may not send signals" in detail
        assert child.answers()
