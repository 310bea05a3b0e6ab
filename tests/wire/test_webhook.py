"""The webhook against real servers on loopback: what arrives, and what each failure is called."""

import datetime as dt
import itertools
import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest
import standardwebhooks
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.kafka import tls
from notifiers.base import Context, Notice, notice_of
from notifiers.webhook import Header, Settings, Webhook, build
from runtime.clock import NANOSECONDS, SystemClock
from runtime.errors import FarsideError, Rejected, Unavailable
from runtime.settings import Secret
from tests.unit.notifiers.notices import incident
from tests.unit.notifiers.receiver import (
    KEY,
    OLD_KEY,
    SECRET,
    Answer,
    Receiver,
    answer,
    raw,
    receiving,
)

CLOCK = SystemClock()
SOON_S = 0.3  # for what never answers
OK = b"HTTP/1.1 200 OK\r\n"


def notice(name: str = "i1") -> Notice:
    made = notice_of(incident(name=name))
    assert made is not None
    return made


def webhook(url: str, **settings: object) -> Webhook:
    given = Settings(secret=SECRET, url=url)
    changed = msgspec.structs.replace(given, **settings)
    return build(changed, Context(CLOCK, "alpha"))


def told(url: str, **settings: object) -> None:
    """Tell one notice through a notifier of its own."""
    telling = webhook(url, **settings)
    try:
        telling.tell(notice(), CLOCK.now())
    finally:
        telling.close()


def failure(url: str, **settings: object) -> FarsideError:
    """Return what telling one notice raises."""
    with pytest.raises((Unavailable, Rejected)) as caught:
        told(url, **settings)
    assert str(caught.value).isprintable()
    return caught.value


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_the_librarys_own_check_accepts_what_arrives(receiver: Receiver) -> None:
    told(receiver.url)
    (heard,) = receiver.heard
    found = standardwebhooks.Webhook(KEY).verify(heard.body, heard.headers)
    assert (found["type"], found["cluster"], found["data"]["id"]) == (
        "incident.opened", "alpha", "i1",
    )  # fmt: skip


def test_a_body_that_was_changed_on_the_way_or_another_key_is_not_accepted(
    receiver: Receiver,
) -> None:
    told(receiver.url)
    (heard,) = receiver.heard
    for key, body in ((KEY, heard.body.replace(b"leaks", b"heals")), (OLD_KEY, heard.body)):
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(key).verify(body, heard.headers)


def test_while_the_key_changes_receivers_with_the_old_and_the_new_one_accept_it(
    receiver: Receiver,
) -> None:
    told(receiver.url, old_secret=Secret(OLD_KEY))
    (heard,) = receiver.heard
    for key in (KEY, OLD_KEY):
        standardwebhooks.Webhook(key).verify(heard.body, heard.headers)


def test_a_notice_that_is_sent_again_keeps_its_id_and_another_has_another(
    receiver: Receiver,
) -> None:
    telling = webhook(receiver.url)
    for one in (notice(), notice(), notice("i2")):
        telling.tell(one, CLOCK.now())
    telling.close()
    first, second, other = (heard.headers["webhook-id"] for heard in receiver.heard)
    assert first == second != other


def test_headers_from_files_are_sent_along(receiver: Receiver) -> None:
    told(receiver.url, headers={"Authorization": Header(value=Secret("Bearer abc"))})
    assert receiver.heard[0].headers["authorization"] == "Bearer abc"


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_success_is_one(receiver: Receiver, status: int) -> None:
    receiver.answers = [answer(status)]
    told(receiver.url)
    assert len(receiver.heard) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
def test_a_receiver_that_refuses_is_not_asked_again(receiver: Receiver, status: int) -> None:
    receiver.answers = [answer(status)]
    found = failure(receiver.url)
    assert isinstance(found, Rejected)
    assert str(status) in str(found)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_receiver_that_is_busy_or_broken_is_asked_again(receiver: Receiver, status: int) -> None:
    receiver.answers = [answer(status, {"Retry-After": "7"})]
    found = failure(receiver.url)
    assert isinstance(found, Unavailable)
    assert found.retry_after_s == 7.0


def test_the_patience_that_a_receiver_may_ask_for_is_bounded(receiver: Receiver) -> None:
    receiver.answers = [answer(503, {"Retry-After": "86400"})]
    found = failure(receiver.url, retry_after_s_max=60.0)
    assert isinstance(found, Unavailable)
    assert found.retry_after_s == 60.0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(receiver: Receiver, status: int) -> None:
    with receiving() as other:
        receiver.answers = [answer(status, {"Location": other.url})]
        found = failure(receiver.url)
        assert isinstance(found, Rejected)
        assert (len(receiver.heard), other.heard) == (1, [])


def test_nobody_listening_is_said_so_and_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        found = failure(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert isinstance(found, Unavailable)
    assert "refused" in str(found)


STUCK = {
    "nothing": (),
    "half a line": (b"HTTP/1.1 2",),
    "headers without end": (OK, b"X-A: b\r\n"),
}


@pytest.mark.parametrize("pieces", STUCK.values(), ids=STUCK)
def test_a_receiver_that_does_not_end_its_answer_is_left_in_time(
    receiver: Receiver, pieces: tuple[bytes, ...]
) -> None:
    receiver.answers = [raw(*pieces, ended=receiver.ended)]
    found = failure(receiver.url, timeout_s=SOON_S)
    assert isinstance(found, Unavailable)
    assert "did not answer within 0.3 s" in str(found)


def test_a_receiver_that_sends_a_byte_now_and_then_is_left_in_time_too(receiver: Receiver) -> None:
    drops = itertools.chain([OK], itertools.repeat(b"X", 2_000))
    receiver.answers = [raw(*drops, ended=receiver.ended, every_s=0.05)]
    found = failure(receiver.url, timeout_s=SOON_S)
    assert isinstance(found, Unavailable)
    assert "did not answer within 0.3 s" in str(found)


NO_HTTP = {
    "nothing": (),
    "garbage": (b"\x16\x03\x01 what?\r\n\r\n",),
    "a huge header": (OK, b"X-A: " + b"a" * 2_000_000),
    "a broken length": (OK, b"Content-Length: many\r\n\r\n"),
}


@pytest.mark.parametrize("pieces", NO_HTTP.values(), ids=NO_HTTP)
def test_an_answer_that_is_no_http_is_a_failure_and_tried_again(
    receiver: Receiver, pieces: tuple[bytes, ...]
) -> None:
    receiver.answers = [raw(*pieces)]
    assert isinstance(failure(receiver.url), Unavailable)


BODIES = {
    "huge": raw(OK, b"\r\n", *itertools.repeat(b"x" * 65_536, 200)),
    "shorter than it says": raw(OK, b"Content-Length: 100\r\n\r\nx"),
    "no gzip": answer(200, {"Content-Encoding": "gzip"}, b"x" * 100),
}


@pytest.mark.parametrize("given", BODIES.values(), ids=BODIES)
def test_whatever_body_a_success_has_it_is_one(receiver: Receiver, given: Answer) -> None:
    receiver.answers = [given]
    told(receiver.url)
    assert len(receiver.heard) == 1


def test_of_a_body_that_floods_in_a_bounded_part_is_read(receiver: Receiver) -> None:
    block, written = b"x" * 65_536, []

    def flood(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(OK + b"\r\n")
        while True:
            handler.wfile.write(block)
            written.append(len(block))

    receiver.answers = [flood]
    told(receiver.url)
    assert sum(written) < 64 << 20  # what lies in the buffers between, no more


def test_no_proxy_of_the_environment_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    told(receiver.url)
    assert len(receiver.heard) == 1


def test_an_endless_body_of_a_success_is_left_in_time(receiver: Receiver) -> None:
    receiver.answers = [raw(OK, b"\r\n", ended=receiver.ended)]
    told(receiver.url, timeout_s=2.0)  # its head has to come within that, on a busy machine too
    assert len(receiver.heard) == 1


@pytest.fixture
def certificates(tmp_path: Path) -> tls.Certificates:
    return tls.make(tmp_path, CLOCK.now())


def test_over_tls_with_an_authority_of_ones_own(certificates: tls.Certificates) -> None:
    with receiving(certificates.keystore) as receiver:
        told(receiver.url, ca_file=certificates.ca_file)
        (heard,) = receiver.heard
    standardwebhooks.Webhook(KEY).verify(heard.body, heard.headers)


def test_an_unknown_authority_is_not_believed_and_nothing_is_sent(
    certificates: tls.Certificates,
) -> None:
    with receiving(certificates.keystore) as receiver:
        found = failure(receiver.url)
        assert isinstance(found, Rejected)
        assert "can't be trusted" in str(found)
        assert receiver.heard == []


def test_a_certificate_for_another_name_is_not_believed(tmp_path: Path) -> None:
    pem = self_signed(tmp_path / "other.pem", "other.example")
    with receiving(pem) as receiver:
        found = failure(receiver.url, ca_file=pem)
        assert isinstance(found, Rejected)
        assert "127.0.0.1" in str(found)
        assert receiver.heard == []


def self_signed(pem: Path, host: str) -> Path:
    """Write a key and a certificate for `host`, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    begin = dt.datetime.fromtimestamp(int(CLOCK.now()) // NANOSECONDS, dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - dt.timedelta(hours=1))
        .not_valid_after(begin + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem.write_bytes(key.private_bytes(form, *plain) + certificate.public_bytes(form))
    return pem


def test_tls_to_a_port_that_speaks_none_is_a_failure_and_tried_again(receiver: Receiver) -> None:
    found = failure(receiver.url.replace("http:", "https:"))
    assert isinstance(found, Unavailable)
    assert "TLS" in str(found)


def test_a_handshake_that_never_ends_is_left_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = failure(f"https://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=SOON_S)
    assert isinstance(found, Unavailable)
    assert "did not answer within" in str(found)


def test_no_failure_tells_the_path_the_query_the_key_or_a_header(receiver: Receiver) -> None:
    statuses = [answer(status, {"Location": "/x?token=t0k3n"}) for status in (302, 404, 500)]
    url = f"{receiver.url}/p4th?token=t0k3n"
    told_of = []
    for given in (*statuses, raw(b"?\r\n\r\n")):
        receiver.answers = [given]
        found = failure(url, headers={"X-Key": Header(value=Secret("h34d3r"))})
        told_of.append(repr(found) + str(found) + str(found.__context__ or ""))
    text = " ".join(told_of)
    assert not [word for word in ("p4th", "t0k3n", "h34d3r", KEY[6:]) if word in text]
    assert json.loads(receiver.heard[0].body)["data"]["id"] == "i1"
