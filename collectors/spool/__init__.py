"""What the bus can't take now: kept in order, in memory and then on disk, within bounds.

A record leaves only when the bus has acknowledged it. Where there are too many, the oldest
telemetry is dropped first and log lines last, and each one dropped is counted.
"""

from collectors.spool.keeping import Spool
from collectors.spool.memory import Kept, Record
from collectors.spool.settings import Settings

__all__ = ["Kept", "Record", "Settings", "Spool"]
