"""Tells a program: each notice as a signed POST, by the Standard Webhooks specification.

https://www.standardwebhooks.com: the header webhook-id is the same however often a notice is sent,
so that a receiver recognises a repeat; webhook-timestamp is the moment of the try, and
webhook-signature an HMAC-SHA256 over both and the body. No redirect is followed and no proxy of the
environment used. Of the URL only scheme, host and port are ever told: the rest, like the secret,
may open doors.
"""

import base64
import contextlib
import email.utils
import re
import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, NamedTuple, Self

import httpx2
import msgspec
import standardwebhooks

from bus.codec import to_json
from bus.messages import Incident, IncidentState, Severity
from notifiers.base import Context, Notice
from runtime.clock import NANOSECONDS, Instant
from runtime.errors import Misconfigured, Rejected, Unavailable
from runtime.settings import Secret

REMEDY = (
    "must hold whsec_ followed by 24 to 64 random bytes in base64; "
    "make one with: printf 'whsec_%s\\n' \"$(head -c 32 /dev/urandom | base64)\""
)
_KEY_BYTES = range(24, 65)
_ANSWER_BYTES_MAX = 64 << 10  # read so that a polite server can finish; nobody looks at it
_LATER = frozenset({408, 425, 429})
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# What we or the library say ourselves; a second one would make the request mean something else.
_OURS = re.compile(r"(webhook-.*|content-.*|host|connection|transfer-encoding|te|trailer|upgrade)")
_TYPES: dict[IncidentState, str] = {
    "open": "incident.opened",
    "acting": "incident.acting",
    "contained": "incident.contained",
    "probation": "incident.probation",
    "closed": "incident.closed",
}
_REFUSED = "action.refused"


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more header of each request; what it says stands in a file of its own."""

    value: Secret


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[notify.webhook]`.

    url: where to; where a part of it is secret, private_url_file names a file that holds it.
    secret_file holds the signing key, old_secret_file the one before while receivers still use it.
    [notify.webhook.headers.NAME] value_file: one more header. ca_file: whom to believe in place of
    the system's authorities.

    timeout_s bounds an exchange as a whole, retry_after_s_max the patience that a receiver may ask
    for. severities, states, refusals: what is told.
    """

    secret: Secret
    url: str = ""
    private_url: Secret | None = None
    old_secret: Secret | None = None
    headers: dict[str, Header] = {}
    ca_file: Path | None = None
    timeout_s: Annotated[float, msgspec.Meta(ge=0.05, le=25)] = 5.0
    retry_after_s_max: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 300.0
    severities: tuple[Severity, ...] = ("info", "warning", "critical")
    states: tuple[IncidentState, ...] = ("open", "acting", "contained", "probation", "closed")
    refusals: bool = False

    def __post_init__(self) -> None:
        """Judge what no type can say; the error names the key and never what it holds."""
        if bool(self.url) == bool(self.private_url):
            raise ValueError("set url, or (where a part of it is secret) private_url_file")
        address(self)
        for key, secret in (("secret_file", self.secret), ("old_secret_file", self.old_secret)):
            if secret is not None and not _is_key(secret.reveal()):
                raise ValueError(f"{key} {REMEDY}")
        for name, header in self.headers.items():
            if not _TOKEN.fullmatch(name) or _OURS.fullmatch(name.lower()):
                raise ValueError(f"headers: {name[:60]!r} can't be set: name another header")
            if not (header.value.reveal().isascii() and header.value.reveal().isprintable()):
                raise ValueError(f"headers.{name}.value_file must hold one line of ASCII text")


class Post(NamedTuple):
    """One request: its headers and its body."""

    headers: dict[str, str]
    body: bytes


class Webhook:
    """A receiver of signed notices."""

    name = "webhook"

    def __init__(self, settings: Settings, cluster: str, transport: httpx2.BaseTransport) -> None:
        """Send through `transport`, which becomes the notifier's own."""
        self._settings = settings
        self._cluster = cluster
        self._transport = transport
        self._url = _parsed(settings)
        self._to = f"the webhook at {address(settings)}"
        secrets = filter(None, (settings.secret, settings.old_secret))
        self._keys = [standardwebhooks.Webhook(secret.reveal()) for secret in secrets]

    def wants(self, notice: Notice) -> bool:
        """Tell whether this notice is sent."""
        wanted, message = self._settings, notice.message
        if isinstance(message, Incident):
            return message.severity in wanted.severities and message.state in wanted.states
        return wanted.refusals

    def post(self, notice: Notice, now: Instant) -> Post:
        """Return the request for a notice, signed at `now`."""
        body = payload(notice, self._cluster)
        second = int(now) // NANOSECONDS
        moment, text = datetime.fromtimestamp(second, UTC), body.decode()
        signatures = [key.sign(notice.id, moment, text) for key in self._keys]
        return Post(
            {
                **{name: header.value.reveal() for name, header in self._settings.headers.items()},
                "content-type": "application/json",
                "user-agent": "farside",
                "connection": "close",
                "webhook-id": notice.id,
                "webhook-timestamp": str(second),
                "webhook-signature": " ".join(signatures),
            },
            body,
        )

    def tell(self, notice: Notice, now: Instant) -> None:
        """Send one notice and return when the receiver said that it has it.

        Errors: `Unavailable` while the receiver is away, slow, busy or broken; `Rejected` when it
        will not take this notice, can't be trusted, or sends us elsewhere.
        """
        headers, body = self.post(notice, now)
        with _Deadline(self._settings.timeout_s) as deadline:
            each = dict.fromkeys(("connect", "read", "write", "pool"), self._settings.timeout_s)
            request = httpx2.Request(
                "POST",
                self._url,
                headers=headers,
                content=body,
                extensions={"timeout": each, "trace": deadline.trace},
            )
            try:
                response = self._transport.handle_request(request)
                try:
                    self._judge(response, now)
                    with contextlib.suppress(httpx2.HTTPError):  # it has said that it has it
                        _read(response)
                finally:
                    response.close()
            except httpx2.HTTPError as error:
                raise self._explained(error, late=deadline.over) from None

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def cannot(self) -> list[str]:
        """Return a sentence for what is not as safe as it could be."""
        if self._url.scheme == "https" or self._url.host in {"127.0.0.1", "::1", "localhost"}:
            return []
        return [f"{self._to} is not encrypted: who is on the way reads what is told; use https"]

    def _judge(self, response: httpx2.Response, now: Instant) -> None:
        """Raise what the status says; a status of success says nothing."""
        status = response.status_code
        if 200 <= status < 300:
            return
        if status in _LATER or status >= 500:
            most_s = self._settings.retry_after_s_max
            after_s = retry_after_s(response.headers.get("retry-after", ""), now)
            raise Unavailable(
                f"{self._to} can't take it now (status {status})",
                retry_after_s=min(after_s, most_s),
            )
        if 300 <= status < 400:
            raise Rejected(
                f"{self._to} sends to another place (status {status}), where nothing is sent to: "
                "set url to where it is now"
            )
        raise Rejected(f"{self._to} refused it (status {status})")

    def _explained(self, error: httpx2.HTTPError, *, late: bool) -> Unavailable | Rejected:
        if late or isinstance(error, httpx2.TimeoutException):
            return Unavailable(f"{self._to} did not answer within {self._settings.timeout_s:g} s")
        if isinstance(error, httpx2.LocalProtocolError):
            return Rejected(f"{self._to}: the request breaks the rules of HTTP; see headers")
        cause = _first_cause(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message.rstrip(".")
            return Rejected(f"{self._to} can't be trusted: {why}; see ca_file")
        return Unavailable(f"{self._to} {_why(cause)}")


def _first_cause(error: BaseException) -> BaseException:
    """Return what the operating system said, below the library's wrappings."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
        if isinstance(error, OSError):
            break
    return error


def _why(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLError):
        return f"speaks no TLS that we know ({cause.reason})"
    if isinstance(cause, socket.gaierror):
        return "can't be found: its name is not known"
    if isinstance(cause, OSError) and cause.strerror:
        return f"can't be reached: {cause.strerror.lower()}"
    return "broke off, or answered what is no HTTP"


def build(settings: Settings, context: Context) -> Webhook:
    """Return the notifier; connects to nothing yet."""
    try:
        trust = (
            ssl.create_default_context()
            if settings.ca_file is None
            else ssl.create_default_context(cafile=str(settings.ca_file))
        )
    except (OSError, ssl.SSLError):
        raise Misconfigured(
            f"notify.webhook.ca_file: {settings.ca_file} can't be read as certificates in PEM"
        ) from None
    # A connection for each notice: they are rare, and an idle one dies unseen.
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=0)
    transport = httpx2.HTTPTransport(verify=trust, limits=limits)
    return Webhook(settings, context.cluster, transport)


def payload(notice: Notice, cluster: str) -> bytes:
    """Return the body: the event, and under `data` the message as its schema describes it."""
    message = notice.message
    kind = _TYPES[message.state] if isinstance(message, Incident) else _REFUSED
    return msgspec.json.encode(
        {
            "type": kind,
            "timestamp": notice.time.text(),
            "cluster": cluster,
            "severity": notice.severity,
            "sentence": notice.sentence,
            "data": msgspec.Raw(to_json(message)),
        }
    )


def address(settings: Settings) -> str:
    """Return of the URL what may be told: scheme, host and port. Errors: `ValueError`."""
    url = _parsed(settings)
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port else "")


def retry_after_s(text: str, now: Instant) -> float:
    """Return the seconds that a Retry-After header asks for, 1 where it says nothing readable."""
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return max(moment.timestamp() - int(now) / NANOSECONDS, 0.0)
    except (ValueError, OverflowError):
        return 1.0


def _parsed(settings: Settings) -> httpx2.URL:
    key = "private_url_file" if settings.private_url else "url"
    text = settings.private_url.reveal() if settings.private_url else settings.url
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        raise ValueError(f"{key} is no URL: it must look like https://host/path") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"{key} must begin with https:// (or http://) and name a host")
    if url.userinfo:
        raise ValueError(
            f"{key} holds a user or password: put them into a header, "
            "[notify.webhook.headers.Authorization] value_file"
        )
    return url


def _is_key(word: str) -> bool:
    """Tell whether a word is a signing key by the specification."""
    prefix, _, key = word.partition("whsec_")
    try:
        return not prefix and len(base64.b64decode(key, validate=True)) in _KEY_BYTES
    except ValueError:
        return False


def _read(response: httpx2.Response) -> None:
    """Read a bounded part of an answer and throw it away."""
    left = _ANSWER_BYTES_MAX
    for chunk in response.iter_raw():
        left -= len(chunk)
        if left <= 0:
            return


class _Deadline:
    """Ends an exchange that takes too long as a whole.

    The library bounds each read alone; a receiver that sends a byte now and then would hold its
    notifier up for ever. A timer cuts the connection, whatever waits for it then fails.
    """

    def __init__(self, timeout_s: float) -> None:
        self.over = False
        self._line: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            if self._line is not None:
                self._line.close()
                self._line = None

    def trace(self, event: str, facts: dict[str, Any]) -> None:
        """Take note of the connection as soon as there is one (the library calls this)."""
        if event == "connection.connect_tcp.complete":
            # A second handle on the same connection: TLS takes the first one over.
            with self._lock:
                self._line = facts["return_value"].get_extra_info("socket").dup()
            if self.over:
                self._cut()

    def _end(self) -> None:
        self.over = True
        self._cut()

    def _cut(self) -> None:
        with self._lock:
            if self._line is not None:
                try:
                    self._line.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return  # it has ended by itself
