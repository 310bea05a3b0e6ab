"""Bytes ↔ message. Refuses what it does not know, with a short reason that can be counted.

Telemetry (batches, log lines, ticks) travels as MessagePack, everything that people read as JSON.
The JSON form of telemetry, with named samples and RFC 3339 times, serves people and `replay`.
"""

import math
from typing import Any

import msgspec

from bus.messages import TELEMETRY_TYPES, Message, Wire
from bus.samples import Layout, Layouts, Sample, Samples, pack
from runtime.clock import Instant
from runtime.errors import Rejected

MAX_RECORD_BYTES = 1_000_000
_KNOWN = frozenset(kind.__name__ for kind in Message.__args__)


class Malformed(Rejected):
    """Bytes that are no message of ours: `reason` from a short closed list, `detail` for people."""

    def __init__(self, reason: str, detail: str) -> None:
        """Keep both."""
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Codec:
    """Encoders and decoders with the layouts that they have seen; one for each reader."""

    def __init__(self, layouts: Layouts | None = None) -> None:
        """Share `layouts` between readers of one thread, or let each have its own."""
        self._layouts = layouts or Layouts()
        self._packer = msgspec.msgpack.Encoder(enc_hook=_to_block)
        self._writer = msgspec.json.Encoder(enc_hook=_to_people)
        self._unpacker = msgspec.msgpack.Decoder(Message, dec_hook=self._from_wire)
        self._reader = msgspec.json.Decoder(Message, dec_hook=self._from_wire)

    def encode(self, message: Message) -> bytes:
        """Return the bytes that travel."""
        if isinstance(message, TELEMETRY_TYPES):
            return self._packer.encode(message)
        return self._writer.encode(message)

    def decode(self, record: bytes) -> Message:
        """Return the message; `Malformed` where the bytes are none that we know."""
        if len(record) > MAX_RECORD_BYTES:
            reason = "oversized"
            raise Malformed(reason, f"{len(record)} bytes, at most {MAX_RECORD_BYTES}")
        if not record:
            reason = "empty"
            raise Malformed(reason, "a record of no bytes")
        # JSON objects begin with a brace, MessagePack maps with a byte of 0x80 or more.
        as_json = record[:1] == b"{"
        try:
            return self._reader.decode(record) if as_json else self._unpacker.decode(record)
        except (msgspec.DecodeError, Rejected, ValueError, RecursionError, OverflowError) as error:
            raise _why(record, error, as_json=as_json) from None

    def to_json(self, message: Message) -> bytes:
        """Return the JSON form of any message."""
        return self._writer.encode(message)

    def from_object(self, value: object) -> Message:
        """Return the message that a parsed JSON object describes; `Malformed` where none."""
        try:
            return msgspec.convert(value, Message, dec_hook=self._from_wire)  # type: ignore[no-any-return]  # the union has no one type
        except (msgspec.ValidationError, Rejected, ValueError, OverflowError) as error:
            raise _named(value, str(error)) from None

    def _from_wire(self, kind: type, value: Any) -> Any:  # noqa: ANN401  # msgspec's hook is untyped
        if kind is Instant:
            return _instant(value)
        if kind is Samples:
            return self._samples(value)
        msg = f"no way to read a {kind.__name__}"
        raise ValueError(msg)

    def _samples(self, value: object) -> Samples:
        if not isinstance(value, list):
            msg = "samples are a list"
            raise ValueError(msg)  # noqa: TRY004  # msgspec turns ValueError into its own error
        if len(value) == 2 and isinstance(value[0], bytes) and isinstance(value[1], bytes):
            return Samples(self._layouts.parse(value[0]), value[1])
        named = msgspec.convert(value, list[_NamedSample])
        layout = Layout.of((sample.metric, sample.device) for sample in named)
        return Samples(
            self._layouts.parse(layout.names),
            pack(math.nan if sample.value is None else sample.value for sample in named),
        )


class _NamedSample(msgspec.Struct):
    """The form of a sample in JSON; no value means that it could not be read."""

    metric: str
    device: str = ""
    value: float | None = None


def _instant(value: object) -> Instant:
    if isinstance(value, int):
        return Instant(value)
    if isinstance(value, str):
        return Instant.parse(value)
    msg = "a time is an RFC 3339 text"
    raise ValueError(msg)


def _to_block(value: Any) -> Any:  # noqa: ANN401  # msgspec's hook is untyped
    if isinstance(value, Instant):
        return int(value)
    if isinstance(value, Samples):
        return [value.layout.names, value.values]
    msg = f"{type(value).__name__} does not travel"
    raise NotImplementedError(msg)


def _to_people(value: Any) -> Any:  # noqa: ANN401  # msgspec's hook is untyped
    if isinstance(value, Instant):
        return value.text()
    if isinstance(value, Samples):
        return [
            sample._asdict() if math.isfinite(sample.value) else _unread(sample) for sample in value
        ]
    msg = f"{type(value).__name__} does not travel"
    raise NotImplementedError(msg)


def _unread(sample: Sample) -> dict[str, object]:
    return {"metric": sample.metric, "device": sample.device}


def _why(record: bytes, error: Exception, *, as_json: bool) -> Malformed:
    """Tell apart: not decodable at all, an unknown type or version, a field of a wrong type."""
    try:
        raw = msgspec.json.decode(record) if as_json else msgspec.msgpack.decode(record)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Malformed("no message", str(error))
    return _named(raw, str(error))


def _named(raw: object, detail: str) -> Malformed:
    if not isinstance(raw, dict) or "type" not in raw:
        return Malformed("no message", "an object without a type")
    if not isinstance(raw["type"], str) or raw["type"] not in _KNOWN:
        return Malformed("unknown type", f"{str(raw['type'])[:60]!r}")
    if raw.get("version", 1) != 1:
        return Malformed("unknown version", f"{raw['type']} {str(raw['version'])[:20]}")
    return Malformed("wrong type", detail)


def type_of(message: Message) -> str:
    """Return the name of a message's type as it stands on the wire."""
    return type(message).__name__


_DEFAULT = Codec()


def encode(message: Message) -> bytes:
    """Return the bytes that travel."""
    return _DEFAULT.encode(message)


def decode(record: bytes) -> Message:
    """Return the message; `Malformed` where the bytes are none that we know."""
    return _DEFAULT.decode(record)


def to_json(message: Message) -> bytes:
    """Return the JSON form of any message."""
    return _DEFAULT.to_json(message)


__all__ = ["Codec", "Malformed", "Wire", "decode", "encode", "to_json", "type_of"]
