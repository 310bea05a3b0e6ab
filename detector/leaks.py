"""Leaks: from ring verdicts to evidence that a container, a process or a node runs out of memory.

All tests at one width give 8 nats, what about two false alarms in 9,000 null series-days support;
a second width, nearness to the limit and memory pressure add four each, 18 together at most. So a
lone young leak stays a suspicion with a forecast; it becomes more only when something else agrees.
"""

import math
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bus.messages import Contribution, Exhaustion
from detector.bounds import Nats, Percent, Share
from detector.fusion import Evidence, summed
from detector.series import IntColumn
from models.floors import FloorRings
from models.verdicts import Advanced
from runtime.clock import Instant
from runtime.words import bytes_text, duration_text, rate_text

Floats = NDArray[np.float64]
FAR_S = 3650 * 86_400.0  # a late end without end is told as ten years
# Evidence about the state of the thing itself, as opposed to the shape of its growth.
NEAR_LIMIT = "near_limit"
PRESSURE = "memory_pressure"


class LeakSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How verdicts weigh, and how long one that passed is kept while the tests say no.

    near_share: from this share of the limit on, nearness is evidence. misses_kept: block ends that
    may fail before a width stops speaking. gives_back_share: a fall of the newest value below this
    share of the last floor ends the suspicion at once, because a leak gives nothing back. gone_s:
    a series without a sample for so long is no longer suspected.
    """

    width_nats: Nats = 8.0
    second_width_nats: Nats = 4.0
    near_nats: Nats = 4.0
    pressure_nats: Nats = 4.0
    cap_nats: Nats = 18.0
    near_share: Share = 0.85
    pressure_percent: Percent = 10.0
    misses_kept: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    gone_s: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 5.0
    gives_back_share: Share = 0.9

    def __post_init__(self) -> None:
        """Let the cap leave room for the first voice."""
        if self.cap_nats < self.width_nats:
            raise ValueError(
                f"cap_nats: {self.cap_nats:g} is below width_nats ({self.width_nats:g}), what one "
                "width alone is worth: raise it, or lower width_nats"
            )


class Growth(NamedTuple):
    """How a suspected series grows: widths that pass, onset, slope, moments of exhaustion."""

    widths_s: tuple[float, ...]
    onset_s: float
    slope: float
    best_s: float
    low_s: float
    high_s: float


class Reading(NamedTuple):
    """What the thing itself shows now."""

    signal: str
    device: str
    value: float
    limit: float
    pressure_percent: float


class Leaks:
    """Which leak-capable series pass at which widths, and what that is worth."""

    def __init__(self, settings: LeakSettings, rings: FloorRings) -> None:
        """Watch over `rings`."""
        self._settings = settings
        self._rings = rings
        self._widths = np.array(rings.settings.widths_s)
        capacity = rings.capacity
        self._held = np.zeros((capacity, len(self._widths)), np.int64)
        self._forecast = np.full((capacity, 3), np.nan)
        self._shape = np.full((capacity, 3), np.nan)  # onset_s, growth per second, floor
        self._speaking = np.zeros(capacity, np.bool_)

    def grow(self, capacity: int) -> None:
        """Make room for more leak-capable series."""
        more = capacity - len(self._speaking)
        if more <= 0:
            return
        self._rings.grow(capacity)
        self._held = np.vstack([self._held, np.zeros((more, len(self._widths)), np.int64)])
        self._forecast = np.vstack([self._forecast, np.full((more, 3), np.nan)])
        self._shape = np.vstack([self._shape, np.full((more, 3), np.nan)])
        self._speaking = np.concatenate([self._speaking, np.zeros(more, np.bool_)])

    def forget(self, leaks: IntColumn) -> None:
        """Make these series fresh."""
        self._rings.forget(leaks)
        self._held[leaks] = 0
        self._forecast[leaks] = np.nan
        self._shape[leaks] = np.nan
        self._speaking[leaks] = False

    def advance(
        self,
        leaks: IntColumn,
        times_s: Floats,
        values: Floats,
        limits: Floats,
    ) -> IntColumn:
        """Learn one frame; return the series of which there is something to say or to take back.

        `limits` is a column over all leak-capable series.
        """
        advanced = self._rings.learn(leaks, times_s, values)
        if advanced:
            self._note_verdicts(advanced, limits)
        here = self._held[leaks].any(axis=1)
        gave_back = here & (values < self._settings.gives_back_share * self._shape[leaks, 2])
        self._held[leaks[gave_back]] = 0
        here &= ~gave_back
        speaking = leaks[here]
        if len(speaking):
            ahead = self._rings.current(speaking, times_s[here], values[here], limits)
            known = np.isfinite(ahead.exhaustion_s)
            moments = np.stack([ahead.exhaustion_s, ahead.low_s, ahead.high_s], axis=1)
            self._forecast[speaking[known]] = (moments + times_s[here, None])[known]
        told: IntColumn = leaks[here | self._speaking[leaks]]
        self._speaking[leaks] = here
        return told

    def _note_verdicts(self, advanced: Advanced, limits: Floats) -> None:
        verdicts = self._rings.judge(advanced, limits)
        for place, rows in advanced.closed:
            self._held[rows, place] = np.maximum(self._held[rows, place] - 1, 0)
        places = np.searchsorted(self._widths, verdicts.width_s)
        passed = verdicts.passed
        rows = verdicts.rows[passed]
        self._held[rows, places[passed]] = self._settings.misses_kept
        self._shape[rows, 0] = verdicts.onset_s[passed]
        self._shape[rows, 1] = verdicts.slope[passed]
        # The floor is followed while the width holds, so that "gives back" means the newest one.
        self._shape[verdicts.rows, 2] = verdicts.floor

    def speaking(self) -> IntColumn:
        """Return the series that are suspected."""
        return np.flatnonzero(self._speaking)

    def drop(self, leak: int) -> None:
        """Stop suspecting a series."""
        self._speaking[leak] = False
        self._held[leak] = 0

    def growth(self, leak: int) -> Growth | None:
        """Return how a series grows, or None where it is no longer suspected."""
        if not self._speaking[leak]:
            return None
        onset_s, slope, _ = self._shape[leak]
        return Growth(
            widths_s=tuple(float(width) for width in self._widths[self._held[leak] > 0]),
            onset_s=float(onset_s),
            slope=float(slope),
            best_s=float(self._forecast[leak, 0]),
            low_s=float(self._forecast[leak, 1]),
            high_s=float(self._forecast[leak, 2]),
        )

    def save(self) -> dict[str, NDArray[Any]]:
        """Return copies of all columns, the rings' among them."""
        own = {
            "held": self._held.copy(),
            "forecast": self._forecast.copy(),
            "shape": self._shape.copy(),
            "speaking": self._speaking.copy(),
        }
        return own | {f"rings.{name}": column for name, column in self._rings.save().items()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Become the saved state."""
        self._held = state["held"].copy()
        self._forecast = state["forecast"].copy()
        self._shape = state["shape"].copy()
        self._speaking = state["speaking"].copy()
        rings = {name[6:]: column for name, column in state.items() if name.startswith("rings.")}
        self._rings.load(rings)


def weighed(growth: Growth, reading: Reading, settings: LeakSettings, now_ns: int) -> Evidence:
    """Return what a growth that passed the tests is worth, with its forecast."""
    span_s = growth.widths_s[0] * 24
    parts = [
        Contribution(
            signal=reading.signal,
            device=reading.device,
            value=reading.value,
            reference=reading.limit,
            nats=settings.width_nats,
            text=f"its floor rose in every test for {duration_text(span_s)}: steady, no step, "
            f"nothing given back, {rate_text(growth.slope)}",
        ),
    ]
    if len(growth.widths_s) > 1:
        wide = duration_text(growth.widths_s[-1] * 24)
        parts.append(
            Contribution(
                signal=reading.signal,
                device=reading.device,
                nats=settings.second_width_nats,
                text=f"the same holds over {wide}",
            ),
        )
    if reading.value >= settings.near_share * reading.limit:
        parts.append(
            Contribution(
                signal=NEAR_LIMIT,
                device=reading.device,
                value=reading.value,
                reference=reading.limit,
                nats=settings.near_nats,
                text=f"uses {reading.value / reading.limit:.0%} of its limit of "
                f"{bytes_text(reading.limit)}",
            ),
        )
    if reading.pressure_percent >= settings.pressure_percent:
        parts.append(
            Contribution(
                signal=PRESSURE,
                device=reading.device,
                value=reading.pressure_percent,
                reference=settings.pressure_percent,
                nats=settings.pressure_nats,
                text=f"all work waits for memory {reading.pressure_percent:.0f} % of the time",
            ),
        )
    return Evidence(
        nats=summed(parts, settings.cap_nats),
        contributions=tuple(parts),
        since_ns=round(growth.onset_s * 1e9) if math.isfinite(growth.onset_s) else now_ns,
        exhaustion=_forecast(growth, reading),
        widths=growth.widths_s,
    )


def _forecast(growth: Growth, reading: Reading) -> Exhaustion | None:
    if not math.isfinite(growth.best_s):
        return None
    farthest_s = growth.best_s + FAR_S
    return Exhaustion(
        time=_instant(growth.best_s),
        low=_instant(growth.low_s),
        high=_instant(min(growth.high_s, farthest_s)),
        used=reading.value,
        limit=reading.limit,
        growth=growth.slope,
    )


def _instant(time_s: float) -> Instant:
    return Instant(round(time_s * 1e9))
