"""Writes docs/reference from the code: `python docs/reference/make.py` (or with --check: compare).

A test runs the same comparison, so these pages can't fall behind.
"""
# ruff: noqa: INP001, T201  (a script, not a package; it speaks to whoever runs it)

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bus.messages import EXECUTORS_OF
from bus.schema import schemas
from bus.signals import catalogue
from docs.reference import asyncapi, topics_page

HERE = Path(__file__).parent
MADE = "<!-- made by docs/reference/make.py; edit the code instead -->"


def pages() -> Iterator[tuple[Path, str]]:
    """Give each page with its text."""
    for name, schema in schemas().items():
        yield HERE / "schemas" / f"{name}.json", json.dumps(schema, indent=2) + "\n"
    yield HERE / "topics.md", topics_page.page(MADE)
    yield HERE / "asyncapi.json", json.dumps(asyncapi.document(), indent=2) + "\n"
    yield HERE / "signals.md", _signals()
    yield HERE / "actions.md", _actions()


def _signals() -> str:
    rows = [
        f"| `{one.name}` | {one.kind} | {one.unit} | {one.scope} | {one.bad} | "
        f"{one.fault or '-'} | {one.help} |"
        for one in catalogue().signals.values()
    ]
    head = "| signal | kind | unit | of a | bad side | speaks for | meaning |"
    return "\n".join(["# Signals", "", MADE, "", head, "|" + "---|" * 7, *rows, ""])


def _actions() -> str:
    rows = [
        f"| {action} | {', '.join(executors) or 'none: people are told'} |"
        for action, executors in EXECUTORS_OF.items()
    ]
    return "\n".join(
        ["# Actions", "", MADE, "", "| action | executors that know it |", "|---|---|", *rows, ""],
    )


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check tell which ones differ."""
    differ = []
    for path, text in pages():
        if "--check" in arguments:
            if not path.exists() or path.read_text("utf-8") != text:
                differ.append(path.name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    for name in differ:
        print(f"{name} is not what the code says: run make docs")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
