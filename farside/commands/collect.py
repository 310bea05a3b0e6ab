"""`farside collect`: one role in a process of its own, over Kafka."""

from pathlib import Path

import click

from farside import roles
from farside.compose import Site
from farside.options import config_option
from farside.settings import read_settings


@click.command("collect")
@config_option
def command(config: Path | None) -> int:
    """Watch this node and send what is seen to Kafka, until Ctrl-C.

    While Kafka is away everything is kept, first in memory, then on disk.
    """
    return roles.run(Site(read_settings(config)), config, roles.collect)
