"""What every model of series looks like from outside, and the columns that they are made of.

A model keeps one row of numbers for each series, in columns over all series (struct of arrays), so
that one call moves a whole frame. A model file is found by its name and offers two things:
`Settings`, a frozen struct that the configuration's `[models.NAME]` fills (unknown keys are
refused, a value out of range raises ValueError naming the field), and
`build(settings, capacity)`.

Methods take what they need by name from this short vocabulary. The contract test feeds every model
that it finds by these names, so a new model keeps to them:

=========  ========================================================================================
rows       a slice (fast: columns become views) or unique row numbers
values     one number for each of `rows`; NaN where the reading is missing
time_s     seconds of event time: one number for all of `rows`, or one for each
dt_s       seconds since the row's previous reading: one number, or one for each
frozen     a flag for each of `rows`: what is suspected is scored, never learned from
limits     a column over ALL rows: the level at which the series ends; NaN where there is none
now_s      seconds: the moment for which a score is asked
=========  ========================================================================================
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
Rows = slice | Indices
State = dict[str, NDArray[Any]]
"""Named arrays of any element type: what a checkpoint writes down."""

LARGEST = 1e37
"""No model learns from a reading beyond this: float32 ends at 3.4e38, differences must fit too."""


class SeriesModel(Protocol):
    """What the scorer's checkpoint and the contract test need of any model of series.

    `learn` and `score` differ in what they take (see the vocabulary above) and are two calls:
    scoring changes nothing, learning keeps no reference to what it was given.
    """

    @property
    def capacity(self) -> int:
        """Number of rows; row numbers run from 0 to capacity - 1."""
        ...

    @property
    def bytes_per_row(self) -> int:
        """Bytes that one series costs."""
        ...

    def grow(self, capacity: int) -> None:
        """Make room. Fresh rows know nothing; a capacity that is smaller changes nothing."""
        ...

    def forget(self, rows: Rows) -> None:
        """Make these rows fresh: the series behind them ended, or became another one."""
        ...

    def save(self) -> State:
        """Copies of all columns; equal models give equal bytes."""
        ...

    def load(self, state: State) -> None:
        """Become the saved model, capacity included; ValueError where the state does not fit."""
        ...


class Kind(NamedTuple):
    """One column: its element type, what a fresh row holds, and how many numbers a row has."""

    dtype: type[np.generic]
    fresh: float
    width: int = 0
    """0: one number for each row. Otherwise an array (width, capacity), a row's numbers apart."""


class Columns:
    """Named columns of one length that grow, forget, save and load together.

    A subclass annotates its columns as attributes and hands the same names here as `kinds`.
    """

    def __init__(self, capacity: int, kinds: Mapping[str, Kind]) -> None:
        self._kinds = dict(kinds)
        self._capacity = capacity
        for name, kind in self._kinds.items():
            setattr(self, name, _fresh(kind, capacity))

    @property
    def capacity(self) -> int:
        """Number of rows."""
        return self._capacity

    @property
    def bytes_per_row(self) -> int:
        """Bytes that one series costs, exactly: the sum over its columns."""
        return sum(
            np.dtype(kind.dtype).itemsize * max(1, kind.width) for kind in self._kinds.values()
        )

    def grow(self, capacity: int) -> None:
        """Make room. Fresh rows know nothing; a capacity that is smaller changes nothing."""
        if capacity <= self._capacity:
            return
        for name, kind in self._kinds.items():
            longer = _fresh(kind, capacity)
            longer[..., : self._capacity] = getattr(self, name)
            setattr(self, name, longer)
        self._capacity = capacity

    def forget(self, rows: Rows) -> None:
        """Make these rows fresh."""
        for name, kind in self._kinds.items():
            getattr(self, name)[..., rows] = kind.fresh

    def save(self) -> State:
        """Copies of all columns by name."""
        return {name: getattr(self, name).copy() for name in self._kinds}

    def load(self, state: State) -> None:
        """Take over copies of the saved columns; ValueError names what does not fit.

        Either all of the state is taken or nothing changes.
        """
        if set(state) != set(self._kinds):
            raise ValueError(
                f"saved columns are {sorted(state)}, these settings need {sorted(self._kinds)}"
            )
        lengths = {column.shape[-1] if column.ndim else 0 for column in state.values()}
        if len(lengths) != 1:
            raise ValueError(f"saved columns differ in length: {sorted(lengths)}")
        capacity = lengths.pop()
        for name, kind in self._kinds.items():
            wanted = _fresh(kind, 0)
            found = state[name]
            if found.dtype != wanted.dtype or found.shape[:-1] != wanted.shape[:-1]:
                raise ValueError(
                    f"saved column {name} is {found.dtype}{found.shape[:-1]}, "
                    f"these settings need {wanted.dtype}{wanted.shape[:-1]}"
                )
        for name in self._kinds:
            setattr(self, name, np.array(state[name]))
        self._capacity = capacity


def singles(values: Floats | Singles | float) -> Singles:
    """Values as float32; what is too large for it becomes inf."""
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float32)


def usable(values: Singles) -> Flags:
    """Where there is a reading to learn from: not NaN, not inf, not beyond LARGEST."""
    return np.asarray(np.abs(values) <= np.float32(LARGEST))


def number_of(rows: Rows, capacity: int) -> int:
    """How many rows are meant."""
    if isinstance(rows, slice):
        return len(range(*rows.indices(capacity)))
    return len(rows)


def numbered(rows: Rows, capacity: int) -> Indices:
    """The numbers of the rows that are meant."""
    if isinstance(rows, slice):
        return np.arange(*rows.indices(capacity), dtype=np.intp)
    return rows


def chosen(rows: Rows, flags: Flags, capacity: int) -> Rows:
    """Those of `rows` whose flag is up; a slice stays a slice where all of it is."""
    return rows if bool(flags.all()) else numbered(rows, capacity)[flags]


def _fresh(kind: Kind, capacity: int) -> NDArray[Any]:
    shape = (kind.width, capacity) if kind.width else (capacity,)
    return np.full(shape, kind.fresh, dtype=kind.dtype)
