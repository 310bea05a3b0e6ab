import pytest

from runtime.clock import ManualClock
from runtime.errors import Unavailable
from runtime.wait import wait_until


def test_the_true_answer_is_returned() -> None:
    answers = iter([0, 0, 7])
    assert wait_until(lambda: next(answers), 10, clock=ManualClock()) == 7


def test_after_the_timeout_it_says_what_did_not_happen() -> None:
    clock = ManualClock()
    with pytest.raises(Unavailable, match="the port is open: not so within 3 s"):
        wait_until(lambda: False, 3, what="the port is open", clock=clock)
    assert clock.monotonic() == pytest.approx(3, abs=0.1)


def test_it_asks_once_even_without_time() -> None:
    assert wait_until(lambda: "at once", 0, clock=ManualClock()) == "at once"
