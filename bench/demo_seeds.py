"""The demo over many seeds, half of them --hard: `python -m bench.demo_seeds [--seeds 20]`.

Prints a line for each run as it ends, then the table that docs/quality.md keeps: caught, missed,
harmed, lead time. Exit code 1 when a run did not keep its promise. Runs go one after another: on a
machine with two demos each would see the other's leak.
"""

import argparse
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import msgspec

from runtime.process import run

RUN_S = 240.0


def performed(seed: int, *, hard: bool, page: Path) -> dict[str, Any]:
    """Run the demo of one seed and return its figures."""
    options = ["--seed", str(seed), "--json", "--page", str(page), *(["--hard"] if hard else [])]
    ended = run([sys.executable, "-m", "farside.main", "demo", *options], timeout_s=RUN_S)
    try:
        figures: dict[str, Any] = msgspec.json.decode(ended.out)
    except msgspec.DecodeError:
        last = (ended.err.strip().splitlines() or ["no word"])[-1]
        return {"seed": seed, "mode": "hard" if hard else "plain", "failures": [str(last)]}
    return figures


def line_of(one: dict[str, Any]) -> str:
    """Return one row of the table."""

    def number(name: str, digits: int = 1) -> str:
        value = one.get(name)
        return "-" if value is None else f"{value:.{digits}f}"

    verdict = "; ".join(one["failures"]) or "kept"
    suspected = ", ".join(one.get("neighbours_suspected", [])) or "-"
    return (
        f"| {one['seed']} | {one['mode']} | {number('onset_s')} | {number('limit_s')} | "
        f"{number('suspected_s')} | {number('forecast_error_percent', 0)} | "
        f"{number('executed_s')} | {number('lead_s')} | {suspected} | {verdict} |"
    )


def main() -> int:
    """Run all seeds and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--first", type=int, default=100)
    options.add_argument("--pages", type=Path, default=Path("out/demo-seeds"))
    given = options.parse_args()
    out = sys.stdout
    out.write(f"Python {platform.python_version()}, {platform.platform()}\n\n")
    out.write(
        "| seed | mode | onset s | limit s | suspected s | forecast error % | frozen s | "
        "lead s | neighbours suspected | verdict |\n" + "|---" * 10 + "|\n",
    )
    runs = []
    for number in range(given.seeds):
        seed, hard = given.first + number, number % 2 == 1
        one = performed(seed, hard=hard, page=given.pages / f"{seed}.html")
        runs.append(one)
        out.write(line_of(one) + "\n")
        out.flush()
    caught = sum(bool(one.get("caught")) for one in runs)
    leads = [one["lead_s"] for one in runs if one.get("lead_s") is not None]
    errors = [
        abs(one["forecast_error_percent"])
        for one in runs
        if one.get("forecast_error_percent") is not None
    ]
    covers = [one["forecast_covers"] for one in runs if one.get("forecast_covers") is not None]
    harmed = sum(len(one.get("harmed", [])) for one in runs)
    acted = sum(len(one.get("neighbours_acted_on", [])) for one in runs)
    out.write(f"\n| runs | {len(runs)} |\n|---|---|\n")
    out.write(f"| caught before the limit | {caught} |\n| missed | {len(runs) - caught} |\n")
    out.write(f"| neighbours harmed or acted on | {harmed} or {acted} |\n")
    if leads:
        out.write(f"| lead time, median (least) | {statistics.median(leads):.1f} s ")
        out.write(f"({min(leads):.1f} s) |\n")
    if errors:
        out.write(f"| first forecast, median error | {statistics.median(errors):.0f} % |\n")
        out.write(f"| intervals that cover the truth | {sum(covers)} of {len(covers)} |\n")
    return 0 if all(not one["failures"] for one in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
