"""`farside execute`: one role in a process of its own, over Kafka."""

from pathlib import Path

import click

from farside import roles
from farside.compose import Site
from farside.options import config_option
from farside.settings import read_settings


@click.command("execute")
@config_option
def command(config: Path | None) -> int:
    """Carry out the commands for this node or scheduler, and report, until Ctrl-C.

    Nothing is touched that the configuration does not declare as its own.
    """
    return roles.run(Site(read_settings(config)), config, roles.execute)
