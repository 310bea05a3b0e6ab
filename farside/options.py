"""Options that every command spells the same way."""

from pathlib import Path

import click

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=None,
    envvar="FARSIDE_CONFIG",
    help="The configuration (TOML); without one the defaults hold.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
bootstrap_option = click.option(
    "--bootstrap",
    metavar="HOST:PORT[,…]",
    default=None,
    help="Brokers to ask, in place of the configuration's.",
)
back_option = click.option(
    "--back",
    "back_s",
    metavar="SECONDS",
    type=click.FloatRange(min=1.0, max=30 * 86_400.0),
    default=3600.0,
    show_default=True,
    help="Over Kafka: how far back to read.",
)
