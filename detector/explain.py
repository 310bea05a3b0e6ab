"""One human sentence for each decision, the same in the log, the command and the notification.

No scores: what was seen, how it grows, when it ends, in units that people use.
"""

from collections.abc import Iterable

from bus.messages import Contribution, Exhaustion, Fault, IsolationCommand, Scope, Suspicion
from runtime.clock import Instant
from runtime.words import bytes_text, duration_text, interval_text, plain_text, rate_text

SENTENCE_CHARS_MAX = 480
NAME_CHARS_MAX = 160
NEAR_LIMIT = "near_limit"

_GROWS = {
    "process_private_bytes": "private memory",
    "process_data_bytes": "private data (what RLIMIT_DATA counts)",
    "container_memory_unreclaimable_bytes": "memory that can't be taken back",
    "memory_unreclaimable_bytes": "memory that can't be taken back",
}
_FAULTS: dict[Fault, str] = {
    "memory_leak": "memory leaks",
    "memory_exhaustion": "memory runs out",
    "gpu_memory": "a GPU's memory fails",
    "gpu_off_bus": "a GPU does not answer",
    "thermal": "it runs too hot",
    "pcie": "a PCIe link fails",
    "nvlink": "an NVLink fails",
    "fabric": "its network link fails",
    "straggler": "it is slower than its peers",
    "hang": "it makes no progress",
    "disk": "a disk fails",
    "software": "its software fails",
    "silence": "nothing is heard of it",
    "telemetry": "its telemetry is missing",
}
_DOING = {
    "freeze": "freezing it",
    "throttle": "throttling it",
    "limit": "limiting it",
    "reclaim": "ending it",
    "hold": "keeping new work away",
    "release": "releasing it",
}
_DONE = {
    "freeze": "frozen",
    "throttle": "throttled",
    "limit": "limited",
    "reclaim": "ended",
    "hold": "kept free of new work",
    "release": "released",
}


def sentence(scope: Scope, fault: Fault, suspicion: Suspicion, now: Instant) -> str:
    """Return what is wrong with a scope, as it looks at `now`."""
    seen = (
        _leak(scope, suspicion, max(now, suspicion.time))
        if fault == "memory_leak"
        else _texts(suspicion.contributions) or _FAULTS[fault]
    )
    return one_line(f"{name(scope)}: {seen}")


def also_seen(suspicion: Suspicion) -> str:
    """Return how a second look at the same trouble is mentioned."""
    forecast = suspicion.exhaustion
    growth = f", growing {rate_text(forecast.growth)}" if forecast and forecast.growth > 0 else ""
    return one_line(f"also seen: {name(suspicion.scope)}{growth}")


def doing(command: IsolationCommand) -> str:
    """Return what is being done."""
    doing_it = _DOING.get(command.action, f"asking for {command.action}")
    return f"{doing_it} (dry run)" if command.dry_run else doing_it


def done(command: IsolationCommand, held_until: Instant | None) -> str:
    """Return what was done."""
    if command.dry_run:
        return f"a dry run: {command.action} would have been done"
    did = _DONE.get(command.action, f"{command.action} done")
    return f"{did} until {clock_text(held_until)}" if held_until is not None else did


def unanswered(executor: str, command: IsolationCommand, waited_s: float) -> str:
    """Return that an executor keeps silent."""
    return one_line(
        f"no executor answered: {executor} was asked to {command.action} {name(command.scope)} "
        f"and has said nothing for {duration_text(waited_s)}",
    )


def common(fault: Fault, nodes: int, known: int, within_s: float) -> str:
    """Return that a fault has a common cause."""
    return one_line(
        f"the fleet: {fault} on {nodes} of {known} nodes within {duration_text(within_s)}: "
        "a common cause, so no node is acted upon",
    )


def clock_text(moment: Instant) -> str:
    """Return a moment as hours, minutes and seconds, UTC."""
    return f"{moment.text()[11:19]}Z"


def one_line(text: str) -> str:
    """Return text that is safe to print, cut to what a scheduler's reason can hold."""
    return plain_text(text, SENTENCE_CHARS_MAX)


def name(scope: Scope) -> str:
    """Return what people call a scope; a very long name is cut, so that the facts stay."""
    return plain_text(scope.label, NAME_CHARS_MAX)


def _leak(scope: Scope, suspicion: Suspicion, now: Instant) -> str:
    grows = next((part for part in suspicion.contributions if part.signal in _GROWS), None)
    noun = _GROWS[grows.signal] if grows else "memory"
    rest = [
        part for part in suspicion.contributions if part is not grows and part.signal != NEAR_LIMIT
    ]
    forecast = suspicion.exhaustion
    rate = f" {rate_text(forecast.growth)}" if forecast and forecast.growth > 0 else ""
    span = ""
    if suspicion.since is not None and suspicion.since < suspicion.time:
        span = f" for {duration_text(suspicion.time.since(suspicion.since))}"
    parts = [f"{noun} grows{rate} without a pause{span}"]
    if forecast is not None:
        parts[0] += f" and {_end(scope, forecast, now)}"
    more = _texts(rest)
    return "; ".join([*parts, more] if more else parts)


def _end(scope: Scope, forecast: Exhaustion, now: Instant) -> str:
    limit = "its limit"
    if forecast.limit > 0:
        size = bytes_text(forecast.limit)
        limit = f"the node's {size}" if scope.kind == "node" else f"its limit of {size}"
    left_s = forecast.time.since(now)
    if left_s <= 0:
        return f"is at {limit}"
    early_s, late_s = max(forecast.low.since(now), 0.0), max(forecast.high.since(now), 0.0)
    left, range_text = duration_text(left_s), interval_text(early_s, late_s)
    return f"reaches {limit} in {left}" + (f" ({range_text})" if range_text != left else "")


def _texts(contributions: Iterable[Contribution]) -> str:
    """Return the pieces of evidence in words, the strongest first, each once."""
    ordered = sorted(contributions, key=lambda part: -part.nats)
    return "; ".join(dict.fromkeys(part.text for part in ordered if part.text))
