"""Sections that contradict each other: each works alone, together they would see or do nothing."""

from collections.abc import Iterator

import numpy as np

from collectors.agent import Settings as AgentSettings
from farside.parts import Parts
from models import silence


def contradictions(parts: Parts, agent: AgentSettings) -> Iterator[str]:
    """Yield a sentence with keys and remedy for each contradiction."""
    yield from _between_samples(parts, agent.period_s)
    scoring, deciding = parts.scoring, parts.deciding
    waits_s = scoring.frames.period_s + scoring.frames.lateness_s
    if waits_s >= deciding.age_limit_s:
        yield (
            f"decide.age_limit_s = {deciding.age_limit_s:g} is not more than detect.frames.period_s"
            f" and lateness_s together ({waits_s:g}), so what waited for a slow node would be too "
            "old to act on: raise it, or lower lateness_s"
        )
    if scoring.fusion.refresh_s >= deciding.forget_s:
        yield (
            f"decide.forget_s = {deciding.forget_s:g} is not more than detect.fusion.refresh_s "
            f"({scoring.fusion.refresh_s:g}), so what lasts would be forgotten before it is told "
            "again: raise it, or lower refresh_s"
        )
    if deciding.close_nats >= deciding.open_nats:
        yield (
            f"decide.close_nats = {deciding.close_nats:g} is not below decide.open_nats "
            f"({deciding.open_nats:g}), so incidents would open and calm down at once: lower it"
        )


def _between_samples(parts: Parts, period_s: float) -> Iterator[str]:
    """What must last from one batch of a node to its next."""
    scoring = parts.scoring
    if period_s >= scoring.leaks.gone_s:
        yield (
            f"detect.leaks.gone_s = {scoring.leaks.gone_s:g} is not more than agent.period_s "
            f"({period_s:g}), so every leak would count as ended between two samples: raise it"
        )
    if period_s >= scoring.series.ttl_s:
        yield (
            f"detect.series.ttl_s = {scoring.series.ttl_s:g} is not more than agent.period_s "
            f"({period_s:g}), so every series would be forgotten between two samples: raise it"
        )
    if period_s >= parts.deciding.age_limit_s:
        yield (
            f"decide.age_limit_s = {parts.deciding.age_limit_s:g} is not more than agent.period_s "
            f"({period_s:g}), so all would be too old to act on before it is seen: raise it"
        )
    phi = _phi_before_the_second_beat(parts.models.silence, period_s)
    if phi >= scoring.watch.suspect_phi:
        yield (
            f"models.silence.usual_pause_s = {parts.models.silence.usual_pause_s:g} and "
            f"acceptable_pause_s = {parts.models.silence.acceptable_pause_s:g} are too short for "
            f"agent.period_s ({period_s:g}): every node would count as silent at its start; set "
            f"usual_pause_s = {period_s:g}"
        )


def _phi_before_the_second_beat(settings: silence.Settings, period_s: float) -> float:
    model = silence.build(settings, 1)
    row = np.zeros(1, np.int64)
    model.learn(row, 0.0)
    return float(model.score(row, period_s)[0])
