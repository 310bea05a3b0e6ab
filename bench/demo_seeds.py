"""Twenty runs of the demo, half of them --hard: `make demo-seeds` (half an hour, nightly).

Prints one line a run while it goes and a Markdown table of the result for docs/quality.md. Ends
with 1 when a run did not keep its promise.
"""

import argparse
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from runtime.errors import Unavailable
from runtime.process import run

RUN_TIMEOUT_S = 300.0


class Run(msgspec.Struct, frozen=True):
    """What `farside demo --json` tells of one run."""

    seed: int
    kept: bool = False
    caught: bool = False
    lead_s: float | None = None
    neighbours_suspected: tuple[str, ...] = ()
    harmed: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


def main() -> int:
    """Run all seeds, print what came of them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--rlimit", action="store_true", help="limits by RLIMIT_DATA")
    asked = options.parse_args()
    runs: dict[str, list[Run]] = {"plain": [], "hard": []}
    for number in range(asked.count):
        kind = "hard" if number % 2 else "plain"
        flags = (["--hard"] if kind == "hard" else []) + (["--rlimit"] if asked.rlimit else [])
        one = performed(asked.first + number, flags)
        runs[kind].append(one)
        lead = "none" if one.lead_s is None else f"{one.lead_s:.1f} s"
        print(f"seed {one.seed} {kind}: lead {lead}", *one.failures, sep="; ", flush=True)
    print(f"\nSeeds {asked.first} to {asked.first + asked.count - 1}, {platform.platform()}\n")
    print("| runs | caught | missed | harmed | suspected neighbours | lead time, median (range) |")
    print("|---|---|---|---|---|---|")
    for kind, ones in runs.items():
        print(row(kind, ones))
    return 0 if all(one.kept for ones in runs.values() for one in ones) else 1


def performed(seed: int, flags: Sequence[str]) -> Run:
    """Run one seed; a run that gave no answer counts as missed."""
    with tempfile.TemporaryDirectory() as folder:
        page = str(Path(folder, "page.html"))
        argv = [sys.executable, "-m", "farside.main", "demo", "--json", "--page", page]
        try:
            done = run([*argv, "--seed", str(seed), *flags], RUN_TIMEOUT_S)
        except Unavailable as error:
            return Run(seed, failures=(str(error),))
    try:
        return msgspec.json.decode(done.out, type=Run)
    except msgspec.DecodeError:
        words = done.err.strip().splitlines()[-1:] or [f"exit code {done.code}"]
        return Run(seed, failures=tuple(words))


def row(kind: str, runs: Sequence[Run]) -> str:
    """Return the table's row for one kind of run."""
    caught = sum(one.caught for one in runs)
    harmed = sum(bool(one.harmed) for one in runs)
    suspected = sum(len(one.neighbours_suspected) for one in runs)
    leads_s = sorted(one.lead_s for one in runs if one.lead_s is not None)
    lead = "none"
    if leads_s:
        lead = f"{statistics.median(leads_s):.1f} s ({leads_s[0]:.1f} to {leads_s[-1]:.1f})"
    return f"| {kind}: {len(runs)} | {caught} | {len(runs) - caught} | {harmed} | {suspected} | {lead} |"


if __name__ == "__main__":
    sys.exit(main())
