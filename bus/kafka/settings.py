"""`[bus.kafka]`: where the brokers are, how to be let in, and the bounds of what waits."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from runtime.errors import Misconfigured
from runtime.settings import Secret

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach Kafka.

    bootstrap: some of the brokers as host:port. security, ca_file, cert_file, key_file (with
    key_password_file) and check_hostname are TLS; sasl_mechanism, username and password_file are
    SASL. client_rack lets a reader fetch from a replica in its own rack.

    compression costs the sender little and saves most of the bytes. linger_ms: how long the client
    gathers records before it sends them. buffer_bytes bounds what was sent and is not acknowledged
    yet. request_timeout_s: after so long without an answer a request is sent again;
    delivery_timeout_s: after so long a record is given up (its sender keeps and sends it again).
    reconnect_max_s is the longest pause between two tries of one connection. look_s: how often it
    is looked whether topics were deleted and made anew. session_s: a member of a group that was not
    heard for so long loses its cells to the others.
    """

    bootstrap: tuple[str, ...]
    security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str = ""
    password: Secret | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: Secret | None = None
    check_hostname: bool = True
    client_rack: str = ""
    compression: Literal["none", "gzip", "lz4", "zstd"] = "zstd"
    linger_ms: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    buffer_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 32)] = 32 << 20
    request_timeout_s: Seconds = 15.0
    delivery_timeout_s: Annotated[float, msgspec.Meta(ge=1, le=2_000_000)] = 2_000_000.0
    reconnect_max_s: Seconds = 5.0
    look_s: Seconds = 5.0
    session_s: Annotated[float, msgspec.Meta(ge=1, le=1800)] = 30.0

    def __post_init__(self) -> None:
        """Judge what belongs together; the error names the key."""
        if not self.bootstrap:
            raise ValueError('bootstrap is empty: name brokers, as in ["kafka-1:9092"]')
        for address in self.bootstrap:
            found = _ADDRESS.fullmatch(address)
            if found is None or not 0 < int(found[2]) < 65536:
                raise ValueError(f"bootstrap: {address[:60]!r} is no address of the form host:port")
        if self.security.startswith("sasl") and not (self.username and self.password):
            raise ValueError(f"security = {self.security!r} needs username and password_file")
        if self.cert_file and not self.key_file:
            raise ValueError("cert_file needs key_file beside it")

    @property
    def address(self) -> str:
        """Return the brokers as people name them."""
        return ", ".join(self.bootstrap)

    def client(self, name: str) -> dict[str, Any]:
        """Return what every client of the library is given; `name` tells the broker who we are.

        Errors: `Misconfigured` where a file of TLS can't be read.
        """
        for key, path in (("ca_file", self.ca_file), ("cert_file", self.cert_file),
                          ("key_file", self.key_file)):  # fmt: skip
            if path is not None and not path.is_file():
                raise Misconfigured(f"bus.kafka.{key}: {path} can't be read: name a file in PEM")
        sasl = self.security.startswith("sasl")
        return {
            "bootstrap_servers": list(self.bootstrap),
            "client_id": f"farside-{name}",
            "security_protocol": self.security.upper(),
            "sasl_mechanism": self.sasl_mechanism if sasl else None,
            "sasl_plain_username": self.username if sasl else None,
            "sasl_plain_password": self.password.reveal() if sasl and self.password else None,
            "ssl_cafile": _text(self.ca_file),
            "ssl_certfile": _text(self.cert_file),
            "ssl_keyfile": _text(self.key_file),
            "ssl_password": self.key_password.reveal() if self.key_password else None,
            "ssl_check_hostname": self.check_hostname,
            "request_timeout_ms": int(self.request_timeout_s * 1000),
            "reconnect_backoff_max_ms": int(self.reconnect_max_s * 1000),
            "bootstrap_timeout_ms": 3000,
            "metadata_max_age_ms": 30_000,
        }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
