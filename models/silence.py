"""Silence: how suspicious it is that nothing was heard of a node for so long (phi accrual).

phi = -log10 of the chance that a healthy node's next beat is still to come (Hayashibara et al.,
2004, with the logistic approximation of the normal tail that Akka uses). Pauses are learned as a
decaying mean and deviation; a pause that is acceptable for any node is granted on top. At one beat
a second phi reaches 8 between 8.6 s (steady beats) and 11.3 s (ragged ones) after the last.

Does not work well if a node's beats come in bursts: its deviation grows with them.
"""

from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.base import Columns, Floats, Kind, Rows, number_of

Pause = Annotated[float, msgspec.Meta(ge=0.001, le=86_400)]
PHI_MAX = 300
"""A bar beyond this is met by no pause that anyone would wait for."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[models.silence]`: what pauses are normal, in seconds, and how many beats are remembered."""

    window: Annotated[int, msgspec.Meta(ge=2, le=65_535)] = 200
    sd_floor_s: Pause = 0.5
    acceptable_pause_s: Pause = 5.0
    usual_pause_s: Pause = 1.0
    """Assumed of a node of which fewer than two beats were heard."""
    silence_phi: Annotated[float, msgspec.Meta(ge=0.5, le=PHI_MAX)] = 8.0
    """A pause that came to this was silence: it does not teach what pauses are normal."""
    silences_in_a_row: Annotated[int, msgspec.Meta(ge=1, le=255)] = 3
    """So many such pauses without a shorter one are the node's new habit, and are learned."""

    def __post_init__(self) -> None:
        if not 2 <= self.window <= 65_535:
            raise ValueError(f"window: {self.window} is not from 2 to 65535")
        if not 1 <= self.silences_in_a_row <= 255:
            raise ValueError(f"silences_in_a_row: {self.silences_in_a_row} is not from 1 to 255")
        for name in ("sd_floor_s", "acceptable_pause_s", "usual_pause_s", "silence_phi"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")


class Silence(Columns):
    """When each of `capacity` nodes was heard last, and how long its pauses usually are."""

    last_s: Floats
    mean_s: Floats
    variance: Floats
    pauses: NDArray[np.uint16]
    """Pauses learned from, as far as the window goes."""
    silences: NDArray[np.uint8]
    """Pauses in a row that were too long to be learned from."""

    def __init__(self, settings: Settings, capacity: int) -> None:
        self.settings = settings
        super().__init__(
            capacity,
            {
                "last_s": Kind(np.float64, -np.inf),
                "mean_s": Kind(np.float64, settings.usual_pause_s),
                "variance": Kind(np.float64, 0.0),
                "pauses": Kind(np.uint16, 0),
                "silences": Kind(np.uint8, 0),
            },
        )

    def learn(self, rows: Rows, time_s: Floats | float) -> None:
        """Take one beat of each of these nodes; one that is not newer than the last is no beat."""
        heard = np.broadcast_to(
            np.asarray(time_s, dtype=np.float64), (number_of(rows, self.capacity),)
        )
        before = self.last_s[rows]
        newer = np.isfinite(heard) & (heard > before)
        pauses = newer & np.isfinite(before)
        pause_s = np.where(pauses, heard, 0.0) - np.where(pauses, before, 0.0)
        silent = pauses & (self._phi(rows, pause_s) >= self.settings.silence_phi)
        in_a_row = np.where(pauses, np.where(silent, self.silences[rows] + 1, 0), 0)
        habit = silent & (in_a_row >= self.settings.silences_in_a_row)
        learned = pauses & (~silent | habit)
        # The first pauses weigh as in a plain mean, later ones as in a window of so many.
        counted = np.where(habit, 0, self.pauses[rows])
        share = 1.0 / np.minimum(counted + 1.0, self.settings.window)
        step = pause_s - self.mean_s[rows]
        variance = (1.0 - share) * (self.variance[rows] + share * step * step)
        self.mean_s[rows] += np.where(learned, share * step, 0.0)
        self.variance[rows] = np.where(learned, variance, self.variance[rows])
        self.pauses[rows] = np.where(
            learned, np.minimum(counted + 1, self.settings.window), self.pauses[rows]
        )
        self.silences[rows] = np.where(pauses, np.where(habit, 0, in_a_row), self.silences[rows])
        self.last_s[rows] = np.where(newer, heard, before)

    def score(self, rows: Rows, now_s: Floats | float) -> Floats:
        """Phi of each of these nodes at `now_s`; NaN for one that was never heard."""
        waited_s = np.asarray(now_s, dtype=np.float64) - self.last_s[rows]
        heard = np.isfinite(waited_s)
        return np.where(heard, self._phi(rows, np.where(heard, waited_s, 0.0)), np.nan)

    def _phi(self, rows: Rows, waited_s: Floats) -> Floats:
        """Suspicion after so long a wait.

        A deviation is never taken for more than the mean pause: a node that is often late must
        still be missed in time.
        """
        mean_s = self.mean_s[rows]
        deviation_s = np.clip(
            np.sqrt(self.variance[rows]),
            self.settings.sd_floor_s,
            np.maximum(mean_s, self.settings.sd_floor_s),
        )
        y = (waited_s - mean_s - self.settings.acceptable_pause_s) / deviation_s
        # -log10(e / (1 + e)) with ln e = -y (1.5976 + 0.070566 y^2), kept finite on both sides.
        return np.asarray(np.logaddexp(0.0, y * (1.5976 + 0.070566 * y * y)) / np.log(10.0))


def build(settings: Settings, capacity: int) -> Silence:
    """A model that knows nothing yet, for `capacity` nodes."""
    return Silence(settings, capacity)
