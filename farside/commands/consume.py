"""`farside consume TOPIC…`: read topics, for people and as records for `replay`."""

import sys
from pathlib import Path

import click

from bus.messages import Reject
from bus.records import dump
from bus.topics import REJECTS
from bus.transport import Envelope, Source, Start
from farside.compose import Site
from farside.consuming import Filter, filters_of, line_of, passes, topics_named
from farside.options import bootstrap_option, config_option, json_option
from farside.roles import open_bus
from farside.settings import read_settings, with_bootstrap
from runtime.clock import Instant
from runtime.errors import Misconfigured, NotPermitted, Rejected, Unavailable

_LIMIT = 1000
_WAIT_S = 1.0


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

    Without --follow it ends at what is the end now. --json writes records that `farside replay`
    reads. Exit code 1: some records were no messages (they are shown as rejects).
    """
    names, filters, start = topics_named(topics), filters_of(wanted), _start(begin)
    bus = open_bus(Site(with_bootstrap(read_settings(config), bootstrap)), "consume")
    try:
        source = bus.source(names, start)
        show = _Show(filters, limit, as_json=as_json)
        source.log()  # connects: from here on a broker that goes away is waited for
        _read(source, show, follow=follow)
        source.close()
    except Unavailable as error:
        raise NotPermitted(str(error)) from None
    finally:
        bus.close()
    return 1 if show.broken else 0


class _Show:
    """Prints what passes; notes what was broken, and when there was enough."""

    def __init__(self, filters: list[Filter], limit: int | None, *, as_json: bool) -> None:
        self._filters = filters
        self._left = limit
        self._as_json = as_json
        self.broken = 0

    @property
    def enough(self) -> bool:
        return self._left == 0

    def take(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Reject) and envelope.topic != REJECTS:
            self.broken += 1
        if self.enough or not passes(message, self._filters):
            return
        line = dump(envelope) if self._as_json else line_of(envelope).encode() + b"\n"
        sys.stdout.buffer.write(line)
        if self._left is not None:
            self._left -= 1


def _read(source: Source, show: _Show, *, follow: bool) -> None:
    """Read to the end that there was at the beginning, or on and on."""
    waiting = source.lag()
    ends = {place: position + waiting[place] for place, position in source.positions().items()}
    while not show.enough:
        behind = {place: source.positions()[place] < end for place, end in ends.items()}
        if not follow and not any(behind.values()):
            break
        for envelope in source.poll(_LIMIT, _WAIT_S):
            place = (envelope.topic, envelope.partition)
            if follow or envelope.offset < ends[place]:
                show.take(envelope)
        sys.stdout.buffer.flush()
    sys.stdout.buffer.flush()


def _start(text: str) -> Start:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        return Instant.parse(text)
    except Rejected:
        raise Misconfigured(
            f"--from {text!r}: write earliest, latest or a time as 2026-11-30T12:00:00Z"
        ) from None
