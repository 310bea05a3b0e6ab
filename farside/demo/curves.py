"""How much memory each of the demo's processes holds at which time.

One definition for all who need it: the process that follows the curve, the draw that promises
something about it, and the judge. Standard library only, because the processes of the demo must be
small themselves and start within a tenth of a second.
"""

import math
from typing import NamedTuple

LEAK = "leak"
STEADY = "steady"
SAWTOOTH = "sawtooth"
WARMUP = "warmup"
PAGECACHE = "pagecache"
KINDS = (LEAK, STEADY, SAWTOOTH, WARMUP, PAGECACHE)


class Curve(NamedTuple):
    """Bytes over time of one process; times are seconds after the common "go".

    kind            start_s                      span_s              size_bytes
    leak            growth begins                seconds to limit    rate_bytes_s * span_s
    steady          -                            -                   0
    sawtooth        a moment at which it drops   period              height of a tooth
    warmup          growth begins                time constant       level above the base
    pagecache       growth begins                seconds of growth   the file's final size

    A leak goes on after `span_s`: nothing but its limit ends it.
    """

    kind: str
    base_bytes: int
    size_bytes: int
    start_s: float
    span_s: float
    rate_bytes_s: float

    def private_bytes(self, at_s: float) -> int:
        """Return the private memory (pages that only freeing or dying gives back)."""
        age_s = at_s - self.start_s
        if self.kind == SAWTOOTH:
            return self.base_bytes + int(self.size_bytes * ((age_s / self.span_s) % 1.0))
        if age_s <= 0.0:
            return self.base_bytes
        if self.kind == LEAK:
            return self.base_bytes + int(self.rate_bytes_s * age_s)
        if self.kind == WARMUP:
            return self.base_bytes + int(self.size_bytes * -math.expm1(-age_s / self.span_s))
        return self.base_bytes

    def file_bytes(self, at_s: float) -> int:
        """Return the file pages (which the kernel may drop at any time)."""
        if self.kind != PAGECACHE:
            return 0
        return min(self.size_bytes, int(self.rate_bytes_s * max(at_s - self.start_s, 0.0)))

    def value(self, at_s: float) -> int:
        """Return what an onlooker sees grow: file pages for the page cache, else private memory."""
        return self.file_bytes(at_s) if self.kind == PAGECACHE else self.private_bytes(at_s)

    def total_bytes(self, at_s: float) -> int:
        """Return everything that is charged to the process."""
        return self.private_bytes(at_s) + self.file_bytes(at_s)

    def peak_bytes(self) -> int:
        """Return the most it ever holds (a leak: what it holds when it meets its limit)."""
        return self.base_bytes + self.size_bytes

    def private_peak_bytes(self) -> int:
        """Return the most private memory it ever holds."""
        return self.base_bytes if self.kind == PAGECACHE else self.peak_bytes()
