"""Silence: how suspicious it is that nothing was heard of a node for so long (phi accrual).

phi = -log10 of the chance that a healthy node's next beat is still to come (Hayashibara et al.,
2004, with the logistic approximation of the normal tail that Akka uses). Pauses are learned as a
decaying mean and deviation; a pause that is acceptable for any node is granted on top.

Does not work well if a node's beats come in bursts: its deviation grows with them.
"""

import msgspec
import numpy as np

from models.base import Columns, Floats, Kind, Rows, number_of


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[models.silence]`: what pauses are normal, in seconds, and how many beats are remembered."""

    window: int = 200
    sd_floor_s: float = 0.5
    acceptable_pause_s: float = 5.0
    usual_pause_s: float = 1.0
    """Assumed of a node of which fewer than two beats were heard."""

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ValueError(f"window: {self.window} is not at least 2")
        for name in ("sd_floor_s", "acceptable_pause_s", "usual_pause_s"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")


class Silence(Columns):
    """When each of `capacity` nodes was heard last, and how long its pauses usually are."""

    last_s: Floats
    mean_s: Floats
    variance: Floats
    beats: Floats

    def __init__(self, settings: Settings, capacity: int) -> None:
        self.settings = settings
        super().__init__(
            capacity,
            {
                "last_s": Kind(np.float64, -np.inf),
                "mean_s": Kind(np.float64, settings.usual_pause_s),
                "variance": Kind(np.float64, 0.0),
                "beats": Kind(np.float64, 0.0),
            },
        )

    def learn(self, rows: Rows, time_s: Floats | float) -> None:
        """Take one beat of each of these nodes; one that is not newer than the last is no beat."""
        moments = np.broadcast_to(
            np.asarray(time_s, dtype=np.float64), (number_of(rows, self.capacity),)
        )
        before = self.last_s[rows]
        known = np.isfinite(before)
        fresh = np.isfinite(moments) & (moments > before)
        pause = np.where(known & fresh, moments - np.where(known, before, 0.0), 0.0)
        counts = known & fresh
        # The first pauses weigh as in a plain mean, later ones as in a window of so many beats.
        share = 1.0 / np.minimum(self.beats[rows] + 1.0, float(self.settings.window))
        mean, variance = self.mean_s[rows], self.variance[rows]
        step = pause - mean
        self.mean_s[rows] = np.where(counts, mean + share * step, mean)
        self.variance[rows] = np.where(
            counts, (1.0 - share) * (variance + share * step * step), variance
        )
        self.beats[rows] += counts
        self.last_s[rows] = np.where(fresh, moments, before)

    def score(self, rows: Rows, now_s: Floats | float) -> Floats:
        """Return phi of each of these nodes at `now_s`; 0 for one that was never heard."""
        waited = np.asarray(now_s, dtype=np.float64) - self.last_s[rows]
        deviation = np.maximum(np.sqrt(self.variance[rows]), self.settings.sd_floor_s)
        heard = np.isfinite(waited)
        ahead = np.where(heard, waited, 0.0)
        y = (ahead - self.mean_s[rows] - self.settings.acceptable_pause_s) / deviation
        # -log10(e / (1 + e)) with ln e = -y(1.5976 + 0.070566 y^2), kept finite on both sides.
        exponent = y * (1.5976 + 0.070566 * y * y)
        phi: Floats = np.logaddexp(0.0, exponent) / np.log(10.0)
        return np.where(heard, phi, 0.0)


def build(settings: Settings, capacity: int) -> Silence:
    """Return the model for `capacity` nodes."""
    return Silence(settings, capacity)
