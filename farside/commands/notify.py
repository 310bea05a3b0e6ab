"""`farside notify`: one role in a process of its own, over Kafka."""

import sys
from pathlib import Path

import click

from farside import roles
from farside.compose import Site
from farside.options import config_option
from farside.settings import read_settings


@click.command("notify")
@config_option
def command(config: Path | None) -> int:
    """Tell people of incidents through the notifiers of the configuration, until Ctrl-C."""
    site = Site(read_settings(config))
    return roles.run(site, config, lambda made: roles.notify(made, sys.stdout))
