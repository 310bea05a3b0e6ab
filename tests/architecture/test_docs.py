"""The documents stay true where a machine can tell: links, commands, metrics, reference pages."""

import re
import sys
from pathlib import Path

import pytest

from farside.main import COMMANDS
from runtime.process import run

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PRODUCT = ("bus", "collectors", "detector", "executors", "farside", "notifiers", "runtime")
METRIC = re.compile(r'(?:counter|gauge|histogram)\(\s*"(farside_[a-z_]+)"')


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_picture_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_target_that_is_named_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    assert set(re.findall(r"`farside ([a-z]+)", text)) <= set(COMMANDS)


def test_the_list_of_metrics_is_whole() -> None:
    said = re.findall(r"^\| `(farside_\w+)`", (ROOT / "docs/operate/metrics.md").read_text("utf-8"),
                      re.MULTILINE)  # fmt: skip
    code = "".join(
        path.read_text("utf-8") for package in PRODUCT for path in (ROOT / package).rglob("*.py")
    )
    assert sorted(said) == sorted(set(METRIC.findall(code)))


def test_the_reference_is_what_the_code_says() -> None:
    ended = run([sys.executable, "docs/reference/make.py", "--check"], timeout_s=60.0, cwd=ROOT)
    assert (ended.code, ended.out) == (0, "")
