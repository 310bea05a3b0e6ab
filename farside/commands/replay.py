"""`farside replay FILE…`: judge recorded telemetry again, one JSON object a line."""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from bus.codec import to_json
from bus.messages import Message
from bus.records import Broken, lines_of, load
from farside.journaled import JournaledReplay, Records, order_of
from farside.options import config_option, json_option
from farside.parts import Parts
from farside.replaying import Replay
from farside.settings import read_settings
from runtime.errors import Misconfigured


@click.command("replay")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    help="Feed the decider alone, in the order of its journal (a state_dir, or a file in it).",
)
@config_option
@json_option
def command(
    files: tuple[Path, ...], journal: Path | None, config: Path | None, *, as_json: bool
) -> int:
    """Judge records (JSON Lines, - for standard input) as if they came now.

    Prints one JSON object a line for every suspicion, incident, command and refusal. A line that is
    no record is told on standard error and counted; the exit code is then 1. Records that the
    scorer can't use are counted by reason.

    With --journal the records of suspicions, reports, inventory and directives go to the decider
    alone, in the order in which it took them live: it says what it published, under the same
    configuration with the same identifiers. What the file or the journal lacks is told; the exit
    code is then 1.
    """
    del as_json  # there is only one form
    parts = Parts(read_settings(config))
    with tempfile.TemporaryFile() as spool:
        answered = _spool(files, spool)
        spool.seek(0)
        if journal is not None:
            return _journaled(parts, spool, journal)
        return _judged(Replay(parts, answered=answered), spool)


def _judged(replay: Replay, spool: BinaryIO) -> int:
    """Judge everything again; return the exit code."""
    broken = 0
    for found in load(lines_of(spool)):
        if isinstance(found, Broken):
            broken += 1
            _tell_broken(found)
        else:
            _print(replay.see(found))
    sys.stdout.buffer.flush()
    for line in replay.rejections.lines():
        click.echo(line, err=True)
    return _end(broken)


def _journaled(parts: Parts, spool: BinaryIO, journal: Path) -> int:
    """Let the decider alone take what it took; return the exit code."""
    order = order_of(journal)
    records = Records(spool, order.places)
    for broken in records.broken:
        _tell_broken(broken)
    for problem in order.problems:
        click.echo(problem, err=True)
    if order.passed_over:
        click.echo(f"{order.passed_over} turns of an earlier log are passed over", err=True)
    replay = JournaledReplay(parts.decider(), records)
    for turn in order.turns():
        _print(replay.take(turn))
    sys.stdout.buffer.flush()
    for line in replay.missing_told:
        click.echo(line, err=True)
    if replay.missing:
        click.echo(f"{replay.missing} records that the journal names are missing", err=True)
    code = _end(len(records.broken))
    return 1 if replay.missing or order.problems else code


def _print(messages: Iterable[Message]) -> None:
    for message in messages:
        sys.stdout.buffer.write(to_json(message) + b"\n")


def _tell_broken(found: Broken) -> None:
    click.echo(f"line {found.line}: {found.reason}: {found.detail}", err=True)


def _end(broken: int) -> int:
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
        # Python has no standard input where it was closed by whoever started us.
        if sys.stdin is None:
            raise Misconfigured("- means standard input, which is closed: name a file instead")
        yield from lines_of(sys.stdin.buffer)
        return
    try:
        with path.open("rb") as file:
            yield from lines_of(file)
    except OSError as error:
        msg = f"{path} can't be read: {(error.strerror or '').lower()}"
        raise Misconfigured(msg) from None
