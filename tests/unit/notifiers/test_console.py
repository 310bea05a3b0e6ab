"""What stands on the terminal, letter by letter."""

import io
import json

import pytest

from notifiers.base import Context, notice_of
from notifiers.console import Console, Settings, build
from runtime.clock import ManualClock
from runtime.errors import Rejected
from tests.unit.notifiers.notices import START, incident, refusal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, *messages: object, **settings: bool) -> str:
    """Return what stands on the stream after these messages."""
    console = build(Settings(**settings), Context(ManualClock(START), stream=stream))
    for message in messages:
        notice = notice_of(message)  # type: ignore[arg-type]  # messages of the test
        assert notice is not None
        if console.wants(notice):
            console.tell(notice, START)
    return stream.getvalue()


def test_a_change_of_state_is_one_line_of_time_severity_state_and_sentence() -> None:
    lines = shown(
        io.StringIO(), incident("contained", after_s=3, severity="critical"), refusal(after_s=4)
    )
    assert lines == (
        "2026-11-30T12:00:03Z CRITICAL contained its memory leaks\n"
        "2026-11-30T12:00:04Z INFO     refused   no freeze of container /jobs/7 on n1: "
        "acting is off\n"
    )


def test_refusals_can_be_left_out() -> None:
    assert shown(io.StringIO(), refusal(), refusals=False) == ""


def test_there_is_colour_on_a_terminal_and_none_elsewhere() -> None:
    assert "\x1b[1;31m" in shown(Terminal(), incident(severity="critical"))
    assert "\x1b" not in shown(io.StringIO(), incident(severity="critical"))


def test_what_a_name_would_do_to_a_terminal_is_spelled_out() -> None:
    line = shown(io.StringIO(), incident(sentence="proc \x1b[2J\nCRITICAL closed leaks"))
    assert line.endswith("proc \\x1b[2J\\x0aCRITICAL closed leaks\n")


def test_as_json_each_line_is_the_message_itself() -> None:
    told = json.loads(shown(Terminal(), incident("acting"), json=True))
    assert (told["type"], told["id"], told["state"]) == ("Incident", "i1", "acting")


def test_a_console_that_nobody_reads_is_said_so() -> None:
    stream = io.StringIO()
    console = Console(Settings(), stream)
    stream.close()
    notice = notice_of(incident())
    assert notice is not None
    with pytest.raises(Rejected, match="closed"):
        console.tell(notice, START)
