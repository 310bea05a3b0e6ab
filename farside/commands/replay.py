"""`farside replay FILE…`: judge recorded telemetry again, one JSON object a line."""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from bus.codec import to_json
from bus.records import Broken, lines_of, load
from farside.options import config_option, json_option
from farside.parts import Parts
from farside.replaying import Replay
from farside.settings import read_settings
from runtime.errors import Misconfigured


@click.command("replay")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@config_option
@json_option
def command(files: tuple[Path, ...], config: Path | None, *, as_json: bool) -> int:
    """Judge records (JSON Lines, - for standard input) as if they came now.

    Prints one JSON object a line for every suspicion, incident, command and refusal. A line that is
    no record is told on standard error and counted; the exit code is then 1.
    """
    del as_json  # there is only one form
    parts = Parts(read_settings(config))
    broken = 0
    with tempfile.TemporaryFile() as spool:
        answered = _spool(files, spool)
        spool.seek(0)
        replay = Replay(parts, answered=answered)
        out = sys.stdout.buffer
        for found in load(lines_of(spool)):
            if isinstance(found, Broken):
                broken += 1
                click.echo(f"line {found.line}: {found.reason}: {found.detail}", err=True)
                continue
            for message in replay.see(found):
                out.write(to_json(message) + b"\n")
        out.flush()
    if broken:
        click.echo(f"{broken} of the lines were no records", err=True)
    return 1 if broken else 0


def _spool(files: Iterable[Path], spool: BinaryIO) -> bool:
    """Join all input into one file; tell whether an executor's report is anywhere in it."""
    answered = False
    for path in files:
        for line in _from(path):
            answered = answered or b'"ExecutionReport"' in line
            spool.write(line if line.endswith(b"\n") else line + b"\n")
    return answered


def _from(path: Path) -> Iterator[bytes]:
    if str(path) == "-":
        yield from lines_of(sys.stdin.buffer)
        return
    try:
        with path.open("rb") as file:
            yield from lines_of(file)
    except OSError as error:
        msg = f"{path} can't be read: {(error.strerror or '').lower()}"
        raise Misconfigured(msg) from None
