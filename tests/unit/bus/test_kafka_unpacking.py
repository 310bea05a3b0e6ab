"""The reader's own way to unpack zstd: the library's bytes, in less time."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from kafka import codec
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from bus.kafka import unpacking

TEXT = b"container_memory_unreclaimable_bytes" * 40
ZSTD = 4  # the number of Kafka's format of records


def with_size(plain: bytes) -> bytes:
    """Return a frame that tells how much it holds, as kafka-python writes it."""
    return zstandard.ZstdCompressor().compress(plain)


def without_size(plain: bytes) -> bytes:
    """Return a frame that does not, as writers of streams (Java, librdkafka) leave it."""
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return compressor.compress(plain) + compressor.flush()


@pytest.mark.parametrize(
    "packed",
    [
        with_size(TEXT),
        without_size(TEXT),
        with_size(TEXT) + without_size(b"and more"),
        with_size(b""),
        with_size(bytes(1_000_000)),
    ],
    ids=["size told", "size not told", "two frames", "nothing", "a million bytes"],
)
def test_what_is_unpacked_is_what_the_library_unpacks(packed: bytes) -> None:
    assert unpacking.unpacked(packed) == codec.zstd_decode(packed)


def test_bytes_that_are_no_frame_are_an_error() -> None:
    with pytest.raises(zstandard.ZstdError):
        unpacking.unpacked(b"no frame at all")


def test_threads_unpack_at_the_same_time() -> None:
    plain = [b"%d " % number * 5000 for number in range(200)]
    with ThreadPoolExecutor(4) as several:
        found = list(several.map(unpacking.unpacked, map(with_size, plain)))
    assert found == plain


def test_the_library_reads_its_own_batches_with_it() -> None:
    unpacking.install()
    builder = MemoryRecordsBuilder(magic=2, compression_type=ZSTD, batch_size=1 << 20)
    for number in range(3):
        builder.append(None, b"n%d" % number, TEXT, [("ce_type", b"t")])
    builder.close()
    (batch,) = MemoryRecords(bytes(builder.buffer()))
    assert [(one.key, one.value) for one in batch] == [(b"n%d" % n, TEXT) for n in range(3)]
