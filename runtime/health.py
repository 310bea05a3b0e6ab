"""Is the program alive, is it ready: for load balancers, probes, systemd and people.

Alive means that every worker has shown a sign of life within its own limit (`/healthz`); ready
means alive and that every condition for useful work is met (`/readyz`). Both answer 200 or 503
with the same JSON: `{"ok": …, "checks": {name: {"ok": …, "text": …}}}`. `/metrics` stands beside.
"""

import http.server
import json
import os
import socket
import socketserver
import threading
from collections.abc import Mapping
from typing import NamedTuple

from runtime import logs
from runtime.clock import Clock
from runtime.errors import Misconfigured, NotPermitted
from runtime.metrics import CONTENT_TYPE, Metrics

_CLIENT_TIMEOUT_S = 5.0  # a client that says nothing for so long is let go
_CLIENTS_LIMIT = 8  # at a time; a ninth is let go at once
_POLL_S = 0.2  # how soon the server sees that it is asked to stop


class Check(NamedTuple):
    """One thing that was looked at, with a sentence for a person."""

    ok: bool
    text: str


class Verdict(NamedTuple):
    """All checks, and whether every one of them is well."""

    ok: bool
    checks: Mapping[str, Check]

    def json(self) -> bytes:
        """Return the answer of the endpoints."""
        checks = {name: check._asdict() for name, check in self.checks.items()}
        return json.dumps({"ok": self.ok, "checks": checks}).encode() + b"\n"


class Heartbeat:
    """A worker's sign of life; the worker calls `beat` once a turn."""

    def __init__(self, within_s: float, clock: Clock) -> None:
        self.within_s = within_s
        self._clock = clock
        self._last_s = clock.monotonic()

    def beat(self) -> None:
        """Show that the worker goes round."""
        self._last_s = self._clock.monotonic()

    def check(self) -> Check:
        """Tell whether the last beat is recent enough."""
        age_s = self._clock.monotonic() - self._last_s
        text = f"last sign of life {age_s:.1f} s ago, allowed {self.within_s:g} s"
        return Check(age_s <= self.within_s, text)


class Condition:
    """Something that must be so before the work is of use ("the log is read up to its head")."""

    def __init__(self, text: str) -> None:
        self._check = Check(ok=False, text=text)

    def met(self, text: str = "") -> None:
        """Say that it is so."""
        self._check = Check(ok=True, text=text)

    def unmet(self, reason: str) -> None:
        """Say that it is not so, and why."""
        self._check = Check(ok=False, text=reason)

    def check(self) -> Check:
        """Tell what was last said."""
        return self._check


class Health:
    """Everything that was promised a heartbeat or a condition, in one place."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heartbeats: dict[str, Heartbeat] = {}
        self._conditions: dict[str, Condition] = {}

    def heartbeat(self, name: str, within_s: float) -> Heartbeat:
        """Expect a beat of `name` at least every `within_s` seconds, from now on."""
        beat = self._heartbeats[name] = Heartbeat(within_s, self._clock)
        return beat

    def beat(self, name: str) -> None:
        """Beat for `name`, which waits for something and can't yet do so itself."""
        self._heartbeats[name].beat()

    def forget(self, name: str) -> None:
        """Expect no more beats of `name`."""
        self._heartbeats.pop(name, None)

    def condition(self, name: str, text: str) -> Condition:
        """Add a condition, unmet at first; `text` says what is waited for."""
        condition = self._conditions[name] = Condition(text)
        return condition

    def alive(self) -> Verdict:
        """Judge the heartbeats."""
        checks = {name: beat.check() for name, beat in list(self._heartbeats.items())}
        return Verdict(all(check.ok for check in checks.values()), checks)

    def ready(self) -> Verdict:
        """Judge heartbeats and conditions."""
        conditions = {name: one.check() for name, one in list(self._conditions.items())}
        checks = {**self.alive().checks, **conditions}
        return Verdict(all(check.ok for check in checks.values()), checks)


class HttpServer:
    """A worker that answers /metrics, /healthz and /readyz; port 0 takes a free one (`port` tells).

    Errors at once, when it is made: `Misconfigured` when the port is in use or the address is not
    this machine's, `NotPermitted` when this user may not take the port.
    """

    name = "http"

    def __init__(self, address: str, port: int, metrics: Metrics, health: Health) -> None:
        try:
            self._server = _Server(address, port, metrics, health)
        except PermissionError:
            raise NotPermitted(
                f"port {port} on {address} may not be taken by this user: set another [http] port"
            ) from None
        except OSError as error:
            reason = (error.strerror or "it can't be used").lower()
            raise Misconfigured(
                f"port {port} on {address} can't be taken ({reason}): "
                "end what holds it, or set another [http] port (0 takes a free one; "
                "roles of farside on one machine need a port each)"
            ) from None
        self.port: int = self._server.server_address[1]

    def run(self, stop: threading.Event) -> None:
        """Answer until `stop` is set."""
        while not stop.is_set():
            self._server.handle_request()
        self.close()

    def close(self) -> None:
        """Give the port back (`run` does so at its end)."""
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False
    timeout = _POLL_S
    request_queue_size = 32

    def __init__(self, address: str, port: int, metrics: Metrics, health: Health) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.metrics = metrics
        self.health = health
        self._places = threading.BoundedSemaphore(_CLIENTS_LIMIT)
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        # not HTTPServer's: that one asks the name service who we are, which may take seconds
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: object, client_address: object) -> bool:
        del request, client_address
        return self._places.acquire(blocking=False)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address
        logs.get().debug("http request failed", exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    server_version = "farside"
    sys_version = ""
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, CONTENT_TYPE, self.server.metrics.text())
            case "/healthz":
                self._verdict(self.server.health.alive())
            case "/readyz":
                self._verdict(self.server.health.ready())
            case _:
                self._answer(404, "text/plain", b"here are /metrics, /healthz and /readyz\n")

    def _verdict(self, verdict: Verdict) -> None:
        self._answer(200 if verdict.ok else 503, "application/json", verdict.json())

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: a probe every second is no news."""


class Systemd:
    """Tells systemd how we are, by datagrams to its socket; without one (no systemd) nothing.

    Method: sd_notify(3). `watchdog_s` is how often systemd wants a sign of life, None: never.
    """

    def __init__(self, environ: Mapping[str, str], pid: int | None = None) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_s: float | None = None
        wanted_us = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", "") in {"", str(pid or os.getpid())}
        if self._address and ours and wanted_us.isascii() and wanted_us.isdigit():
            self.watchdog_s = int(wanted_us) / 1e6

    def ready(self) -> bool:
        """Say that start-up is over."""
        return self._tell("READY=1")

    def stopping(self) -> bool:
        """Say that the end has begun."""
        return self._tell("STOPPING=1")

    def watchdog(self) -> bool:
        """Give a sign of life; the caller has looked whether all is alive."""
        return self.watchdog_s is not None and self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> bool:
        """Send it and tell whether it went; a systemd that does not listen is its own trouble."""
        if not self._address.startswith(("/", "@")):
            return False
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(1.0)
                channel.sendto(state.encode(), address)
        except OSError as error:
            logs.get().warning("systemd could not be told", state=state, error=str(error))
            return False
        return True
