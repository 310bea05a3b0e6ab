"""Bytes that are no message of ours are refused with a reason that can be counted."""

import contextlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.codec import MAX_RECORD_BYTES, Codec, Malformed, decode, encode, to_json
from bus.messages import SampleBatch
from bus.samples import Sample, Samples
from runtime.clock import Instant

NOW = Instant.parse("2026-11-30T12:00:00Z")


def batch(samples: list[Sample]) -> SampleBatch:
    return SampleBatch(
        cluster="c",
        node="n",
        boot="b",
        start="s",
        sequence=1,
        time=NOW,
        samples=Samples.of(samples),
    )


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "empty"),
        (b"\xc1\xff\x00garbage", "no message"),
        (b"plain words", "no message"),
        (b'{"type":"Tick"', "no message"),
        (b'{"type":"Sword","version":1}', "unknown type"),
        (
            b'{"type":"Tick","cell":"a","time":"2026-11-30T12:00:00Z","version":2}',
            "unknown version",
        ),
        (b'{"type":"Tick","cell":7,"time":"2026-11-30T12:00:00Z"}', "wrong type"),
        (b'{"type":"Tick","cell":"a","time":"noon"}', "wrong type"),
        (b'{"type":"Tick","cell":"a","time":"2026-02-30T12:00:00Z"}', "wrong type"),
        (b'{"type":"Tick"}', "wrong type"),
        (b"x" * (MAX_RECORD_BYTES + 1), "oversized"),
        (b"[" * 100_000, "no message"),
        (msgspec.msgpack.encode({"type": ["Tick"]}), "unknown type"),
    ],
)
def test_what_is_no_message_is_refused_by_reason(record: bytes, reason: str) -> None:
    with pytest.raises(Malformed) as refused:
        decode(record)
    assert refused.value.reason == reason


@given(st.binary(max_size=400))
def test_no_bytes_crash_the_decoder(record: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode(record)


def test_a_block_whose_length_does_not_fit_its_names_is_refused() -> None:
    good = msgspec.msgpack.decode(encode(batch([Sample("m", "", 1.0)])))
    good["samples"][1] = b"\x00" * 9
    with pytest.raises(Malformed, match="wrong type"):
        decode(msgspec.msgpack.encode(good))


def test_a_later_version_may_add_fields() -> None:
    later = b'{"type":"Tick","cell":"a","time":"2026-11-30T12:00:00Z","zone":"b"}'
    assert decode(later).time == NOW  # type: ignore[union-attr]


def test_what_is_no_number_is_absent_in_json_and_nan_in_memory() -> None:
    written = to_json(batch([Sample("a", "", math.nan), Sample("b", "", 2.0)]))
    assert b'{"metric":"a","device":""}' in written
    values = [sample.value for sample in decode(written).samples]  # type: ignore[union-attr]
    assert math.isnan(values[0])
    assert values[1] == 2.0


def test_batches_of_one_node_share_one_layout() -> None:
    codec = Codec()
    first = codec.decode(encode(batch([Sample("m", "d", 1.0)])))
    second = codec.decode(encode(batch([Sample("m", "d", 2.0)])))
    assert first.samples.layout is second.samples.layout  # type: ignore[union-attr]


@given(
    st.lists(
        st.tuples(st.text(max_size=8), st.text(max_size=8), st.floats(allow_nan=True)),
        max_size=20,
    ),
)
def test_any_samples_survive_the_journey(samples: list[tuple[str, str, float]]) -> None:
    sent = batch([Sample(*one) for one in samples])
    assert decode(encode(sent)) == sent


@given(st.integers(min_value=-62_135_596_800_000_000_000, max_value=253_402_300_799_999_999_999))
def test_moments_keep_every_nanosecond_as_text(time_ns: int) -> None:
    assert Instant.parse(Instant(time_ns).text()) == time_ns


def test_moments_with_an_offset_are_the_same_moment() -> None:
    assert Instant.parse("2026-11-30T14:00:00+02:00") == NOW
