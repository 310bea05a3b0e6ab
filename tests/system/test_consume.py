"""`farside consume` on a real broker: several topics, its end by a signal or a closed pipe."""

import json
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bus.messages import Incident, Message, Scope, Tick
from bus.topics import INCIDENTS, TELEMETRY
from bus.transport import Sink
from deploy.kafka.cluster import Cluster
from runtime.clock import Instant
from runtime.errors import Unavailable
from runtime.process import Finished, run
from runtime.wait import wait_until
from tests.system.processes import Fleet

FARSIDE = str(Path(sys.executable).with_name("farside"))
TICKS = 2000  # more than a pipe holds


def taken(sink: Sink, topic: str, message: Message) -> bool:
    try:
        sink.send(topic, "a", message)
    except Unavailable:
        return False
    return True


@pytest.fixture(scope="module")
def fleet(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Telemetry that holds ticks, and in their middle an incident on its own topic."""
    kafka.heal()
    kafka.renew_topics()
    incident = Incident(
        id="i-1", scope=Scope("node", "a", "n1"), state="open", severity="warning",
        opened=Instant(0), sentence="n1 leaks",
    )  # fmt: skip
    with Fleet(tmp_path_factory.mktemp("consume"), kafka.bootstrap) as found:
        bus = found.bus()
        sink = bus.sink()
        for number in range(TICKS):
            if number == TICKS // 2:
                wait_until(partial(taken, sink, INCIDENTS, incident), 30.0)
                sink.flush(30.0)
            wait_until(partial(taken, sink, TELEMETRY, Tick(cell="a", time=Instant(number))), 30.0)
            if number == TICKS // 2:
                sink.flush(30.0)
        sink.flush(30.0)
        sink.close(5.0)
        bus.close()
        yield found


def consume(fleet: Fleet, *arguments: str) -> Finished:
    where = ("--bootstrap", ",".join(fleet.bootstrap))
    return run([FARSIDE, "consume", *arguments, *where], 60.0)


def test_several_topics_come_in_the_order_in_which_the_log_took_them(fleet: Fleet) -> None:
    told = consume(fleet, "telemetry", "incidents", "--json")
    found = [json.loads(line) for line in told.out.splitlines()]
    assert (told.code, len(found)) == (0, TICKS + 1)
    times = [one["appended"] for one in found]
    assert times == sorted(times)
    kinds = [one["message"]["type"] for one in found]
    assert 0 < kinds.index("Incident") < TICKS


def test_a_filter_and_a_limit_leave_what_was_asked_for(fleet: Fleet) -> None:
    told = consume(fleet, "incidents", "telemetry", "--filter", "scope.node=n1", "--limit", "1")
    assert (told.code, told.out.count("\n")) == (0, 1)
    assert "open warning: n1 leaks" in told.out
    assert "\x1b" not in told.out


def test_a_mistyped_topic_costs_no_connection(fleet: Fleet) -> None:
    told = consume(fleet, "incidens")
    assert told.code == 2
    assert "did you mean incidents" in told.err


def test_a_reader_that_has_enough_ends_it_well_and_without_a_word(fleet: Fleet) -> None:
    line = f"{FARSIDE} consume telemetry --json --bootstrap {fleet.bootstrap[0]} | head -1"
    told = run(["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"], 60.0)
    first, code = told.out.splitlines()
    assert json.loads(first)["offset"] == 0
    assert (code, told.err) == ("0", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_who_follows_ends_well_when_asked_to(fleet: Fleet, number: int) -> None:
    wish = [FARSIDE, "consume", "telemetry", "--follow", "--bootstrap", fleet.bootstrap[0]]
    following = fleet.run(wish)
    following.says(f"telemetry/0@{TICKS - 1}")
    following.signal(number)
    assert following.ended(30.0) == 0
    assert "Traceback" not in following.text
