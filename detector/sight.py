"""How far the detection of each cell sees: judged up to when, and blind where that is too far back.

A scorer that was away, or is too slow, tells old things; nothing old is acted on, so for people the
cell is unwatched, and that is an incident of its own. Lag is what the watermarks say. One alone
says little: after a pause of everything (a laptop that slept) the first is always far behind, and
the second is not. Where none comes any more, time is counted as the decider's own log shows it: a
gap of the log counts for little, so that a decider that was away itself accuses nobody.
"""

from collections.abc import Iterator

from bus.messages import Watermark
from detector import fleet
from detector.deciding import DeciderSettings
from detector.incidents import Case
from detector.remembered import Sight, State
from runtime.clock import Instant

GAP_SHARE = 0.25  # of the limit: how much one gap of the decider's log counts at most
LASTS_S = 10.0  # a cell that is behind for so long is blind though nothing more of it is judged
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


def judge(state: State, settings: DeciderSettings) -> list[str]:
    """Tell again which cells are late or blind; return those that see again."""
    clear = []
    for cell, sight in state.sights.items():
        before = _is_late(sight)
        bar_s = settings.blind_s * (CLEAR_SHARE if sight.blind else 1.0)
        sight.blind = _lags(sight, bar_s) or missing_s(state, sight) > bar_s
        if before and not _is_late(sight):
            clear.append(cell)
    return clear


def _lags(sight: Sight, bar_s: float) -> bool:
    """Tell whether a cell is behind and stays so: old things are judged, or nothing for a while."""
    if behind_s(sight) <= bar_s:
        sight.late_judged = sight.late_head = Instant(0)
        return False
    if not sight.late_head:
        sight.late_judged, sight.late_head = sight.judged, sight.head
    lasts = sight.head.since(sight.late_head) >= LASTS_S
    return sight.blind or sight.judged > sight.late_judged or lasts


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


def is_late(state: State, cell: str) -> bool:
    """Tell whether a cell is behind, so that no news of it is no good news."""
    sight = state.sights.get(cell)
    return sight is not None and _is_late(sight)


def _is_late(sight: Sight) -> bool:
    return sight.blind or sight.late_head > 0


def behind_s(sight: Sight) -> float:
    """Return how far a cell is judged behind its head; a cell without telemetry is not behind."""
    return sight.head.since(sight.judged) if sight.judged else 0.0


def missing_s(state: State, sight: Sight) -> float:
    """Return for how long no watermark came, as the decider's log counts it."""
    return state.log_s - sight.heard_s


def _seen(state: State, sight: Sight) -> fleet.Seen:
    return fleet.Seen(sight.judged, behind_s(sight), missing_s(state, sight))
