"""`farside demo`: a real leak on this machine is caught before it kills; nobody else is hurt."""

import sys
import tempfile
from pathlib import Path

import click
import msgspec
from rich.console import Console

from farside.demo.run import Wishes, page_of, perform
from farside.demo.summary import figures, summary
from farside.options import json_option
from farside.view.terminal import Screen
from runtime.clock import SystemClock


@click.command("demo")
@click.option("--seed", type=click.IntRange(min=0), help="Repeat the run of this seed.")
@click.option("--no-leak", is_flag=True, help="The control run: nothing leaks, no incident.")
@click.option("--hard", is_flag=True, help="Slower neighbours too, harder to tell from a leak.")
@click.option("--no-act", is_flag=True, help="Only watch: the leaking one dies at its limit.")
@click.option("--rlimit", is_flag=True, help="Limit by RLIMIT_DATA even where cgroups can be made.")
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Where the incident's page goes.  [default: farside-demo-SEED.html here]",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write everything that passed over the bus to this file, for replay and explain.",
)
@json_option
def command(
    seed: int | None,
    page: Path | None,
    record: Path | None,
    *,
    no_leak: bool,
    hard: bool,
    no_act: bool,
    rlimit: bool,
    as_json: bool,
) -> int:
    """Start a process that leaks among healthy ones that look worse, and catch only that one.

    Takes about 90 seconds, needs no root, no GPU and no Kafka. Exit code 1: it did not happen.
    """
    if seed is None:
        seed = int(SystemClock().now() // 1_000_000 % 100_000)
    wishes = Wishes(seed=seed, leak=not no_leak, hard=hard, act=not no_act, containers=not rlimit)
    console = Console(stderr=as_json, highlight=False)

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="farside-demo-") as folder:
        screen = None if as_json else Screen(console)
        plan, result, assembly = perform(wishes, Path(folder), say, screen, record)
    text = page_of(result, assembly)
    if text is not None:
        page = _write(text, page or Path(f"farside-demo-{seed}.html"))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(figures(result)) + b"\n")
    else:
        say("")
        for line in summary(plan, result):
            say(line)
        if page is not None and text is not None:
            say(f"incident page     {page.absolute()}")
    return 0 if result.kept else 1


def _write(text: str, path: Path) -> Path:
    """Write the page where it was asked for, else into the folder for temporary files."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError:
        path = Path(tempfile.gettempdir(), path.name)
        path.write_text(text, "utf-8")
    return path
