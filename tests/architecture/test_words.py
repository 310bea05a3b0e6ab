"""What no committed file may say, and what only a few places may do."""

import ast
import re
from collections import Counter
from pathlib import Path

from runtime.process import run

ROOT = Path(__file__).parents[2]
# Composed, so that this file does not match itself.
PRIVATE = re.compile(
    "|".join(
        [
            "/" + r"work/[a-z.]",  # where this was written
            r"\.\./" + "shared",
            r"\.lib" + "rary/",
            "files" + r"\.python" + "hosted",  # hosts of package indexes
            "pypi" + r"\.org/simple",
            "registry" + r"\.npm",
            "(extra-)?" + "index-" + "url [h=]",
            "/root" + "/",  # somebody's home
        ]
    )
)

# Where an error of any kind may be caught: the root of a thread, and what runs another's code for
# it. Each entry catches, counts, reports and goes on; clean-up that raises again is none.
# A new one belongs here with its reason.
BROAD = {
    "collectors/runner.py": 1,  # a collector's thread
    "runtime/service.py": 1,  # a worker's thread
}


def tracked(pattern: str = "") -> list[Path]:
    listed = run(["git", "ls-files", "-z", *([pattern] if pattern else [])], 30, cwd=ROOT)
    assert listed.code == 0, listed.err
    return [ROOT / name for name in listed.out.split("\0") if name and (ROOT / name).is_file()]


def test_no_committed_file_names_the_place_where_it_was_written_or_an_index() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for file in tracked()
        for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert found == []


def test_errors_of_any_kind_are_caught_only_where_it_was_agreed() -> None:
    found = Counter(
        str(file.relative_to(ROOT))
        for file in tracked("*.py")
        if not file.is_relative_to(ROOT / "tests")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ExceptHandler)
        if _is_broad(node.type) and not _raises_again(node)
    )
    assert dict(found) == BROAD


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(_is_broad(one) for one in caught.elts)
    return caught is None or (
        isinstance(caught, ast.Name) and caught.id in {"Exception", "BaseException"}
    )


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None
