"""Fusion: evidence in nats becomes one suspicion for each scope.

Evidence of one family is one voice, however many signals carry it; voices add up, beside the
prior log-odds of the fault (a naive Bayes sum with the price of the calibrator paid where the
evidence is made). Nothing is integrated over time here: evidence holds as long as its cause is
seen, so that one cause is never counted twice.
"""

import math
from collections.abc import Callable, Iterable
from typing import Annotated, NamedTuple

import msgspec

from bus.messages import (
    Contribution,
    Exhaustion,
    Fault,
    Scope,
    Source,
    Suspicion,
    SuspicionState,
)
from detector.bounds import LogOdds, Seconds
from runtime.clock import Instant

# Log-odds that a scope has the fault on any day, before anything was measured: ln of failures per
# 1,000 node-days (Meta's and Llama 3's published mixes, see docs/decisions) over 1,000.
PRIOR_PER_1000_DAYS: dict[Fault, float] = {
    "memory_leak": 1.0,
    "memory_exhaustion": 0.6,
    "gpu_memory": 1.2,
    "gpu_off_bus": 1.0,
    "thermal": 0.5,
    "pcie": 0.4,
    "nvlink": 0.5,
    "fabric": 0.8,
    "straggler": 0.5,
    "hang": 0.5,
    "disk": 0.3,
    "software": 0.6,
    "silence": 1.0,
    "telemetry": 5.0,
}
PRIOR: dict[Fault, float] = {
    fault: math.log(rate / 1000.0) for fault, rate in PRIOR_PER_1000_DAYS.items()
}


class FusionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bars, in nats of log-odds, and how often a lasting suspicion is told again."""

    suspect_nats: LogOdds = 0.0
    degraded_nats: LogOdds = 5.5
    refresh_s: Seconds = 10.0
    urgent_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 90.0

    def __post_init__(self) -> None:
        """Keep the order of the bars."""
        if self.suspect_nats > self.degraded_nats:
            raise ValueError(
                f"suspect_nats: {self.suspect_nats:g} is above degraded_nats "
                f"({self.degraded_nats:g}), but suspected comes before degraded: lower it, or "
                "raise degraded_nats"
            )


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One voice: what speaks for a fault at a scope, since when, and until when it holds.

    `until_ns` 0 means: until it is cleared by whoever set it.
    """

    nats: float
    contributions: tuple[Contribution, ...]
    since_ns: int
    until_ns: int = 0
    exhaustion: Exhaustion | None = None
    widths: tuple[float, ...] = ()


class Told(NamedTuple):
    """What was last said of a scope."""

    state: SuspicionState
    score: float
    time_ns: int


Voice = tuple[Fault, str]


class Fusion:
    """The evidence of one cell, by scope, fault and family."""

    def __init__(self, settings: FusionSettings, period_s: float) -> None:
        """Start without evidence; `period_s` is how often samples come."""
        self._settings = settings
        self._period_s = period_s
        self._evidence: dict[Scope, dict[Voice, Evidence]] = {}
        self._told: dict[Scope, Told] = {}
        self._touched: dict[Scope, None] = {}

    def speak(self, scope: Scope, fault: Fault, family: str, evidence: Evidence) -> None:
        """Set what this family says; it replaces what it said before."""
        self._evidence.setdefault(scope, {})[fault, family] = evidence
        self._touched[scope] = None

    def hush(self, scope: Scope, fault: Fault, family: str) -> None:
        """Take back what this family said."""
        voices = self._evidence.get(scope)
        if voices and voices.pop((fault, family), None) is not None:
            self._touched[scope] = None

    def voices(self, scope: Scope) -> dict[Voice, Evidence]:
        """Return what is said about a scope."""
        return self._evidence.get(scope, {})

    def forget_node(self, node: str) -> None:
        """Take back everything about a node and what runs on it (it booted anew)."""
        for scope in [scope for scope in self._evidence if scope.node == node]:
            self._evidence[scope].clear()
            self._touched[scope] = None

    def expire(self, now_ns: int) -> None:
        """Drop what has outlived its time, and see to it that what lasts is told again."""
        refresh_ns = self._settings.refresh_s * 1e9
        for scope, told in self._told.items():
            if told.state != "healthy" and now_ns - told.time_ns >= refresh_ns:
                self._touched[scope] = None
        for scope, voices in self._evidence.items():
            for voice in [v for v, said in voices.items() if 0 < said.until_ns <= now_ns]:
                del voices[voice]
                self._touched[scope] = None

    def judge(
        self,
        time_ns: int,
        source: Source,
        boot_of: Callable[[str], str],
    ) -> list[Suspicion]:
        """Return a suspicion for each scope of which there is something new to say."""
        touched, self._touched = self._touched, {}
        found = []
        for scope in touched:
            suspicion = self._fused(scope, time_ns, source, boot_of(scope.node))
            if self._worth_telling(scope, suspicion):
                self._told[scope] = Told(suspicion.state, suspicion.score, time_ns)
                found.append(suspicion)
            if not self._evidence.get(scope):
                self._evidence.pop(scope, None)
                self._told.pop(scope, None)
        return found

    def _fused(self, scope: Scope, time_ns: int, source: Source, boot: str) -> Suspicion:
        voices = self._evidence.get(scope, {})
        scores = _log_odds(voices)
        worst = max(scores.values(), default=-math.inf)
        state: SuspicionState = "healthy"
        if worst > self._settings.degraded_nats:
            state = "degraded"
        elif worst > self._settings.suspect_nats:
            state = "suspect"
        forecasts = [said.exhaustion for said in voices.values() if said.exhaustion]
        return Suspicion(
            scope=scope,
            time=Instant(time_ns),
            state=state,
            source=source,
            p_bad=_probabilities(scores),
            since=Instant(min(said.since_ns for said in voices.values())) if voices else None,
            contributions=tuple(part for said in voices.values() for part in said.contributions),
            exhaustion=min(forecasts, key=lambda forecast: forecast.low, default=None),
            score=worst if math.isfinite(worst) else -99.0,
            boot=boot,
            widths=tuple(sorted({width for said in voices.values() for width in said.widths})),
            period_s=self._period_s,
        )

    def _worth_telling(self, scope: Scope, suspicion: Suspicion) -> bool:
        told = self._told.get(scope)
        if told is None:
            return suspicion.state != "healthy"
        if told.state != suspicion.state or abs(told.score - suspicion.score) >= 0.5:
            return told.state != "healthy" or suspicion.state != "healthy"
        if suspicion.state == "healthy":
            return False
        waited_ns = int(suspicion.time) - told.time_ns
        forecast = suspicion.exhaustion
        urgent = forecast is not None and forecast.low < suspicion.time.plus(
            self._settings.urgent_s,
        )
        return urgent or waited_ns >= self._settings.refresh_s * 1e9

    def save(self) -> "SavedFusion":
        """Return everything as plain values."""
        return SavedFusion(
            evidence=[
                (scope, [(fault, family, said) for (fault, family), said in voices.items()])
                for scope, voices in self._evidence.items()
            ],
            told=list(self._told.items()),
            touched=list(self._touched),
        )

    def load(self, state: "SavedFusion") -> None:
        """Become the saved state."""
        self._evidence = {
            scope: {(fault, family): said for fault, family, said in voices}
            for scope, voices in state.evidence
        }
        self._told = dict(state.told)
        self._touched = dict.fromkeys(state.touched)


class SavedFusion(msgspec.Struct, frozen=True):
    """The form of saved evidence."""

    evidence: list[tuple[Scope, list[tuple[Fault, str, Evidence]]]]
    told: list[tuple[Scope, Told]]
    touched: list[Scope]


def _log_odds(voices: dict[Voice, Evidence]) -> dict[Fault, float]:
    sums: dict[Fault, float] = {}
    for (fault, _), said in voices.items():
        sums[fault] = sums.get(fault, PRIOR[fault]) + said.nats
    return sums


def _probabilities(scores: dict[Fault, float]) -> dict[Fault, float]:
    """Return a softmax over the faults, with "healthy" at log-odds 0; small ones are left out."""
    top = max([0.0, *scores.values()])
    whole = math.exp(-top) + sum(math.exp(score - top) for score in scores.values())
    shares = {fault: math.exp(score - top) / whole for fault, score in scores.items()}
    return {fault: round(share, 6) for fault, share in shares.items() if share >= 1e-4}


def summed(contributions: Iterable[Contribution], cap: float) -> float:
    """Return the nats of one family's pieces together, at most `cap`."""
    return min(sum(part.nats for part in contributions), cap)
