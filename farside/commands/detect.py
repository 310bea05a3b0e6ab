"""`farside detect`: one role in a process of its own, over Kafka."""

from pathlib import Path

import click

from farside import roles
from farside.compose import Site
from farside.options import config_option
from farside.settings import read_settings


@click.command("detect")
@config_option
@click.option("--cell", "cells", multiple=True, help="Score only this cell (may be repeated).")
@click.option(
    "--decider/--no-decider",
    "decides",
    default=True,
    help="Whether to run the decider here, too; a fleet has one.",
)
def command(config: Path | None, cells: tuple[str, ...], *, decides: bool) -> int:
    """Score the telemetry of cells, and decide for the fleet, until Ctrl-C."""
    site = Site(read_settings(config))
    return roles.run(site, config, lambda made: roles.detect(made, cells, decides=decides))
