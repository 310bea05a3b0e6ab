"""`farside top`: the live view, of a farside on this machine or of a whole cluster over Kafka."""

import threading
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from farside.local import Ask, ask
from farside.options import back_option, bootstrap_option, config_option, json_option
from farside.settings import read_settings, with_bootstrap
from farside.view.snapshot import Snapshot
from farside.view.terminal import Screen

_PERIOD_S = 0.5
_READ_PERIOD_S = 0.05  # over Kafka looking itself takes time


@click.command("top")
@config_option
@bootstrap_option
@back_option
@json_option
@click.option("--once", is_flag=True, help="Show it once and end.")
def command(
    config: Path | None, bootstrap: str | None, back_s: float, *, as_json: bool, once: bool
) -> int:
    """Show scopes, growth, time to exhaustion, incidents and events, and how well cells are seen.

    Where the bus is Kafka the topics are read; else the farside that runs on this machine is asked.
    """
    settings = with_bootstrap(read_settings(config), bootstrap)
    if settings.bus.kind == "kafka":
        from farside import topics_view
        from farside.compose import Site

        with topics_view.opened(Site(settings), "top", back_s) as view:
            view.begin()
            if as_json:
                click.echo(view.snapshot().to_json())
                return 0

            def look() -> Snapshot:
                view.look()
                return view.snapshot()

            return _show(view.snapshot(), look, _READ_PERIOD_S, once=once)
    folder, question = settings.farside.state_path(), Ask(want="snapshot")
    first = ask(folder, question)
    if as_json:
        click.echo(first)
        return 0
    return _show(
        Snapshot.of_json(first),
        lambda: Snapshot.of_json(ask(folder, question)),
        _PERIOD_S,
        once=once,
    )


def _show(first: Snapshot, look: Callable[[], Snapshot], period_s: float, *, once: bool) -> int:
    console = Console(highlight=False)
    screen = Screen(console, full=not once)
    if once or not screen.redraws:
        console.print(screen.render(first))
        return 0
    screen.follow(look, threading.Event(), period_s)
    return 0
