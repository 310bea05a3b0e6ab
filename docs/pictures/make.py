#!/usr/bin/env python3
"""Make the pictures of the documentation from a recorded run (`farside up --record`, the demo).

    python docs/pictures/make.py RECORD [--onset TIME --limit-time TIME] [--only farside-demo-7/]

writes beside this file: terminal.svg and terminal.png (the live view when the act was ordered, or
at --at), incident-page.png and incident-page-dark.png. The PNG files need a Chromium, which reads
files of this machine only; without one the SVG is made, and the command that brings it is printed.
"""

import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import click
from msgspec import structs
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from bus.messages import Incident, IsolationCommand, SampleBatch
from bus.records import Broken, load
from bus.samples import Samples
from bus.transport import Envelope
from farside.view.cases import Truth
from farside.view.page import incident_page
from farside.view.snapshot import About, Snapshot
from farside.view.story import Story
from farside.view.terminal import Screen
from runtime.clock import Instant
from runtime.errors import FarsideError, NotPermitted, Rejected
from runtime.process import run

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BRING = "apt-get install -y --no-install-recommends chromium fonts-dejavu-core"
COLUMNS, LINES = 112, 26
TITLE_HEIGHT = 26
# Colours that keep a contrast of 4.5 or more on the dark ground and are told apart by the
# colour-blind (after Okabe and Ito); rich asks for eight plain and eight bright ones.
THEME = TerminalTheme(
    (20, 23, 26),
    (222, 226, 230),
    [(60, 66, 72), (255, 123, 114), (69, 203, 162), (240, 192, 74),
     (98, 181, 238), (213, 150, 190), (110, 205, 230), (222, 226, 230)],
    [(120, 128, 136), (255, 145, 137), (95, 220, 182), (246, 207, 110),
     (130, 200, 245), (225, 172, 205), (140, 220, 240), (255, 255, 255)],
)  # fmt: skip
# Rich's own frame fetches a font from the network; this one takes what the reader has.
FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" \
xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
<rect fill="#14171a" width="{width}" height="{height}" rx="10"/>
<g transform="translate({terminal_x}, {terminal_y})" \
clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@click.command()
@click.argument("record", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=HERE)
@click.option("--onset", help="When the leak began (RFC 3339), where it is known.")
@click.option("--limit-time", help="When it would have met its limit (RFC 3339).")
@click.option("--at", "moment", help="The moment of the terminal's picture (RFC 3339).")
@click.option("--acting-on", default="", help="What the view says behind: acting on.")
@click.option("--only", default="", help="Leave out containers and processes without this text.")
@click.option("--height", default=2080, help="Pixels of the page that its picture shows.")
def make(
    record: Path,
    out: Path,
    onset: str | None,
    limit_time: str | None,
    moment: str | None,
    acting_on: str,
    only: str,
    height: int,
) -> None:
    """Make all pictures from RECORD, a file of JSON Lines."""
    envelopes = [narrowed(one, only) for one in read(record)]
    out.mkdir(parents=True, exist_ok=True)
    end = Instant.parse(moment) if moment else moment_of(envelopes)
    about = About(acting=True, acting_on=acting_on, host=host_of(envelopes))
    terminal = out / "terminal.svg"
    terminal.write_text(terminal_picture(snapshot_at(envelopes, end, about)), "utf-8")
    click.echo(f"made {terminal}")
    truth = None
    if onset and limit_time:
        truth = Truth(Instant.parse(onset), Instant.parse(limit_time))
    browser = find_browser()
    photograph(browser, terminal, out / "terminal.png", size_of(terminal))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "incident.html"
        page.write_text(page_of(envelopes, truth), "utf-8")
        photograph(browser, page, out / "incident-page.png", (1200, height))
        photograph(browser, page, out / "incident-page-dark.png", (1200, height), dark=True)


def read(path: Path) -> list[Envelope]:
    """Return the records of a file; `Rejected` at a line that is none."""
    with path.open("rb") as lines:
        found = list(load(lines))
    broken = next((one for one in found if isinstance(one, Broken)), None)
    if broken is not None:
        raise Rejected(f"{path} line {broken.line}: {broken.reason}: {broken.detail}")
    return [one for one in found if isinstance(one, Envelope)]


def narrowed(envelope: Envelope, only: str) -> Envelope:
    """Return a record without the readings of things whose name lacks a text.

    A machine runs much that has nothing to do with what a picture is to show.
    """
    batch = envelope.message
    if not only or not isinstance(batch, SampleBatch):
        return envelope
    kept = Samples.of(one for one in batch.samples if not one.device or only in one.device)
    return envelope._replace(message=structs.replace(batch, samples=kept))


def host_of(envelopes: Iterable[Envelope]) -> str:
    """Return the node of the first incident."""
    return next(
        (one.message.scope.node for one in envelopes if isinstance(one.message, Incident)), ""
    )


def moment_of(envelopes: list[Envelope]) -> Instant:
    """Return when the first act was ordered: the moment at which the view shows most."""
    ordered = [
        one.appended
        for one in envelopes
        if isinstance(one.message, IsolationCommand)
        and one.message.action not in {"notify", "release"}
    ]
    if ordered:
        return ordered[0]
    return max(one.appended for one in envelopes)


def snapshot_at(envelopes: Iterable[Envelope], moment: Instant, about: About) -> Snapshot:
    """Return what the screen showed at a moment."""
    story = Story(about=about)
    story.see_all(one for one in envelopes if one.appended <= moment)
    return story.snapshot(moment)


def terminal_picture(snapshot: Snapshot) -> str:
    """Return the live view as SVG."""
    console = Console(
        width=COLUMNS,
        height=LINES,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
    )
    console.print(Screen(console).render(snapshot))
    picture = console.export_svg(
        title="farside",
        theme=THEME,
        code_format=FRAME,
        font_aspect_ratio=0.602,
        unique_id="farside",
    )
    # Rich leaves room above for a window's title; there is none here.
    return _lowered(picture, TITLE_HEIGHT)


def _lowered(picture: str, by: int) -> str:
    head, box, rest = re.split(r'(viewBox="0 0 [\d.]+ [\d.]+")', picture, maxsplit=1)
    width, height = box.split('"')[1].split()[2:]
    lower = f"{float(height) - by:g}"
    ground = f'width="{width}" height="{height}" rx'
    rest = rest.replace(ground, f'y="{by}" width="{width}" height="{lower}" rx', 1)
    return f'{head}viewBox="0 {by} {width} {lower}"{rest}'


def page_of(envelopes: list[Envelope], truth: Truth | None) -> str:
    """Return the page of the record's first incident."""
    story = Story(window_s=86_400, points_max=5000)
    story.see_all(envelopes)
    incidents = story.incidents()
    if not incidents:
        raise Rejected("the record holds no incident: record a run in which one was opened")
    return incident_page(story, incidents[0].id, truth)


def find_browser() -> str:
    """Return a Chromium; `NotPermitted` with the command that brings one."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise NotPermitted(f"no PNG was made: there is no chromium here; {BRING}")
    return found


def size_of(picture: Path) -> tuple[int, int]:
    """Return the size of an SVG from its view box, in whole pixels."""
    box = picture.read_text("utf-8").split('viewBox="', 1)[1].split('"', 1)[0]
    width, height = (float(part) for part in box.split()[2:])
    return round(width), round(height)


def photograph(
    browser: str, source: Path, target: Path, size: tuple[int, int], *, dark: bool = False
) -> None:
    """Make a PNG of what the browser shows of a file."""
    with tempfile.TemporaryDirectory() as profile:
        argv = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--screenshot={target.resolve()}", f"--window-size={size[0]},{size[1]}",
            *(["--force-dark-mode"] if dark else []), source.resolve().as_uri(),
        ]  # fmt: skip
        finished = run(argv, timeout_s=120)
    if finished.code != 0 or not target.exists():
        raise NotPermitted(f"{browser} made no {target.name}: {finished.err.strip()[-300:]}")
    click.echo(f"made {target}")


if __name__ == "__main__":
    try:
        make()
    except FarsideError as error:
        click.echo(f"make.py: {error}", err=True)
        sys.exit(3 if isinstance(error, NotPermitted) else 1)
