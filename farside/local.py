"""How `top`, `explain` and people's tools reach a farside whose bus is inside one process.

A Unix socket in `state_dir` (mode 0600): one line of JSON asks, one line of JSON answers.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from runtime.errors import NotPermitted, Rejected, Unavailable

log = structlog.get_logger()

NAME = "farside.sock"
ASK_BYTES_MAX = 1 << 16
ANSWER_BYTES_MAX = 64 << 20


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question: `snapshot` for `top`, `incident` or `node` for `explain`."""

    want: str
    name: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: a body, or a sentence that says why there is none."""

    body: str = ""
    problem: str = ""


class LocalServer:
    """A worker that answers on the socket."""

    name = "local"

    def __init__(self, folder: Path, answer: Callable[[Ask], str]) -> None:
        """Listen; `NotPermitted` where the socket can't be made or another farside owns it."""
        self.path = folder / NAME
        self._answer = answer
        if self.path.exists():
            with contextlib.suppress(Unavailable):
                ask(folder, Ask(want="alive"))
                msg = f"another farside runs with state_dir {folder}: stop it or set another folder"
                raise NotPermitted(msg)
            self.path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(self.path))
            self.path.chmod(0o600)
            self._socket.listen(8)
        except OSError as error:
            self._socket.close()
            msg = f"{self.path} can't be made ({error}): set another state_dir"
            raise NotPermitted(msg) from None
        self._socket.settimeout(0.5)

    def run(self, stop: threading.Event) -> None:
        """Answer one question at a time until `stop`."""
        try:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, _ = self._socket.accept()
                    with connection:
                        self._serve(connection)
        finally:
            self.close()

    def close(self) -> None:
        """Give the place back."""
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(2.0)
        try:
            question = msgspec.json.decode(_line(connection, ASK_BYTES_MAX), type=Ask)
            answer = Answer(body=self._answer(question))
        except (msgspec.DecodeError, Rejected) as error:
            answer = Answer(problem=str(error))
        except OSError:
            return
        with contextlib.suppress(OSError):
            connection.sendall(msgspec.json.encode(answer) + b"\n")


def ask(folder: Path, question: Ask, timeout_s: float = 5.0) -> str:
    """Ask the farside that runs with this state folder.

    Errors: `Unavailable` where none answers, `Rejected` where it says no.
    """
    path = folder / NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode(question) + b"\n")
            line = _line(connection, ANSWER_BYTES_MAX)
            answer = msgspec.json.decode(line, type=Answer)
        except (OSError, msgspec.DecodeError):
            msg = f"no farside answers at {path}: start one with farside up, or name its --config "
            msg += "(over Kafka: --config FILE or --bootstrap HOST:PORT)"
            raise Unavailable(msg) from None
    if answer.problem:
        raise Rejected(answer.problem)
    return answer.body


def _line(connection: socket.socket, limit: int) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            break
        received += part
        if len(received) > limit:
            msg = f"more than {limit} bytes"
            raise OSError(msg)
    return bytes(received)
