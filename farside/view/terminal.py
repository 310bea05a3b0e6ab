"""The live view of a terminal: what is watched, how it is, when its limit is met, what happened.

On a terminal the view is redrawn in place, at most four times a second; anywhere else (a pipe, a
log file) only what changed is printed, one line each, without colour.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from farside.view.snapshot import Event, IncidentLine, Level, Row, Snapshot
from runtime.clock import Clock, Instant, SystemClock
from runtime.words import (
    bytes_text,
    duration_text,
    estimate_text,
    plain_text,
    rate_text,
    share_text,
)

FRAMES_PER_S_MAX = 4.0
WIDE = 104  # columns from which kind, page cache and a longer forecast have room
WIDEST = 132  # and from which the growth over 30 s has, too
EVENTS_SHOWN = 8
ROWS_MIN = 7
INCIDENT_INDENT = 10
LAG_TOLD_S = 10.0  # a cell that is judged so far behind its log has a line of its own
TROUBLES_SHOWN = 3
NARROW = 76  # columns below which there is no bar
_COLOURS: dict[str, str] = {
    "healthy": "green",
    "suspect": "yellow",
    "degraded": "bold red",
    "frozen": "bold cyan",
    "throttled": "bold cyan",
    "limited": "bold cyan",
    "ended": "bold cyan",
    "isolated": "bold cyan",
    "gone": "dim",
}
_LEVELS: dict[Level, str] = {
    "good": "cyan",
    "info": "default",
    "warning": "yellow",
    "critical": "bold red",
}
_ASCII = str.maketrans(
    {"\u2013": "-", "\u2212": "-", "\u2026": "~", "\u00b7": "|", "\u2501": "#", "\u2500": "."}
)


class Room(NamedTuple):
    """How many lines each part of the screen gets."""

    rows: int
    incidents: int
    events: int


class Trouble(NamedTuple):
    """One line about how well is seen; `about` is the cell, so that it is told once."""

    label: str
    text: str
    style: str
    about: str = ""


class Column(NamedTuple):
    """One column of the table of scopes."""

    header: str
    width: int
    cell: Callable[[Row], Text]
    right: bool = False


class Screen:
    """Draws snapshots on a console."""

    def __init__(
        self,
        console: Console | None = None,
        clock: Clock | None = None,
        *,
        full: bool = False,
    ) -> None:
        """Draw on `console`; `full` takes the whole screen over and gives it back at the end."""
        self._console = console or Console(highlight=False)
        self._clock = clock or SystemClock()
        self._full = full
        # Rich's own mark for what was cut off is no ASCII letter.
        self._cut: OverflowMethod = "crop" if self._console.options.ascii_only else "ellipsis"

    @property
    def redraws(self) -> bool:
        """Tell whether the view is redrawn in place; else lines are printed."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    @contextlib.contextmanager
    def live(self) -> Iterator[Callable[[Snapshot], None]]:
        """Give a function that shows a snapshot; call it as often as you like.

        What comes sooner than a quarter of a second after the last picture is dropped, except for
        the last one, which is drawn at the end. Without a terminal each call prints what changed.
        """
        if not self.redraws:
            yield self._print_changes()
            return
        latest: list[Snapshot] = []
        drawn_at = [-1.0]
        live = Live(
            console=self._console,
            auto_refresh=False,
            screen=self._full,
            vertical_overflow="crop",
        )

        def show(snapshot: Snapshot) -> None:
            latest[:] = [snapshot]
            now = self._clock.monotonic()
            if drawn_at[0] < 0 or now - drawn_at[0] >= 1 / FRAMES_PER_S_MAX:
                drawn_at[0] = now
                live.update(self.render(snapshot), refresh=True)

        with live:
            yield show
            if latest:
                live.update(self.render(latest[0]), refresh=True)

    def follow(
        self,
        ask: Callable[[], Snapshot],
        stop: threading.Event,
        period_s: float = 0.5,
    ) -> None:
        """Show what `ask` returns, again and again until `stop`, and once more at the end."""
        with self.live() as show:
            while not stop.is_set():
                show(ask())
                self._clock.wait(stop, period_s)
            show(ask())

    def render(self, snapshot: Snapshot) -> RenderableType:
        """Return one picture of the console's size."""
        width, height = self._console.size
        room = share_room(snapshot, width, height - 1)
        parts: list[RenderableType] = [
            self._header(snapshot, width),
            Text(),
            self._table(snapshot, room.rows, width),
        ]
        hidden = len(snapshot.rows) + snapshot.left_out - room.rows
        if hidden > 0:
            ill = sum(row.attention > 0 for row in snapshot.rows[room.rows :])
            trouble = f"{ill} of them in trouble" if ill else "none of them in trouble"
            parts.append(self._text(f"\u2026 and {hidden} more, {trouble}", "dim"))
        if room.incidents:
            parts += [Text(), *self._incidents(snapshot.incidents[: room.incidents], width)]
        if room.events:
            events = snapshot.events[-room.events :]
            parts += [Text(), *(self._event(event) for event in events)]
        return Group(*parts)

    # --- parts of the picture ------------------------------------------------------------------

    def _header(self, snapshot: Snapshot, width: int) -> RenderableType:
        about = snapshot.about
        left = Text(no_wrap=True)
        left.append(self._plain(f"farside  {about.host}"), style="bold")
        if snapshot.since is not None:
            ran = duration_text(max(snapshot.time.since(snapshot.since), 0))
            left.append(self._plain(f"  running for {ran}"), style="default")
        lag = (
            "no judgement yet" if snapshot.lag_s is None else duration_text(max(snapshot.lag_s, 0))
        )
        right = self._text(f"{clock_text(snapshot.time)} UTC \u00b7 lag {lag}", "dim")
        top = Table.grid(expand=True)
        top.add_column(no_wrap=True)
        top.add_column(justify="right", no_wrap=True)
        top.add_row(left, right)
        watching = about.watching or _watching(snapshot)
        lines: list[RenderableType] = [top, self._labelled("watching", watching, "default", width)]
        if about.acting is not None:
            word = "on" if about.acting else "off: nothing is touched"
            where = f" \u2013 {about.acting_on}" if about.acting_on else ""
            style = "bold cyan" if about.acting else "default"
            lines.append(self._labelled("acting", word + where, style, width))
        lines += [
            self._labelled(one.label, one.text, one.style, width) for one in troubles(snapshot)
        ]
        return Group(*lines)

    def _labelled(self, label: str, text: str, style: str, width: int) -> Text:
        line = Text(no_wrap=True, overflow=self._cut)
        line.append(f"{label:<9}", style="dim").append(self._plain(text), style=style)
        line.truncate(width, overflow=self._cut)
        return line

    def _table(self, snapshot: Snapshot, rows: int, width: int) -> Table:
        columns = self._columns(width, snapshot.time)
        table = Table(
            box=None, pad_edge=False, expand=True, header_style="dim", padding=(0, 1, 0, 0)
        )
        for column in columns:
            table.add_column(
                column.header,
                justify="right" if column.right else "left",
                width=column.width,
                no_wrap=True,
                overflow=self._cut,
            )
        for row in snapshot.rows[:rows]:
            table.add_row(*(column.cell(row) for column in columns))
        return table

    def _columns(self, width: int, now: Instant) -> list[Column]:
        """Return the columns for which there is room; the name gets what the others leave."""
        wide = width >= WIDE
        ahead = 22 if wide else 16 if width >= NARROW else 9
        bar = min(20, 8 + max(width - 80, 0) // 8)
        fixed = [
            (wide, Column("kind", 9, lambda row: self._text(row.scope.kind, "dim"))),
            (True, Column("used", 8, lambda row: self._size(row.used), right=True)),
            (width >= NARROW, Column("", bar, lambda row: self._bar(row, bar))),
            (True, Column("limit", 8, lambda row: self._size(row.limit))),
            (True, Column("growth", 10, lambda row: self._rate(row.growth_5s), right=True)),
            (
                width >= WIDEST,
                Column("over 30 s", 10, lambda row: self._rate(row.growth_30s), right=True),
            ),
            (wide, Column("file cache", 10, lambda row: self._size(row.file_bytes), right=True)),
            (True, Column("health", 9, lambda row: self._text(row.health, _colour(row)))),
            (
                True,
                Column(
                    "limit met in" if ahead > 9 else "limit in",
                    ahead,
                    lambda row: self._ahead(row, now, ahead),
                ),
            ),
        ]
        shown = [column for there, column in fixed if there]
        left = max(width - sum(column.width + 1 for column in shown) - 1, 6)
        return [Column("scope", left, lambda row: self._name(row, left)), *shown]

    def _name(self, row: Row, width: int) -> Text:
        name = row.name
        if len(name) > width and row.scope.kind == "container":
            name = "\u2026" + name[1 - width :]  # the end of a path tells more than its beginning
        return self._text(name, "bold" if row.attention else "default")

    def _ahead(self, row: Row, now: Instant, width: int) -> Text:
        ahead = ahead_text(row, now, width)
        return self._text(ahead or row.note, "bold" if ahead else "dim")

    def _size(self, size: float | None) -> Text:
        return self._text("" if size is None else bytes_text(size))

    def _rate(self, rate: float | None) -> Text:
        if rate is None:
            return Text()
        # What moves less than a KiB a second holds still, as far as an eye can follow.
        if abs(rate) < 1024:
            return self._text("0", "dim")
        return self._text(("+" if rate > 0 else "") + rate_text(rate))

    def _bar(self, row: Row, width: int) -> Text:
        if row.used is None or not row.limit:
            return Text()
        filled = min(max(round(width * row.used / row.limit), 0), width)
        bar = Text()
        bar.append(self._plain("\u2501" * filled), style=_colour(row))
        bar.append(self._plain("\u2500" * (width - filled)), style="dim")
        return bar

    def _incidents(self, incidents: Iterable[IncidentLine], width: int) -> Iterator[RenderableType]:
        fits = 3 * max(width - INCIDENT_INDENT, 20)
        for one in incidents:
            done = one.state in {"contained", "probation", "closed"}
            style = "bold cyan" if done else _LEVELS[one.severity]
            grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
            grid.add_column(no_wrap=True, width=9)
            grid.add_column(ratio=1)
            grid.add_row(
                self._text(one.state, style),
                self._text(
                    plain_text(one.sentence or one.scope.label, fits),
                    "default" if done else "bold",
                ),
            )
            yield grid

    def _event(self, event: Event) -> Text:
        line = Text(no_wrap=True, overflow=self._cut)
        line.append(f"{clock_text(event.time)} ", style="dim")
        line.append(f"{event.kind:<10} ", style=_LEVELS[event.level])
        line.append(self._plain(event.text), style="default")
        return line

    def _text(self, text: str, style: str = "default") -> Text:
        return Text(self._plain(text), style=style)

    def _plain(self, text: str) -> str:
        """Return text that this console can print."""
        shown = plain_text(text)
        if not self._console.options.ascii_only:
            return shown
        return shown.translate(_ASCII).encode("ascii", "backslashreplace").decode()

    def _print_changes(self) -> Callable[[Snapshot], None]:
        before: list[Snapshot] = []

        def show(snapshot: Snapshot) -> None:
            for line in lines(before[0] if before else None, snapshot):
                self._console.print(self._plain(line), markup=False, soft_wrap=True)
            before[:] = [snapshot]

        return show


def share_room(snapshot: Snapshot, width: int, height: int) -> Room:
    """Return how many rows, incidents and events fit into `height` lines.

    A few rows come first, then incidents, then the newest events, then the other rows.
    """
    header = (3 if snapshot.about.acting is not None else 2) + len(troubles(snapshot))
    left = height - header - 3  # a blank, the table's head, "and n more"
    incidents = min(len(snapshot.incidents), 3)
    room = max(width - INCIDENT_INDENT, 20)
    told = [-(-min(len(one.sentence), 3 * room) // room) for one in snapshot.incidents[:incidents]]
    while incidents and left - 1 - sum(told[:incidents]) < 2:
        incidents -= 1
    left -= 1 + sum(told[:incidents]) if incidents else 0
    rows = max(min(len(snapshot.rows), ROWS_MIN, left), 0)
    left -= rows
    events = max(min(len(snapshot.events), EVENTS_SHOWN, left - 1), 0)
    left -= 1 + events if events else 0
    rows += max(min(left, len(snapshot.rows) - rows), 0)
    return Room(rows, incidents, events)


def troubles(snapshot: Snapshot) -> list[Trouble]:
    """Return what keeps this screen, or the detection itself, from seeing well."""
    found = [Trouble("old news", snapshot.problem, "bold red")] if snapshot.problem else []
    for one in snapshot.cells:
        lag_s = one.lag_s or 0.0
        if one.blind:
            found.append(Trouble("blind", one.blind, "bold red", one.cell))
        elif lag_s >= LAG_TOLD_S:
            text = f"cell {one.cell} is judged {duration_text(lag_s)} behind its log"
            found.append(Trouble("behind", text, "yellow", one.cell))
    if len(found) > TROUBLES_SHOWN:
        more = f"and {len(found) - TROUBLES_SHOWN + 1} cells more are blind or behind"
        found[TROUBLES_SHOWN - 1 :] = [Trouble("also", more, "yellow")]
    return found


def _colour(row: Row) -> str:
    return _COLOURS.get(row.health, "yellow")


def ahead_text(row: Row, now: Instant, width: int) -> str:
    """Return when the limit is met, as seen now: "7 s (6-9 s)", without the range if too long."""
    end = row.exhaustion
    if end is None:
        return ""
    best_s, low_s, high_s = (moment.since(now) for moment in (end.time, end.low, end.high))
    if best_s <= 0:
        return "now"
    full = estimate_text(best_s, low_s, high_s)
    return full if len(full) <= width else duration_text(best_s)


def lines(previous: Snapshot | None, current: Snapshot) -> list[str]:
    """Return what changed, in lines without colour; at first also what is watched."""
    found = []
    if previous is None:
        about = current.about
        found.append(f"farside {about.host} watches {about.watching or _watching(current)}".strip())
        if about.acting is not None:
            where = f": {about.acting_on}" if about.acting_on else ""
            found.append(f"acting is on{where}" if about.acting else "acting is off")
    told = {(one.label, one.about) for one in troubles(previous)} if previous else set()
    found += [
        f"{one.label}: {one.text}"
        for one in troubles(current)
        if (one.label, one.about) not in told
    ]
    known = set(previous.events) if previous else set()
    fresh = [event for event in current.events if event not in known]
    missed = current.happened - (previous.happened if previous else 0) - len(fresh)
    if missed > 0:
        found.append(f"\u2026 {missed} more")
    found += [f"{clock_text(event.time)} {event.kind:<10} {event.text}" for event in fresh]
    return found


def clock_text(moment: Instant) -> str:
    """Return the time of day in UTC."""
    return moment.text()[11:19]


def render_table(pairs: Iterable[tuple[str, str]], indent: str = "") -> str:
    """Return labels and values in two columns, as plain text."""
    kept = [(plain_text(label), plain_text(value)) for label, value in pairs]
    width = max((len(label) for label, _ in kept), default=0)
    return "\n".join(f"{indent}{label:<{width}}  {value}".rstrip() for label, value in kept)


def _watching(snapshot: Snapshot) -> str:
    count = len(snapshot.rows) + snapshot.left_out
    nodes = "1 node" if snapshot.nodes == 1 else f"{snapshot.nodes} nodes"
    nearest = [row for row in snapshot.rows if row.limit and row.used and row.scope.kind != "node"]
    top = max(nearest, key=lambda row: (row.used or 0) / (row.limit or 1), default=None)
    near = ""
    if top is not None:
        near = (
            f"; nearest to its limit: {top.name}, {share_text((top.used or 0) / (top.limit or 1))}"
        )
    return f"{nodes}, {count} scopes{near}"
