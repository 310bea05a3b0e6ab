"""Level and scale that outliers can't move: an exponential mean with clipped innovations.

z = (y - level) / scale is clipped at +-k (Huber), the level follows share * scale * psi, and the
scale is multiplied by 1 + (share / 2)(psi^2 / kappa - 1), where kappa = E[psi^2] of a clipped
standard normal: so it stays above zero (no variances are subtracted in float32) and settles at the
standard deviation of clean normal readings. A row's first readings weigh as in a plain mean.

Does not work well if the level shifts by many scales: it is followed at only k scales a tau.
Whoever knows that a regime has changed forgets the row.
"""

import math
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.base import (
    Columns,
    Flags,
    Floats,
    Indices,
    Kind,
    Rows,
    Singles,
    number_of,
    numbered,
    singles,
    usable,
)

START_READINGS = 8
"""So many readings make a first level (their mean) and scale (their mean absolute deviation)."""
DEVIATION_TO_SCALE = 1.2533
"""sqrt(pi / 2): a normal's standard deviation beside its mean absolute deviation."""
SHARE_MAX = 0.25
"""What one reading may weigh after the start, however long the pause before it was."""
YEAR_S = 31_622_400.0  # 366 days
CHUNK_ROWS = 32_768
"""Rows that are worked on at a time, so that what lies between two steps stays in the cache."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[models.level]`: memory in seconds, and where innovations are clipped."""

    tau_s: Annotated[float, msgspec.Meta(ge=1, le=YEAR_S)] = 3600.0
    young_tau_s: Annotated[float, msgspec.Meta(ge=1, le=YEAR_S)] = 600.0
    """Memory while a series is young."""
    young_s: Annotated[float, msgspec.Meta(ge=0, le=YEAR_S)] = 21_600.0
    clip: Annotated[float, msgspec.Meta(ge=0.5, le=20)] = 2.5
    scale_floor_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1e-3
    """The scale never falls below this share of the level: a series that was constant must not
    turn its first change into an alarm without bounds."""
    scale_floor: Annotated[float, msgspec.Meta(gt=0, le=1e12)] = 1e-6
    """Nor below this, in the series' own unit."""

    def __post_init__(self) -> None:
        for name in ("tau_s", "young_tau_s", "clip", "scale_floor_share", "scale_floor"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
        if not 0 <= self.young_s < math.inf:
            raise ValueError(f"young_s: {self.young_s} is below 0")


class Level(Columns):
    """Level and scale of `capacity` series, in their own units."""

    level: Singles
    scale: Singles
    age_s: Singles
    """Seconds of readings learned from."""
    readings: NDArray[np.uint8]
    """Readings learned from, as far as the start goes."""

    def __init__(self, settings: Settings, capacity: int) -> None:
        self.settings = settings
        self._kappa = clipped_variance(settings.clip)
        super().__init__(
            capacity,
            {
                "level": Kind(np.float32, np.nan),
                "scale": Kind(np.float32, np.nan),
                "age_s": Kind(np.float32, 0.0),
                "readings": Kind(np.uint8, 0),
            },
        )

    def score(self, rows: Rows, values: Floats) -> Singles:
        """How many scales each value lies above its level; changes nothing.

        NaN where the value is missing or the row has not learned from START_READINGS readings.
        """
        z = singles(values) - self.level[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            z /= self.scale[rows]
        if (self.readings[rows] < START_READINGS).any():
            z[self.readings[rows] < START_READINGS] = np.nan
        return z

    def learn(
        self,
        rows: Rows,
        values: Floats,
        dt_s: Floats | float,
        frozen: Flags | None = None,
    ) -> None:
        """Follow one value of each of these rows; `frozen` ones, NaN and inf teach nothing.

        `dt_s` is the time since the row's previous reading; what is below 0 counts as 0.
        """
        given = singles(values)
        elapsed = np.maximum(singles(dt_s), np.float32(0.0))
        taught = usable(given)
        if frozen is not None:
            taught &= ~frozen
        if elapsed.ndim:
            taught &= usable(elapsed)
        starting = taught & (self.readings[rows] < START_READINGS)
        if starting.any():
            at = numbered(rows, self.capacity)[starting]
            self._start(at, given[starting], elapsed[starting] if elapsed.ndim else elapsed)
            taught &= ~starting
        for part, columns in _chunks(rows, self.capacity):
            self._follow(
                part,
                given[columns],
                elapsed[columns] if elapsed.ndim else elapsed,
                taught[columns],
            )

    def _start(self, rows: Indices, given: Singles, elapsed: Singles) -> None:
        """Plain means of the first readings and of how far they lie from that mean."""
        count = self.readings[rows].astype(np.float32)
        fresh = count == 0
        level = np.where(fresh, given, self.level[rows])
        apart = np.abs(given - level) * np.float32(DEVIATION_TO_SCALE)
        scale = np.where(fresh, np.float32(0.0), self.scale[rows])
        level += (given - level) / (count + 1)
        scale += np.where(fresh, np.float32(0.0), (apart - scale) / np.maximum(count, 1))
        self.level[rows] = level
        self.scale[rows] = np.maximum(scale, self._floor(level))
        self.age_s[rows] += np.where(fresh, np.float32(0.0), elapsed)
        self.readings[rows] += np.uint8(1)

    def _follow(self, rows: Rows, given: Singles, elapsed: Singles, taught: Flags) -> None:
        """The Huber step of rows past their start; rows that are not taught stay as they are."""
        level, scale, age_s = self.level[rows], self.scale[rows], self.age_s[rows]
        share = self._share(age_s, elapsed, taught)
        with np.errstate(over="ignore", invalid="ignore"):
            psi = given - level
            psi /= scale
        np.clip(psi, -self.settings.clip, self.settings.clip, out=psi)
        whole = bool(taught.all())
        if not whole:
            psi[~taught] = 0.0
        moved = psi * scale
        moved *= share
        moved += level
        psi *= psi
        psi *= np.float32(0.5 / self._kappa)
        psi -= np.float32(0.5)
        psi *= share
        psi += np.float32(1.0)
        psi *= scale
        np.maximum(psi, self._floor(moved), out=psi)
        self.level[rows] = moved
        self.scale[rows] = psi if whole else np.where(taught, psi, scale)
        self.age_s[rows] = age_s + (elapsed if whole else np.where(taught, elapsed, 0.0))

    def _share(self, age_s: Singles, elapsed: Singles, taught: Flags) -> Singles:
        """What this reading weighs against the past; 0 for rows that are not taught."""
        young_tau_s, tau_s = np.float32(self.settings.young_tau_s), np.float32(self.settings.tau_s)
        share = elapsed / np.where(age_s < self.settings.young_s, young_tau_s, tau_s)
        np.minimum(share, np.float32(SHARE_MAX), out=share)
        if not taught.all():
            share[~taught] = 0.0
        return np.asarray(share)

    def _floor(self, level: Singles) -> Singles:
        floor = np.abs(level)
        floor *= np.float32(self.settings.scale_floor_share)
        return np.maximum(floor, np.float32(self.settings.scale_floor), out=floor)


def clipped_variance(clip: float) -> float:
    """E[psi^2] of a standard normal that is clipped at +-`clip`: 0.97756 at 2.5."""
    density = math.exp(-clip * clip / 2.0) / math.sqrt(2.0 * math.pi)
    tail = 0.5 * math.erfc(clip / math.sqrt(2.0))
    return 1.0 - 2.0 * clip * density - 2.0 * tail + 2.0 * clip * clip * tail


def build(settings: Settings, capacity: int) -> Level:
    """A model that knows nothing yet, for `capacity` series."""
    return Level(settings, capacity)


def _chunks(rows: Rows, capacity: int) -> list[tuple[Rows, slice]]:
    """Rows in parts of at most CHUNK_ROWS, each with its place among the given values."""
    count = number_of(rows, capacity)
    places = [slice(k, min(k + CHUNK_ROWS, count)) for k in range(0, count, CHUNK_ROWS)]
    if isinstance(rows, slice):
        start, _, step = rows.indices(capacity)
        return [(slice(start + p.start * step, start + p.stop * step, step), p) for p in places]
    return [(rows[place], place) for place in places]
