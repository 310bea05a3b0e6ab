"""`farside up`: every role in one process, on this machine's real numbers."""

import sys
from pathlib import Path

import click

from farside.compose import Site
from farside.options import config_option
from farside.parts import Parts
from farside.serving import serve
from farside.settings import read_settings
from farside.whole import build_up
from runtime import logs


@click.command("up")
@config_option
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write everything that passes over the bus to this file, as JSON Lines for replay.",
)
def command(config: Path | None, record: Path | None) -> int:
    """Watch this machine until Ctrl-C.

    It touches nothing: acting is off until the configuration switches it on for a class of faults,
    a pool of nodes and an action.
    """
    settings = read_settings(config)
    logs.set_up(settings.farside.log_level, settings.farside.log_format)
    site = Site(settings)
    assembly = build_up(site, sys.stdout, record)
    _greet(site, assembly.notes, assembly.port)
    serve(site, config, assembly.workers, Parts)
    return 0


def _greet(site: Site, notes: list[str], port: int | None) -> None:
    told = site.about()
    click.echo(f"farside {told.version} watches {told.host}: {told.watching}; Ctrl-C ends it")
    click.echo(f"acting is {'on: ' + told.acting_on if told.acting else 'off: nothing is touched'}")
    click.echo(f"state in {site.state_dir}; farside top shows it live")
    if port is not None:
        click.echo(f"metrics and health on http://{site.settings.http.address}:{port}/metrics")
    for note in notes:
        click.echo(f"  {note}")
