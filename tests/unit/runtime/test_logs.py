import io
import json
from collections.abc import Iterator

import pytest
import structlog

from runtime import logs
from runtime.clock import Instant, ManualClock


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_one_json_object_with_its_time_and_facts() -> None:
    stream = io.StringIO()
    clock = ManualClock(Instant.parse("2026-03-01T12:00:00Z"))
    logs.set_up(stream=stream, clock=clock)
    logs.get(worker="scorer").info("checkpoint saved", size_bytes=81)
    assert list(json.loads(stream.getvalue()).items()) == [
        ("timestamp", "2026-03-01T12:00:00.000000000Z"),
        ("level", "info"),
        ("event", "checkpoint saved"),
        ("worker", "scorer"),
        ("size_bytes", 81),
    ]


def test_below_its_level_nothing_is_written() -> None:
    stream = io.StringIO()
    logs.set_up("warning", stream=stream)
    logs.get().info("nobody asked")
    assert stream.getvalue() == ""


def test_a_crash_is_one_line_in_json() -> None:
    stream = io.StringIO()
    logs.set_up(stream=stream)
    try:
        int("seven")
    except ValueError:
        logs.get().exception("worker crashed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_a_terminal_gets_words_and_colour_and_a_pipe_gets_neither() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        logs.set_up(stream=stream)
        logs.get().info("up")
    assert "\x1b[" in terminal.getvalue()
    assert pipe.getvalue().startswith("{")


def test_console_lines_into_a_file_have_no_colour() -> None:
    stream = io.StringIO()
    logs.set_up(form="console", stream=stream)
    logs.get().info("up", node="n1")
    assert "\x1b[" not in stream.getvalue()
    assert "node=n1" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "console"])
def test_control_characters_from_outside_never_reach_the_terminal(form: logs.Format) -> None:
    stream = io.StringIO()
    logs.set_up(form=form, stream=stream)
    logs.get().info("node n\x1b[2J1 is silent", node="n\x1b[2J1\nfaked line")
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_a_log_that_can_not_be_written_stops_nobody() -> None:
    stream = io.StringIO()
    logs.set_up(stream=stream)
    stream.close()
    logs.get().error("is anybody there")
