"""`farside top`: the live view of a farside that runs on this machine."""

import threading
from pathlib import Path

import click
from rich.console import Console

from farside.local import Ask, ask
from farside.options import config_option, json_option
from farside.settings import read_settings
from farside.view.snapshot import Snapshot
from farside.view.terminal import Screen


@click.command("top")
@config_option
@json_option
@click.option("--once", is_flag=True, help="Show it once and end.")
def command(config: Path | None, *, as_json: bool, once: bool) -> int:
    """Show scopes, growth, time to exhaustion, incidents and events of a running farside."""
    folder = read_settings(config).farside.state_path()
    question = Ask(want="snapshot")
    if as_json:
        click.echo(ask(folder, question))
        return 0
    console = Console(highlight=False)
    screen = Screen(console, full=not once)
    first = Snapshot.of_json(ask(folder, question))
    if once or not screen.redraws:
        console.print(screen.render(first))
        return 0
    screen.follow(lambda: Snapshot.of_json(ask(folder, question)), threading.Event())
    return 0
