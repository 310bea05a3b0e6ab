"""How far the detection of each cell sees: judged up to when, and blind where that is too far back.

A scorer that was away, or is too slow, tells old things; nothing old is acted on, so for people the
cell is unwatched, and that is an incident of its own. Lag is what the watermarks say. Where none
comes any more, time is counted as the decider's own log shows it: a gap of the log counts for
little, so that a decider that was away itself accuses nobody.
"""

from collections.abc import Iterator

from bus.messages import Watermark
from detector import fleet
from detector.deciding import DeciderSettings
from detector.incidents import Case
from detector.remembered import Sight, State
from runtime.clock import Instant

GAP_SHARE = 0.25  # of the limit: how much one gap of the decider's log counts at most
CLEAR_SHARE = 0.75  # of the limit: below it a blind cell sees again, so that it does not flap


def pass_log(state: State, appended: Instant, settings: DeciderSettings) -> None:
    """Let the decider's own log move on to the moment when a record was appended."""
    if appended > state.log_time:
        if state.log_time:
            gap_s = appended.since(state.log_time)
            state.log_s += min(gap_s, GAP_SHARE * settings.blind_s)
        state.log_time = appended


def see(state: State, mark: Watermark) -> None:
    """Take a watermark that is no repeat."""
    sight = state.sights.setdefault(mark.cell, Sight())
    sight.judged = max(sight.judged, mark.time)
    sight.head = max(sight.head, mark.head_time)
    sight.heard_s = state.log_s


def judge(state: State, settings: DeciderSettings) -> list[tuple[str, Sight]]:
    """Tell again which cells are blind; return those of which that changed."""
    changed = []
    for cell, sight in state.sights.items():
        bar = settings.blind_s * (CLEAR_SHARE if sight.blind else 1.0)
        blind = behind_s(sight) > bar or missing_s(state, sight) > bar
        if blind != sight.blind:
            sight.blind = blind
            changed.append((cell, sight))
    return changed


def cases(state: State) -> Iterator[Case]:
    """Keep one case for each blind cell; yield those that began or changed.

    Where the cell's telemetry is an incident already (all its nodes fell silent), that one says it.
    """
    for cell, sight in state.sights.items():
        known = state.case(fleet.cell_scope(cell), "telemetry")
        if sight.blind and known is None:
            case = fleet.blind(cell, _seen(state, sight), state.now)
            state.add(case)
            yield case
        elif not sight.blind and known is not None and known.standing:
            if known.suspicion is not None and known.calm is None:
                known.standing = False  # it goes on as what else is wrong with its telemetry
            else:
                known.end("it has caught up", state.now)
            yield known


def is_blind(state: State, cell: str) -> bool:
    """Tell whether a cell is blind."""
    sight = state.sights.get(cell)
    return sight is not None and sight.blind


def behind_s(sight: Sight) -> float:
    """Return how far a cell is judged behind its head; a cell without telemetry is not behind."""
    return sight.head.since(sight.judged) if sight.judged else 0.0


def missing_s(state: State, sight: Sight) -> float:
    """Return for how long no watermark came, as the decider's log counts it."""
    return state.log_s - sight.heard_s


def _seen(state: State, sight: Sight) -> fleet.Seen:
    return fleet.Seen(sight.judged, behind_s(sight), missing_s(state, sight))
