"""Tells whoever looks at the terminal: one line for each change of state, colour only on a TTY."""

from typing import TextIO

import msgspec

from bus.codec import to_json
from bus.messages import Incident, Severity
from notifiers.base import Context, Notice
from runtime.clock import Instant
from runtime.errors import Rejected, Unavailable

# Bold red, yellow, none; what is over is green.
_COLOURS: dict[Severity, str] = {"critical": "\x1b[1;31m", "warning": "\x1b[33m", "info": ""}
_CLOSED = "\x1b[32m"
_PLAIN = "\x1b[0m"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`refusals` shows why nothing was done; `json` prints the message itself, one a line."""

    refusals: bool = True
    json: bool = False


class Console:
    """A text stream that people read."""

    name = "console"

    def __init__(self, settings: Settings, stream: TextIO) -> None:
        """Write to `stream`, which stays the caller's."""
        self._settings = settings
        self._stream = stream
        self._colour = stream.isatty() and not settings.json

    def wants(self, notice: Notice) -> bool:
        """Tell whether this notice is shown."""
        return self._settings.refusals or isinstance(notice.message, Incident)

    def tell(self, notice: Notice, now: Instant) -> None:  # noqa: ARG002  # the protocol's
        """Write one line.

        Errors: `Rejected` when nobody reads any more, `Unavailable` when the stream takes nothing.
        """
        line = to_json(notice.message).decode() if self._settings.json else self._line(notice)
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            raise Rejected("the console is closed: nobody reads what is written to it") from None
        except OSError as error:
            raise Unavailable(f"the console takes nothing: {error.strerror}") from None

    def close(self) -> None:
        """Leave the stream to its owner."""

    def cannot(self) -> list[str]:
        """Return nothing: a stream is always there."""
        return []

    def _line(self, notice: Notice) -> str:
        head = f"{notice.time.text()[:19]}Z {notice.severity.upper():<8} {notice.word:<9}"
        colour = _CLOSED if notice.word == "closed" else _COLOURS[notice.severity]
        if self._colour and colour:
            head = f"{colour}{head}{_PLAIN}"
        return f"{head} {notice.sentence}"


def build(settings: Settings, context: Context) -> Console:
    """Return the notifier; writes nothing yet."""
    return Console(settings, context.stream)
