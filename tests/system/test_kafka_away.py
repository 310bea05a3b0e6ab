"""A Kafka that is not there: one sentence, and nothing left behind by each try."""

import threading

import pytest

from bus.kafka import Admin, KafkaBus, Settings
from bus.messages import Tick
from bus.topics import TELEMETRY
from runtime.clock import SystemClock
from runtime.errors import Unavailable

NOWHERE = Settings(bootstrap=("127.0.0.1:1",))


def test_a_question_that_fails_names_the_brokers_and_leaves_no_thread() -> None:
    asked = Admin(NOWHERE)
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1 can't be reached"):
        asked.describe([TELEMETRY])
    assert [one.name for one in threading.enumerate() if one.name.startswith("kafka-io")] == []


def test_a_writer_says_at_once_that_it_is_not_connected_and_can_be_closed() -> None:
    bus = KafkaBus(NOWHERE, SystemClock(), cluster="test", role="writer")
    sink = bus.sink()
    with pytest.raises(Unavailable, match="not connected yet"):
        sink.send(TELEMETRY, "a", Tick(cell="a", time=SystemClock().now()))
    sink.close(0.1)
    bus.close()


def test_a_reader_has_no_positions_and_says_that_it_can_not_read() -> None:
    bus = KafkaBus(NOWHERE, SystemClock(), cluster="test", role="reader")
    source = bus.source([TELEMETRY])
    source.seek({(TELEMETRY, 0): 7})
    with pytest.raises(Unavailable, match="can't be reached"):
        source.poll(1, 0.1)
    assert (source.positions(), source.lag()) == ({(TELEMETRY, 0): 7}, {})
    source.close()
    bus.close()
