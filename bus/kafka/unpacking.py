"""How the reader unpacks zstd: with one decompressor a thread, not a new one for each record.

An agent's record is a batch of its own, compressed alone, so what the library does once a batch it
does here ten thousand times a second; making a decompressor and its buffers costs twice what the
unpacking does (`python -m bench.kafka_pipeline`; decision 0009). The library offers no setting for
it, so its function is replaced where it is used. A release of the library that no longer looks
there goes its own way, with the same bytes.
"""

import threading

import zstandard
from kafka.record import default_records

_OWN = threading.local()  # a decompressor may not be used by two threads at once


def unpacked(payload: bytes) -> bytes:
    """Return what one or several zstd frames hold, whether or not they tell its size.

    Errors: `zstandard.ZstdError` where they are none.
    """
    decompressor = getattr(_OWN, "decompressor", None)
    if decompressor is None:
        decompressor = _OWN.decompressor = zstandard.ZstdDecompressor()
    return decompressor.decompressobj(read_across_frames=True).decompress(payload)


def install() -> None:
    """Have the library unpack records so."""
    default_records.zstd_decode = unpacked
