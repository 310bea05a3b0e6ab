"""`[agent.spool]`: how much is kept for a bus that is away, and where."""

from typing import Annotated

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is kept: in memory an hour of a second's batches, on disk about a day of them.

    records_max, bytes_max: in memory, what is on its way included. disk: whether what waits longer
    than disk_after_s (or fills half of the memory) is written to disk; disk_bytes_max bounds that.
    sync_s: how long what was written may wait until the disk has it for certain. What a kill can
    cost is what was younger than disk_after_s, what a power cut can cost sync_s more.
    """

    records_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 3600
    bytes_max: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 32)] = 16 << 20
    disk: bool = True
    disk_after_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 3.0
    disk_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 40)] = 256 << 20
    sync_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 1.0
