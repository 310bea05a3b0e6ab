# ruff: noqa: INP001, D100  (an example in a page)
import struct

import msgpack


def read(value: bytes) -> dict:
    """Return the message in a record of farside.telemetry, with its samples as a list."""
    message = msgpack.unpackb(value)
    if message["type"] == "SampleBatch":
        names_block, values_block = message["samples"]
        names = msgpack.unpackb(names_block)
        values = struct.unpack(f"<{len(names) // 2}d", values_block)
        message["samples"] = list(zip(names[::2], names[1::2], values, strict=True))
    return message
