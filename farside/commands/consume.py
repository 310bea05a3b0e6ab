"""`farside consume TOPIC…`: read topics, for people and as records for `replay`."""

import signal
import sys
from pathlib import Path

import click

from farside.compose import Site
from farside.consuming import Show, filters_of, read, start_of, topics_named
from farside.options import bootstrap_option, config_option, json_option
from farside.roles import open_bus
from farside.settings import read_settings, with_bootstrap
from runtime.errors import NotPermitted, Unavailable


@click.command("consume")
@click.argument("topics", nargs=-1, required=True)
@config_option
@json_option
@bootstrap_option
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "--from",
    "begin",
    default="earliest",
    metavar="earliest|latest|TIME",
    help="Where to begin (TIME as 2026-11-30T12:00:00Z).",
)
@click.option(
    "--filter",
    "wanted",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only these: type=Incident, scope.node=gpu-17 (all of several must hold).",
)
@click.option("--limit", type=click.IntRange(min=1), default=None, help="End after so many.")
def command(  # click gives each option
    topics: tuple[str, ...],
    config: Path | None,
    bootstrap: str | None,
    begin: str,
    wanted: tuple[str, ...],
    limit: int | None,
    *,
    as_json: bool,
    follow: bool,
) -> int:
    """Show the records of topics (incidents, commands, health, …), one a line.

    Without --follow it ends at what is the end now, in the order in which the log took the records
    of all topics. --json writes records that `farside replay` reads. Exit code 1: some records were
    no messages (they are shown as rejects). 3: no broker answers.
    """
    names, start = topics_named(topics), start_of(begin)
    filters = filters_of(wanted, names)
    site = Site(with_bootstrap(read_settings(config), bootstrap))
    bus = open_bus(site, "consume")
    source = bus.source(names, start)
    # SIGTERM ends it as Ctrl-C does: well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    show = Show(sys.stdout.buffer, filters, limit, as_json=as_json)
    try:
        read(source, show, site.clock, follow=follow, tell=lambda why: click.echo(why, err=True))
    except Unavailable as error:
        raise NotPermitted(str(error)) from None
    finally:
        source.close()
        bus.close()
    if show.broken:
        click.echo(f"{show.broken} records were no messages", err=True)
    return 1 if show.broken else 0
