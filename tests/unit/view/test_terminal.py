import io
import re
import threading

from rich.cells import cell_len
from rich.console import Console

from bus.messages import Exhaustion, Scope
from farside.view.snapshot import About, Event, IncidentLine, Row, Snapshot
from farside.view.story import Story
from farside.view.terminal import Screen, ahead_text, lines, render_table
from runtime.clock import Instant, ManualClock
from tests.unit.view import composed

ABOUT = About(host="gpu-0421", acting=True, acting_on="freeze below /farside-demo-7")
DASH = "\u2013"
FAULT = "memory leak"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def at(second: float) -> Snapshot:
    story = Story(about=ABOUT)
    story.see_all(one for one in composed.record() if one.appended <= composed.at(second))
    return story.snapshot(composed.at(second))


def screen(width: int, height: int, *, terminal: bool = True, encoding: str = "utf-8") -> Screen:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        width=width, height=height, force_terminal=terminal, file=out, highlight=False
    )
    return Screen(console, ManualClock())


def drawn(view: Screen, snapshot: Snapshot) -> str:
    console = view._console  # noqa: SLF001  # what was written is the test's business
    console.print(view.render(snapshot))
    return written(view)


def written(view: Screen) -> str:
    out = view._console.file  # noqa: SLF001
    assert isinstance(out, io.TextIOWrapper)
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return out.buffer.getvalue().decode()


def plain(text: str) -> list[str]:
    return ESCAPES.sub("", text).splitlines()


def test_the_view_fits_the_terminal_at_any_time_of_the_run() -> None:
    for second in (0, 30, 50, 70.5, 71.3, 95):
        for width, height in ((80, 24), (120, 40), (60, 16)):
            shown = plain(drawn(screen(width, height), at(second)))
            assert len(shown) < height
            assert max(map(cell_len, shown)) <= width


def test_the_view_tells_who_leaks_and_when_its_limit_is_met() -> None:
    shown = "\n".join(plain(drawn(screen(80, 24), at(70.1))))
    assert re.search(
        r"ingest +204 MiB .* 228 MiB +\+3\.4 MiB/s degraded +7 s \(6\u20139 s\)", shown
    )
    assert "open      container /farside-demo-7/ingest on gpu-0421 leaks 3.4 MiB/s" in shown
    assert "acting   on \u2013 freeze below /farside-demo-7" in shown
    assert "09:27:08 suspicion  ingest: degraded (memory leak, 99 % sure)" in shown


def test_the_view_tells_that_it_was_frozen_and_until_when() -> None:
    shown = "\n".join(plain(drawn(screen(120, 40), at(75))))
    assert re.search(r"ingest +container .* frozen +lifted in 9 min", shown)


def test_more_rows_than_fit_are_counted() -> None:
    rows = tuple(
        Row(scope=Scope("process", "", "n", f"p:{i}:1"), name=f"p ({i})", used=1e6)
        for i in range(90)
    )
    shown = plain(drawn(screen(80, 24), Snapshot(time=Instant(0), rows=rows, left_out=10)))
    assert shown[-1].startswith("\u2026 and ")
    assert (
        int(shown[-1].split()[2]) + sum("1.0 MiB" in one or "977 KiB" in one for one in shown)
        == 100
    )


def test_nothing_is_coloured_in_a_pipe_and_only_changes_are_printed() -> None:
    view = screen(80, 24, terminal=False)
    with view.live() as show:
        for second in (30, 30.2, 50, 70.05, 70.05):
            show(at(second))
    text = written(view)
    assert "\x1b" not in text
    assert text.splitlines() == [
        "farside gpu-0421 watches 1 node, 7 scopes; nearest to its limit: idle, 67 %",
        "acting is on: freeze below /farside-demo-7",
        "09:26:31 log        kernel: hrtimer: interrupt took 51234 ns",
        f"09:26:48 suspicion  ingest: suspect ({FAULT}, 75 % sure); limit in 28 s (24{DASH}35 s)",
        f"09:27:08 suspicion  ingest: degraded ({FAULT}, 99 % sure); limit in 9 s (7{DASH}11 s)",
        f"09:27:10 incident   open: {composed.GROWS} in 7 s (6{DASH}9 s)",
    ]


def test_events_that_did_not_fit_between_two_snapshots_are_counted() -> None:
    events = tuple(Event(time=Instant(i), kind="log", text=str(i)) for i in range(3))
    before = Snapshot(time=Instant(0), happened=0)
    assert lines(before, Snapshot(time=Instant(9), events=events, happened=10)) == [
        "\u2026 7 more",
        "00:00:00 log        0",
        "00:00:00 log        1",
        "00:00:00 log        2",
    ]


def test_a_name_can_neither_colour_nor_move_nor_break_the_view() -> None:
    evil = "[red]\x1b[2J\x1b]0;owned\x07[/] \u202egnp\n" + "w" * 300
    scope = Scope("process", "", evil, f"{evil}:1:2")
    snapshot = Snapshot(
        time=Instant(0),
        about=About(host=evil, watching=evil, acting=True, acting_on=evil),
        rows=(Row(scope=scope, name=evil, used=1.0, health=evil, note=evil),),
        incidents=(
            IncidentLine(
                id="i", scope=scope, state="open", severity="critical", sentence=evil,
                opened=Instant(0), updated=Instant(0),
            ),
        ),
        events=(Event(time=Instant(0), kind="log", text=evil),),
    )  # fmt: skip
    text = drawn(screen(80, 24), snapshot)
    shown = plain(text)
    assert max(map(cell_len, shown)) <= 80
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert any("[red]\\x1b[2J" in one for one in shown)


def test_a_terminal_without_unicode_gets_plain_letters() -> None:
    text = drawn(screen(80, 24, encoding="ascii"), at(75))
    assert text.isascii()
    assert any("#######." in one for one in plain(text))


def test_the_picture_is_drawn_at_most_four_times_a_second_and_the_last_one_always() -> None:
    clock = ManualClock()
    out = io.StringIO()
    view = Screen(Console(width=80, height=24, force_terminal=True, file=out), clock)
    with view.live() as show:
        for i in range(40):
            show(Snapshot(time=Instant(0), about=About(host=f"picture-{i}-")))
            clock.advance(0.1)
    shown = sorted({int(found) for found in re.findall(r"picture-(\d+)-", out.getvalue())})
    assert shown == [*range(0, 39, 3), 39]


def test_following_ends_with_the_state_at_the_end() -> None:
    stop = threading.Event()
    seen: list[int] = []
    out = io.StringIO()

    def ask() -> Snapshot:
        seen.append(len(seen))
        if len(seen) == 3:
            stop.set()
        events = tuple(Event(time=Instant(i), kind="log", text=f"event {i}") for i in seen)
        return Snapshot(time=Instant(0), events=events)

    Screen(Console(file=out, width=80), ManualClock()).follow(ask, stop)
    assert [one.split()[-1] for one in out.getvalue().splitlines()[1:]] == ["0", "1", "2", "3"]


def test_a_range_that_does_not_fit_is_left_out() -> None:
    end = Exhaustion(
        time=composed.at(150), low=composed.at(125), high=composed.at(3000), used=1.0, limit=2.0
    )
    row = Row(scope=Scope("node", "", "n"), name="n", exhaustion=end)
    assert ahead_text(row, composed.at(0), 40) == "2 min 30 s (2 min 5 s \u2013 50 min)"
    assert ahead_text(row, composed.at(0), 16) == "2 min 30 s"
    assert ahead_text(row, composed.at(200), 16) == "now"


def test_labels_and_values_stand_in_columns() -> None:
    assert render_table([("onset", "22 s"), ("lead time", "6 s")]) == (
        "onset      22 s\nlead time  6 s"
    )
