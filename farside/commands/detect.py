"""`farside detect`: one role in a process of its own, over Kafka."""

from pathlib import Path

import click

from farside import roles
from farside.compose import Site
from farside.options import config_option
from farside.settings import read_settings
from runtime.errors import Misconfigured


@click.command("detect")
@config_option
@click.option("--cell", "cells", multiple=True, help="Score only this cell (may be repeated).")
@click.option(
    "--decider/--no-decider",
    "decides",
    default=True,
    help="Whether to run the decider here, too; a fleet has one.",
)
@click.option(
    "--group",
    default="",
    metavar="NAME",
    help="Share the cells with all processes of this group; they need one state_dir together.",
)
def command(config: Path | None, cells: tuple[str, ...], group: str, *, decides: bool) -> int:
    """Score the telemetry of cells, and decide for the fleet, until Ctrl-C."""
    if cells and group:
        raise Misconfigured("--cell and --group exclude each other: a group gives the cells out")
    site = Site(read_settings(config))

    def make(made: Site) -> roles.Role:
        return roles.detect(made, cells, decides=decides, group=group)

    return roles.run(site, config, make)
