"""How a node's records arrive: late because they waited, or late because its clock is off."""

from detector.arrivals import STEADY_BATCHES, ArrivalSettings, NodeArrivals
from runtime.clock import NANOSECONDS

LATENESS_S = 3.0
SETTINGS = ArrivalSettings()


def moments(lateness_s: list[float]) -> list[float]:
    """Return by how many seconds each record of a 1 Hz node was moved, given its lateness."""
    arrivals = NodeArrivals(0)
    moved = []
    for number, late_s in enumerate(lateness_s):
        time_ns = (1_000_000 + number) * NANOSECONDS
        appended_ns = time_ns + int(late_s * NANOSECONDS)
        moment = arrivals.moment(time_ns, appended_ns, SETTINGS, LATENESS_S)
        assert moment is not None
        moved.append((moment - time_ns) / NANOSECONDS)
    return moved


def test_a_backlog_that_drains_slowly_keeps_its_own_times() -> None:
    backlog = [600.0 - 0.5 * number for number in range(1000)]
    assert set(moments(backlog)) == {0.0}


def test_a_backlog_that_drains_at_once_keeps_its_own_times() -> None:
    assert set(moments([600.0 - number for number in range(600)])) == {0.0}


def test_a_clock_that_is_steadily_behind_is_mended() -> None:
    moved = moments([90.0] * (STEADY_BATCHES + 5))
    assert moved[0] == 0.0
    assert moved[-1] == 90.0
