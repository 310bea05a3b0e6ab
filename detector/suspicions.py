"""What one suspicion says to the decider: its likeliest fault, how bad, how long there is left."""

import math

from bus.messages import Fault, Severity, Suspicion
from detector.deciding import DeciderSettings
from runtime.clock import Instant

WORK = frozenset({"container", "process"})  # what can be frozen or ended by itself


def worst(suspicion: Suspicion) -> Fault | None:
    """Return the likeliest fault."""
    return max(sorted(suspicion.p_bad), key=lambda fault: suspicion.p_bad[fault], default=None)


def nats(suspicion: Suspicion, fault: Fault) -> float:
    """Return the log-odds of one fault: the score for the likeliest, from its share for others."""
    if fault == worst(suspicion):
        return suspicion.score
    share = min(max(suspicion.p_bad.get(fault, 0.0), 1e-9), 1 - 1e-9)
    return math.log(share / (1 - share))


def is_bad(suspicion: Suspicion, fault: Fault, settings: DeciderSettings) -> bool:
    """Tell whether a suspicion still speaks for a fault (the lower bar of the hysteresis).

    A leak that passes all tests at one width speaks for itself, whatever the bar.
    """
    if suspicion.state == "healthy":
        return False
    if nats(suspicion, fault) >= settings.close_nats:
        return True
    leaks = fault == "memory_leak" and len(suspicion.widths) > 0
    return fault == worst(suspicion) and (leaks or suspicion.state == "degraded")


def opens(suspicion: Suspicion, fault: Fault, settings: DeciderSettings) -> bool:
    """Tell whether a suspicion makes an incident (the upper bar)."""
    if suspicion.state == "healthy" or fault != worst(suspicion):
        return False
    return suspicion.state == "degraded" or suspicion.score >= settings.open_nats


def act_window_s(suspicion: Suspicion, settings: DeciderSettings) -> float:
    """Return how long before its limit a container or process is acted upon, in seconds."""
    return settings.act_time_s + settings.margin_polls * poll_s(suspicion)


def poll_s(suspicion: Suspicion) -> float:
    """Return the time between two polls, within reason."""
    return min(max(suspicion.period_s, 0.0), 600.0) or 1.0


def left_s(suspicion: Suspicion, now: Instant) -> float:
    """Return the seconds to the early end of the forecast, infinite where there is none."""
    if suspicion.exhaustion is None:
        return math.inf
    # A suspicion may be newer than the last watermark.
    return suspicion.exhaustion.low.since(max(now, suspicion.time))


def is_urgent(suspicion: Suspicion, now: Instant, settings: DeciderSettings) -> bool:
    """Tell whether there is no more time left than an act and its margin take."""
    return left_s(suspicion, now) <= act_window_s(suspicion, settings)


def urgent_leak(suspicion: Suspicion, now: Instant, settings: DeciderSettings) -> bool:
    """Tell whether a leak seen at one width at least is about to reach its limit.

    A young leak acts by urgency, not by nats: it becomes an incident in time to be frozen.
    """
    return (
        suspicion.state != "healthy"
        and suspicion.scope.kind in WORK
        and worst(suspicion) == "memory_leak"
        and len(suspicion.widths) > 0
        and is_urgent(suspicion, now, settings)
    )


def severity_of(
    suspicion: Suspicion, fault: Fault, now: Instant, settings: DeciderSettings
) -> Severity:
    """Return how much it matters."""
    if fault == "telemetry":
        return "info"
    if suspicion.state == "degraded" or urgent_leak(suspicion, now, settings):
        return "critical"
    return "warning"


def room(suspicion: Suspicion | None) -> float | None:
    """Return how much is left below the limit, None where that is not known."""
    forecast = suspicion.exhaustion if suspicion is not None else None
    return forecast.limit - forecast.used if forecast is not None and forecast.limit > 0 else None


def is_tighter(this: Suspicion | None, than: Suspicion | None) -> bool:
    """Tell whether `this` has clearly less room left than the other, or one of them is unknown."""
    mine, its = room(this), room(than)
    return mine is None or its is None or mine < 0.9 * its
