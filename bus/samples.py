"""The readings of one batch: names as one shared block, values as one block of float64.

The names of a node's series hardly ever change, so they travel as one opaque block that a reader
parses once and then recognises by its bytes (decision 0002). Every record can be read alone:
there is no registry and no earlier record to depend on. No numpy here: the agent's side has none.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from sys import byteorder
from typing import NamedTuple, Self

import msgspec

Pair = tuple[str, str]


class Sample(NamedTuple):
    """One reading: what was measured, on which device (empty: the node itself), the value."""

    metric: str
    device: str
    value: float


class Layout:
    """The (metric, device) pairs of a batch in order, and the same as bytes."""

    __slots__ = ("names", "pairs")

    def __init__(self, pairs: tuple[Pair, ...], names: bytes) -> None:
        """Keep both forms; use `Layout.of` or `Layouts.parse`."""
        self.pairs = pairs
        self.names = names

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> "Layout":
        """Return the layout of these pairs."""
        kept = tuple(pairs)
        flat = [text for pair in kept for text in pair]
        return cls(kept, msgspec.msgpack.encode(flat))

    def __len__(self) -> int:
        """Return how many series there are."""
        return len(self.pairs)


class Layouts:
    """Layouts that were seen, by their bytes; the least recently used are forgotten."""

    def __init__(self, capacity: int = 50_000) -> None:
        """Keep at most `capacity` layouts (one for each kind of node, or one for each node)."""
        self._capacity = capacity
        self._known: OrderedDict[bytes, Layout] = OrderedDict()
        self._decoder = msgspec.msgpack.Decoder(list[str])

    def parse(self, names: bytes) -> Layout:
        """Return the layout of `names`; ValueError where the bytes are none."""
        layout = self._known.get(names)
        if layout is not None:
            return layout
        flat = self._decoder.decode(names)
        if len(flat) % 2:
            msg = "names come in pairs of metric and device"
            raise ValueError(msg)
        layout = Layout(tuple(zip(flat[::2], flat[1::2], strict=True)), names)
        self._known[names] = layout
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return layout


class Samples:
    """An immutable sequence of `Sample`: a shared layout and a block of little-endian float64."""

    __slots__ = ("layout", "values")

    def __init__(self, layout: Layout, values: bytes) -> None:
        """Join a layout and its values; ValueError where their lengths differ."""
        if len(values) != 8 * len(layout.pairs):
            msg = f"{len(layout.pairs)} names but {len(values) / 8:g} values"
            raise ValueError(msg)
        self.layout = layout
        self.values = values

    @classmethod
    def of(cls, samples: Iterable[Sample | tuple[str, str, float]]) -> Self:
        """Return the samples as a block."""
        kept = list(samples)
        layout = Layout.of((metric, device) for metric, device, _ in kept)
        return cls(layout, pack(value for _, _, value in kept))

    def __iter__(self) -> Iterator[Sample]:
        """Give the samples one by one (for people and tests; the detector reads the block)."""
        for (metric, device), value in zip(self.layout.pairs, self.numbers(), strict=True):
            yield Sample(metric, device, value)

    def numbers(self) -> "array[float]":
        """Return the values as an array of doubles."""
        values = array("d")
        values.frombytes(self.values)
        if byteorder == "big":
            values.byteswap()
        return values

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.layout.pairs)

    def __eq__(self, other: object) -> bool:
        """Compare names and values byte by byte (so that NaN equals NaN)."""
        return (
            isinstance(other, Samples)
            and self.layout.names == other.layout.names
            and self.values == other.values
        )

    def __hash__(self) -> int:
        """Return a hash that agrees with `==`."""
        return hash((self.layout.names, self.values))

    def __repr__(self) -> str:
        """Show the size, not a thousand numbers."""
        return f"Samples({len(self)})"


def pack(values: Iterable[float]) -> bytes:
    """Return numbers as a block of little-endian float64."""
    block = array("d", values)
    if byteorder == "big":
        block.byteswap()
    return block.tobytes()
