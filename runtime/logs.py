"""The program's own log: structured, one line per unit of work, level and format by setting.

A line is an event in plain words and its facts as fields:
`log.info("checkpoint saved", cell="a", size_bytes=81_234)`. Lines go to standard error, because
standard output belongs to what a command was asked for.
"""

import contextlib
import logging
import sys
from typing import IO, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from runtime.clock import Clock, SystemClock

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]
Log = structlog.typing.FilteringBoundLogger


def set_up(
    level: Level = "info",
    form: Format = "auto",
    stream: IO[str] | None = None,
    clock: Clock | None = None,
) -> None:
    """Say once, at the program's start, what is logged, in which format and where to.

    `auto` is console for a terminal, else JSON; colour only on a terminal.
    """
    target = stream or sys.stderr
    terminal = target.isatty()
    if form == "auto":
        form = "console" if terminal else "json"
    shape: list[Processor] = [structlog.processors.format_exc_info, _JSON]
    if form == "console":
        plain = structlog.dev.plain_traceback  # the pretty one imports rich and prints variables
        renderer = structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=plain)
        shape = [_printable, renderer]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _Head(clock or SystemClock()),
            *shape,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]),
        logger_factory=lambda *_: _Lines(target),
        cache_logger_on_first_use=False,
    )


def get(**fields: object) -> Log:
    """Return a logger whose every line carries `fields`; what `set_up` said counts at each line."""
    log: Log = structlog.get_logger(**fields)
    return log


class _Head:
    """Puts first what every line has: its time (by the clock of everything else), level, event."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _log: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
        level, event = fields.pop("level"), fields.pop("event")
        return {"timestamp": self._clock.now().text(), "level": level, "event": event, **fields}


class _Lines:
    """Writes each line at once; a log that can't be written must not end the work it tells of."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # disk full, reader gone, stream closed
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


def _printable(_log: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Show control characters in an event's words as escapes: a terminal would obey them."""
    words = str(fields["event"])
    fields["event"] = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
    return fields


_NUMBERS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_JSON = structlog.processors.JSONRenderer(ensure_ascii=False)
