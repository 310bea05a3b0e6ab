"""Tells what a demo run came to: in lines for people, and as figures for a table of many runs."""

from farside.demo.judge import Result
from farside.demo.plan import MB, Plan
from farside.demo.truth import Fate, Truth
from runtime.clock import Instant


def figures(result: Result) -> dict[str, object]:
    """Return the run as plain values for JSON; times in seconds after "go", None for "never"."""
    truth, forecast = result.truth, result.forecast
    return {
        "seed": result.seed,
        "mode": result.mode,
        "kept": result.kept,
        "caught": result.caught,
        "onset_s": truth.onset.since(truth.go),
        "limit_s": truth.limit.since(truth.go),
        "suspected_s": _after(truth, result.suspected_at),
        "forecast_s": _after(truth, forecast.exhaustion.time if forecast else None),
        "forecast_error_percent": forecast.error_percent if forecast else None,
        "forecast_covers": forecast.covers if forecast else None,
        "incident_s": _after(truth, result.incident.opened if result.incident else None),
        "command_s": _after(truth, result.command.issued if result.command else None),
        "executed_s": _after(truth, result.report.finished if result.report else None),
        "action": result.command.action if result.command else None,
        "outcome": result.report.outcome if result.report else None,
        "lead_s": result.lead_s,
        "neighbours": len(truth.neighbours),
        "neighbours_suspected": list(result.neighbours_suspected),
        "neighbours_acted_on": list(result.neighbours_acted_on),
        "harmed": list(result.harmed),
        "failures": list(result.failures),
    }


def _after(truth: Truth, moment: Instant | None) -> float | None:
    return None if moment is None else moment.since(truth.go)


def summary(plan: Plan, result: Result) -> list[str]:
    """Return the run in lines for people; times count from "go"."""
    truth = result.truth
    lines = [f"seed {result.seed} ({result.mode})"]
    if truth.leak is not None:
        name = truth.leak.child.name
        lines += [
            f"onset             {_at(truth, truth.onset)}  {name} begins to leak",
            f"first suspicion   {_suspicion(result)}",
            f"forecast          {_forecast_words(result)}",
            f"incident          {_incident_words(result)}",
            f"command           {_command_words(result)}",
            f"execution         {_execution_words(result)}",
            f"limit             {_at(truth, truth.limit)}  {_end_words(truth.leak)}",
            f"lead time         {_lead_words(result)}",
        ]
    lines.append(f"neighbours        {_neighbour_words(plan, result)}")
    lines += [f"NOT SO: {failure}" for failure in result.failures]
    return lines


def _at(truth: Truth, moment: Instant) -> str:
    return f"{moment.since(truth.go):6.1f} s"


def _suspicion(result: Result) -> str:
    if result.suspected_at is None:
        return "none"
    after_s = result.suspected_at.since(result.truth.onset)
    return f"{_at(result.truth, result.suspected_at)}  {after_s:.1f} s after the onset"


def _forecast_words(result: Result) -> str:
    forecast, truth = result.forecast, result.truth
    if forecast is None:
        return "none"
    end = forecast.exhaustion
    return (
        f"{_at(truth, end.time)}  between {_at(truth, end.low).strip()} and "
        f"{_at(truth, end.high).strip()}, made at {_at(truth, forecast.made).strip()}; "
        f"{forecast.error_s:+.1f} s against the truth ({forecast.error_percent:+.0f} % of the "
        f"time left), the interval {'covers' if forecast.covers else 'misses'} it"
    )


def _incident_words(result: Result) -> str:
    if result.incident is None:
        return "none"
    return f"{_at(result.truth, result.incident.opened)}  {result.incident.sentence}"


def _command_words(result: Result) -> str:
    if result.command is None:
        return "none"
    command = result.command
    return f"{_at(result.truth, command.issued)}  {command.action} {command.scope.label}"


def _execution_words(result: Result) -> str:
    if result.report is None:
        return "none"
    report = result.report
    return f"{_at(result.truth, report.finished)}  {report.outcome}: {report.detail}"


def _end_words(fate: Fate) -> str:
    limit = f"{fate.child.limit_bytes / MB:.0f} MB"
    if fate.ending in {"stopped", "killed"} and not fate.hits:
        return f"would have been met ({limit}); {fate.child.name} {fate.sentence()} before it"
    return f"{limit}; {fate.child.name} {fate.sentence()}, met its limit {fate.hits} times"


def _lead_words(result: Result) -> str:
    return "none" if result.lead_s is None else f"{result.lead_s:6.1f} s before the limit"


def _neighbour_words(plan: Plan, result: Result) -> str:
    lacking = len(plan.neighbours) - len(result.truth.neighbours)
    living = sum(fate.running for fate in result.truth.neighbours)
    words = [f"{living} of {len(result.truth.neighbours)} run on"]
    words.append("suspected: " + (", ".join(result.neighbours_suspected) or "none"))
    words.append("acted on: " + (", ".join(result.neighbours_acted_on) or "none"))
    if lacking:
        words.append(f"{lacking} could not be started here")
    return "; ".join(words)
