import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from runtime.clock import ManualClock, SystemClock
from runtime.errors import Misconfigured, Rejected
from runtime.metrics import Metrics
from runtime.service import Service
from runtime.wait import wait_until


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield
    structlog.reset_defaults()


class Task:
    """A worker made of a function."""

    def __init__(self, name: str, work: Callable[[threading.Event], object]) -> None:
        self.name = name
        self._work = work

    def run(self, stop: threading.Event) -> None:
        self._work(stop)


def nothing() -> None:
    pass


def idle(
    name: str = "idle",
    first: Callable[[], object] = nothing,
    last: Callable[[], object] = nothing,
) -> Task:
    """A worker that does `first`, waits for its stop and does `last`."""

    def work(stop: threading.Event) -> None:
        first()
        stop.wait()
        last()

    return Task(name, work)


def test_who_wants_to_know_is_told_that_it_stops_before_any_worker_stops() -> None:
    told: list[str] = []
    service = Service(
        [idle(last=lambda: told.append("a worker stopped"))],
        SystemClock(),
        on_ready=lambda: told.append("ready"),
        on_stopping=lambda: told.append("stopping"),
    )
    service.ask_to_end()
    service.run()
    assert told == ["ready", "stopping", "a worker stopped"]


def test_a_signal_that_comes_as_soon_as_it_is_ready_ends_it_in_order() -> None:
    """A service manager may stop what it started at the very moment at which that is ready."""
    told: list[str] = []
    service = Service(
        [idle(last=lambda: told.append("a worker stopped"))],
        SystemClock(),
        on_ready=lambda: signal.raise_signal(signal.SIGTERM),
    )
    service.run()
    assert told == ["a worker stopped"]


def test_workers_stop_in_the_reverse_order_of_their_start() -> None:
    told: list[str] = []

    def worker(name: str) -> Task:
        return idle(name, last=lambda: told.append(name))

    service = Service([worker("first"), worker("second"), worker("third")], SystemClock())
    service.start()
    assert service.stop(20) == []
    assert told == ["third", "second", "first"]


def test_one_that_does_not_stop_is_named_and_does_not_keep_the_others_from_it() -> None:
    release = threading.Event()
    stopped = threading.Event()
    deaf = Task("deaf", lambda _: release.wait())
    good = idle("good", last=stopped.set)
    service = Service([good, deaf], SystemClock())
    service.start()
    late = service.stop(0.2)
    assert "deaf" in late
    assert stopped.wait(20)
    release.set()


def test_a_crashed_worker_is_counted_reported_and_started_again() -> None:
    turns = iter([ValueError("one"), KeyError("two"), None])
    done = threading.Event()

    def work(_: threading.Event) -> None:
        error = next(turns)
        if error is not None:
            raise error
        done.set()

    metrics = Metrics()
    with capture_logs() as lines:
        service = Service([Task("scorer", work), idle()], ManualClock(), metrics)
        service.start()
        assert done.wait(20)
        service.stop(20)
    assert metrics.value("farside_worker_crashes_total", worker="scorer") == 2
    assert [(line["event"], line["worker"], line["restart_in_s"]) for line in lines] == [
        ("worker crashed", "scorer", 0.5),
        ("worker crashed", "scorer", 1.0),
    ]


def test_the_pause_after_crashes_grows_up_to_half_a_minute_and_calms_down_again() -> None:
    clock = ManualClock()
    lives_s = iter([0.0] * 8 + [61.0, 0.0])

    def work(_: threading.Event) -> None:
        life_s = next(lives_s, None)
        if life_s is not None:
            clock.advance(life_s)
            raise ValueError("again")

    with capture_logs() as lines:
        Service([Task("poller", work)], clock).run()
    pauses_s = [line["restart_in_s"] for line in lines]
    assert pauses_s == [0.5, 1, 2, 4, 8, 16, 30, 30, 0.5, 1]


def test_a_worker_that_is_wrongly_set_up_ends_the_run_with_its_sentence() -> None:
    def work(_: threading.Event) -> None:
        raise Misconfigured("farside.toml: bus.kind is wrong")

    service = Service([idle(), Task("bus", work)], SystemClock())
    with pytest.raises(Misconfigured, match=r"bus\.kind is wrong"):
        service.run()
    assert str(service.failed) == "farside.toml: bus.kind is wrong"


def test_a_refusal_inside_a_worker_is_a_crash_like_any_other() -> None:
    turns = iter([Rejected("no"), None])

    def work(_: threading.Event) -> None:
        error = next(turns)
        if error is not None:
            raise error

    metrics = Metrics()
    service = Service([Task("w", work)], ManualClock(), metrics)
    service.run()
    assert service.failed is None
    assert metrics.value("farside_worker_crashes_total", worker="w") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_its_handlers_are_as_before(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    caller = idle("caller", lambda: os.kill(os.getpid(), number))
    Service([idle(), caller], SystemClock()).run()
    assert signal.getsignal(number) is before


def test_any_thread_may_ask_for_the_end() -> None:
    def ask() -> None:
        service.ask_to_end()

    service = Service([idle("w", ask)], SystemClock())
    service.run()


def test_the_run_ends_when_every_worker_is_done() -> None:
    Service([Task("one", lambda _: None), Task("two", lambda _: None)], SystemClock()).run()


def test_it_runs_outside_the_main_thread_as_well() -> None:
    service = Service([idle()], SystemClock())
    thread = threading.Thread(target=service.run)
    thread.start()
    service.ask_to_end()
    thread.join(20)
    assert not thread.is_alive()


def test_a_second_signal_while_stopping_cuts_the_deadline_short() -> None:
    release = threading.Event()
    deaf = Task("deaf", lambda _: release.wait())
    service = Service([deaf], SystemClock())
    service.start()
    service.ask_to_end()
    clock = SystemClock()
    began_s = clock.monotonic()
    assert service.stop(600) == ["deaf"]
    assert clock.monotonic() - began_s < 300
    release.set()


def test_a_hang_up_reloads_and_a_refused_reload_changes_nothing() -> None:
    reloads = []

    def reload() -> None:
        reloads.append(1)
        if len(reloads) == 1:
            raise Misconfigured("farside.toml: no")

    def work(_: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: len(reloads) == 1, 20)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: len(reloads) == 2, 20)

    with capture_logs() as lines:
        Service([Task("caller", work)], SystemClock(), on_reload=reload).run()
    assert [line["reason"] for line in lines] == ["farside.toml: no"]


def test_the_beat_is_called_while_the_workers_run() -> None:
    beaten = threading.Event()
    Service([Task("w", lambda _: beaten.wait())], SystemClock()).run(beat=beaten.set)
    assert beaten.is_set()
