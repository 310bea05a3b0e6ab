"""How well is seen, on the screen: cells that are judged too late, blind ones, news that is old."""

import io

from msgspec import structs
from rich.console import Console

from bus.messages import Incident, IncidentState, Message, Scope, Source, Watermark
from bus.topics import INCIDENTS, SUSPICIONS
from bus.transport import Envelope
from farside.view.snapshot import CellLine, Snapshot
from farside.view.story import Story
from farside.view.terminal import Screen, lines, share_room, troubles
from runtime.clock import Instant, ManualClock

T = Instant.parse("2026-11-30T12:00:00Z")
SENTENCE = "cell a is judged 92 s behind its log: nothing there is acted on"


def story(*told: tuple[float, Message]) -> Story:
    found = Story()
    for second, message in told:
        topic = INCIDENTS if isinstance(message, Incident) else SUSPICIONS
        found.see(Envelope(topic, 0, 0, T.plus(second), "", message))
    return found


def mark(cell: str, time_s: float, head_s: float) -> Watermark:
    source = Source(partition=0, offset=int(time_s))
    return Watermark(cell=cell, time=T.plus(time_s), head_time=T.plus(head_s), source=source)


def blind(cell: str, second: float, state: IncidentState = "open") -> Incident:
    return Incident(
        id=f"blind-{cell}",
        scope=Scope("cell", cell),
        state=state,
        severity="warning",
        opened=T,
        updated=T.plus(second),
        sentence=SENTENCE,
        fault="telemetry",
    )


def drawn(snapshot: Snapshot, width: int = 100, height: int = 24) -> list[str]:
    out = io.StringIO()
    console = Console(width=width, height=height, force_terminal=True, color_system=None, file=out)
    console.print(Screen(console, ManualClock()).render(snapshot))
    return out.getvalue().splitlines()


def test_a_cell_lags_by_what_its_watermark_says() -> None:
    (cell,) = story((30.0, mark("a", 8.0, 30.0))).snapshot(T.plus(30)).cells
    assert (cell.cell, cell.lag_s, cell.judged, cell.heard) == ("a", 22.0, T.plus(8), T.plus(30))


def test_a_scorer_that_says_nothing_falls_behind() -> None:
    snapshot = story((30.0, mark("a", 29.0, 30.0))).snapshot(T.plus(95))
    assert snapshot.lag_s == 1.0 + 65.0 - 5.0


def test_a_second_between_two_watermarks_is_no_lag() -> None:
    assert story((30.0, mark("a", 30.0, 30.0))).snapshot(T.plus(31)).lag_s == 0.0


def test_a_blind_cell_stands_first_with_its_sentence() -> None:
    seen = story((1.0, mark("b", 0.0, 60.0)), (1.0, mark("a", 0.0, 1.0)), (2.0, blind("a", 2.0)))
    assert [(one.cell, one.blind) for one in seen.snapshot(T.plus(2)).cells] == [
        ("a", SENTENCE),
        ("b", ""),
    ]


def test_a_cell_is_blind_although_no_watermark_of_it_is_known() -> None:
    (cell,) = story((2.0, blind("a", 2.0))).snapshot(T.plus(2)).cells
    assert (cell.cell, cell.lag_s, cell.blind) == ("a", None, SENTENCE)


def test_a_cell_that_sees_again_is_not_blind() -> None:
    seen = story(
        (1.0, mark("a", 1.0, 1.0)), (2.0, blind("a", 2.0)), (3.0, blind("a", 3.0, "closed"))
    )
    assert [one.blind for one in seen.snapshot(T.plus(3)).cells] == [""]


def test_the_screen_says_what_is_blind_and_what_is_behind_and_still_fits() -> None:
    cells = (CellLine(cell="a", blind=SENTENCE), CellLine(cell="b", lag_s=35.0))
    shown = drawn(Snapshot(time=T, lag_s=35.0, cells=cells))
    assert "blind    " + SENTENCE in [line.rstrip() for line in shown]
    assert "behind   cell b is judged 35 s behind its log" in [line.rstrip() for line in shown]
    assert len(shown) < 24


def test_the_screen_says_that_its_news_are_old() -> None:
    snapshot = Snapshot(time=T, problem="Kafka at k:9092 does not answer")
    assert "old news Kafka at k:9092 does not answer" in [line.rstrip() for line in drawn(snapshot)]


def test_a_small_lag_needs_no_line() -> None:
    assert troubles(Snapshot(time=T, cells=(CellLine(cell="a", lag_s=2.0),))) == []


def test_many_cells_in_trouble_take_three_lines() -> None:
    cells = tuple(CellLine(cell=f"c{number}", lag_s=60.0) for number in range(20))
    found = troubles(Snapshot(time=T, cells=cells))
    assert len(found) == 3
    assert found[-1].text == "and 18 cells more are blind or behind"
    assert share_room(Snapshot(time=T, cells=cells), 100, 24).rows == 0


def test_without_a_terminal_each_trouble_is_printed_once() -> None:
    first = Snapshot(time=T, cells=(CellLine(cell="a", lag_s=35.0),))
    later = structs.replace(first, cells=(CellLine(cell="a", lag_s=70.0),))
    assert "behind: cell a is judged 35 s behind its log" in lines(None, first)
    assert lines(first, later) == []


def test_it_survives_the_way_to_another_farside() -> None:
    seen = story((1.0, mark("a", 0.0, 60.0)), (2.0, blind("a", 2.0))).snapshot(T.plus(2))
    assert Snapshot.of_json(seen.to_json()) == seen
