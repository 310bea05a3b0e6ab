"""Level and scale that outliers can't move: an exponential mean with clipped innovations.

z = (y - level) / scale is clipped at k (Huber), the level follows a * scale * psi, the scale is
multiplied by 1 + (b / 2)(psi^2 / kappa - 1), where kappa = E[psi^2] of a standard normal: so it
stays above zero and settles at the standard deviation of clean normal data.

Does not work well if the level shifts by many scales: it is followed at only k scales a tau.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.base import Columns, Flags, Floats, Kind, Rows

Singles = NDArray[np.float32]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[models.level]`: memory in seconds, and where innovations are clipped."""

    tau_s: float = 3600.0
    young_tau_s: float = 600.0
    """Memory while a series is young."""
    young_s: float = 21_600.0
    clip: float = 2.5
    scale_floor_share: float = 1e-6
    """The scale never falls below this share of the level, nor below one millionth of a unit: a
    constant series must not turn its first change into an alarm without bounds."""

    def __post_init__(self) -> None:
        for name in ("tau_s", "young_tau_s", "clip", "scale_floor_share"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
        if not 0 <= self.young_s < math.inf:
            raise ValueError(f"young_s: {self.young_s} is below 0")


class Level(Columns):
    """Level and scale of `capacity` series."""

    level: Singles
    scale: Singles
    age_s: Singles

    def __init__(self, settings: Settings, capacity: int) -> None:
        self.settings = settings
        self._kappa = clipped_variance(settings.clip)
        super().__init__(
            capacity,
            {
                "level": Kind(np.float32, np.nan),
                "scale": Kind(np.float32, 0.0),
                "age_s": Kind(np.float32, 0.0),
            },
        )

    def score(self, rows: Rows, values: Floats) -> Singles:
        """Return how many scales each value lies above its level; 0 where nothing is known."""
        level = self.level[rows]
        with np.errstate(invalid="ignore"):
            z = (np.asarray(values, dtype=np.float32) - level) / self._floored(rows, level)
        known: Singles = np.nan_to_num(z, nan=0.0)
        return known

    def learn(
        self,
        rows: Rows,
        values: Floats,
        dt_s: Floats | float,
        frozen: Flags | None = None,
    ) -> None:
        """Follow one value of each of these series; `frozen` ones, NaN and inf teach nothing."""
        given = np.asarray(values, dtype=np.float32)
        known = np.isfinite(given)
        if frozen is not None:
            known &= ~frozen
        level, scale, age_s = self.level[rows], self.scale[rows], self.age_s[rows]
        fresh = known & np.isnan(level)
        dt = np.asarray(dt_s, dtype=np.float32)
        tau = np.where(
            age_s < self.settings.young_s, self.settings.young_tau_s, self.settings.tau_s
        ).astype(np.float32)
        share = np.minimum(dt / tau, np.float32(1.0))
        width = self._floored(rows, level)
        with np.errstate(invalid="ignore"):
            psi = np.clip((given - level) / width, -self.settings.clip, self.settings.clip)
        moved = known & ~fresh
        # The first difference gives the scale its size (E|y1 - y2| = 1.128 scales).
        young = moved & (scale == 0.0)
        width = np.where(young, np.maximum(width, np.abs(given - level) * 0.886), width)
        self.level[rows] = np.where(
            fresh, given, np.where(moved, level + share * width * psi, level)
        )
        grown = width * (1.0 + share / 2.0 * (psi * psi / self._kappa - 1.0))
        self.scale[rows] = np.where(moved, grown, scale)
        self.age_s[rows] = np.where(moved, age_s + dt, age_s)

    def _floored(self, rows: Rows, level: Singles) -> Singles:
        floor = np.maximum(np.abs(level) * self.settings.scale_floor_share, 1e-6)
        wide: Singles = np.fmax(self.scale[rows], floor).astype(np.float32)
        return wide


def clipped_variance(clip: float) -> float:
    """Return E[psi^2] of a standard normal that is clipped at +-`clip`."""
    density = math.exp(-clip * clip / 2.0) / math.sqrt(2.0 * math.pi)
    tail = 0.5 * math.erfc(clip / math.sqrt(2.0))
    return 1.0 - 2.0 * clip * density - 2.0 * tail + 2.0 * clip * clip * tail


def build(settings: Settings, capacity: int) -> Level:
    """Return the model for `capacity` series."""
    return Level(settings, capacity)
