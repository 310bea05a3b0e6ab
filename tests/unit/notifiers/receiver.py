"""A receiver of webhooks on loopback: keeps what it was sent, and answers as it is told."""

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from runtime.settings import Secret

# 32 bytes, 0 to 31: no secret but a test's.
KEY = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
OLD_KEY = "whsec_Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA="
SECRET = Secret(KEY)

Answer = Callable[[BaseHTTPRequestHandler], None]


class Heard(NamedTuple):
    """One request as it came in; the headers' names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


def answer(
    status: int = 204, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> Answer:
    """Return an answer of this status."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return send


class Receiver:
    """A server in a thread; `answers` are given one by one, the last one for ever."""

    def __init__(self, keystore: Path | None = None) -> None:
        self.heard: list[Heard] = []
        self.answers: list[Answer] = [answer()]
        self.ended = threading.Event()  # what never answers waits for this
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.heard.append(Heard(self.path, headers, body))
                given = receiver.answers
                with contextlib.suppress(OSError):  # whoever asked has left
                    (given.pop(0) if len(given) > 1 else given[0])(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        if keystore is not None:
            self.url = self.url.replace("http:", "https:")
            trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            trust.load_cert_chain(keystore)
            self._server.socket = trust.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that break off are what is tested."""

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve a connection, and close it whatever becomes of it."""
        with contextlib.suppress(OSError):
            super().process_request_thread(request, client_address)


@contextlib.contextmanager
def receiving(keystore: Path | None = None) -> Iterator[Receiver]:
    """Run a receiver, over TLS where `keystore` holds its key and certificate."""
    receiver = Receiver(keystore)
    try:
        yield receiver
    finally:
        receiver.close()


def raw(*pieces: bytes, ended: threading.Event | None = None, every_s: float = 0.0) -> Answer:
    """Return an answer that is written as it stands, in pieces, and that may never end."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            if ended is not None and every_s:
                ended.wait(every_s)
        if ended is not None and not every_s:
            ended.wait(60.0)

    return send
