"""The import contracts of pyproject.toml, and what no linter sees: what an import really loads."""

import sys
from pathlib import Path

import pytest

from runtime.process import run

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "pandas", "rich", "river", "scipy", "statsmodels")
AGENTS = (
    "bus",
    "collectors",
    "farside.commands.check",
    "farside.commands.collect",
    "farside.main",
    "runtime",
)

# Refuses what the base install lacks, then imports a package with all of its modules.
PROBE = f"""
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"{{name}} is not in the base install", name=name)

sys.meta_path.insert(0, Refuse())
name = sys.argv[1]
package = importlib.import_module(name)
for module in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_the_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = run([str(lint), "--no-logo", "--no-cache"], 100, cwd=ROOT)
    assert done.code == 0, done.out


@pytest.mark.parametrize("name", AGENTS)
def test_the_agents_side_loads_on_the_base_install(name: str) -> None:
    done = run([sys.executable, "-c", PROBE, name], 60, cwd=ROOT)
    assert (done.code, done.err) == (0, "")


def test_the_probe_sees_what_it_should() -> None:
    done = run([sys.executable, "-c", PROBE, "models"], 60, cwd=ROOT)
    assert "numpy is not in the base install" in done.err


@pytest.mark.parametrize("arguments", [["--version"], ["check", "--help"]])
def test_the_command_line_answers_on_the_base_install(arguments: list[str]) -> None:
    probe = (
        PROBE.partition("name = ")[0] + f"from farside.main import run; sys.exit(run({arguments}))"
    )
    done = run([sys.executable, "-c", probe], 60, cwd=ROOT)
    assert (done.code, done.err) == (0, "")
