"""`farside top` and `farside explain` where Kafka is: they read the topics, and nobody is asked."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bus.messages import Incident, Message, NodeHealth, SampleBatch, Scope, Source, Watermark
from bus.samples import Samples
from bus.topics import HEALTH, INCIDENTS, SUSPICIONS, TELEMETRY
from bus.transport import Sink
from deploy.kafka.cluster import Cluster
from farside.topics_view import TopicsView
from farside.view.snapshot import About
from runtime.clock import SystemClock
from runtime.errors import Unavailable
from runtime.process import run
from runtime.wait import wait_until
from tests.system.processes import CHECKOUT, Fleet

FARSIDE = str(Path(sys.executable).with_name("farside"))


@pytest.fixture
def fleet(fresh_topics: Cluster, tmp_path: Path) -> Iterator[Fleet]:
    """Topics in which one node leaks, and the detection of its cell is blind."""
    now = SystemClock().now()
    cell, node = Scope("cell", "a"), Scope("node", "a", "n1")
    leak = Incident(
        id="i-leak", scope=node, state="open", severity="warning", opened=now,
        sentence="n1 runs out of memory", fault="memory_leak",
    )  # fmt: skip
    blind = Incident(
        id="i-blind", scope=cell, state="open", severity="warning", opened=now,
        sentence="cell a is judged 90 s behind its log", fault="telemetry",
    )  # fmt: skip
    health = NodeHealth(node="n1", cell="a", state="suspect", since=now, incidents=("i-leak",))
    batch = SampleBatch(
        cluster="test", node="n1", boot="b", start="s", sequence=1, time=now,
        samples=Samples.of([("memory_total_bytes", "", 2e12)]),
    )  # fmt: skip
    source = Source(partition=0, offset=1)
    mark = Watermark(cell="a", time=now.plus(-90), head_time=now, source=source)
    with Fleet(tmp_path, fresh_topics.bootstrap) as found:
        bus = found.bus()
        sink = bus.sink()

        for topic, key, message in (
            (TELEMETRY, "n1", batch), (SUSPICIONS, "a", mark), (INCIDENTS, "i-leak", leak),
            (INCIDENTS, "i-blind", blind), (HEALTH, "n1", health),
        ):  # fmt: skip
            send = partial(_taken, sink, topic, key, message)
            wait_until(send, 30.0, what=f"{topic} takes it")
        sink.flush(30.0)
        sink.close(5.0)
        bus.close()
        yield found


def _taken(sink: Sink, topic: str, key: str, message: Message) -> bool:
    try:
        sink.send(topic, key, message)
    except Unavailable:
        return False
    return True


def asked(fleet: Fleet, *arguments: str) -> str:
    config = fleet.configure("top")
    ended = run([FARSIDE, *arguments, "--config", str(config)], 120.0, cwd=CHECKOUT)
    assert (ended.code, ended.err) == (0, "")
    return ended.out


def test_top_shows_nodes_incidents_lag_and_what_is_blind(fleet: Fleet) -> None:
    shown = json.loads(asked(fleet, "top", "--json"))
    assert shown["nodes"] == 1
    assert {one["id"] for one in shown["incidents"]} == {"i-leak", "i-blind"}
    assert shown["lag_s"] >= 90
    assert [(one["cell"], one["blind"]) for one in shown["cells"]] == [
        ("a", "cell a is judged 90 s behind its log")
    ]
    assert "blind" in asked(fleet, "top", "--once")


def test_what_is_said_later_is_seen_at_a_later_look(fleet: Fleet) -> None:
    bus, clock = fleet.bus("top"), SystemClock()
    view = TopicsView(bus, clock, About())
    view.begin()
    assert {one.id for one in view.snapshot().incidents} == {"i-leak", "i-blind"}
    sink = bus.sink()
    now = clock.now()
    closed = Incident(
        id="i-blind", scope=Scope("cell", "a"), state="closed", severity="warning", opened=now,
        updated=now, sentence="cell a has caught up", fault="telemetry",
    )  # fmt: skip
    wait_until(partial(_taken, sink, INCIDENTS, "i-blind", closed), 30.0, what="it is taken")

    def seen() -> bool:
        view.look()
        return [one.blind for one in view.snapshot().cells] == [""]

    wait_until(seen, 30.0, what="the cell is blind no more")
    assert view.snapshot().samples == 1  # nothing was read twice
    sink.close(5.0)
    view.close()
    bus.close()


def test_explain_tells_of_an_incident_and_of_a_node(fleet: Fleet, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert "n1 runs out of memory" in asked(fleet, "explain", "i-leak")
    assert json.loads(asked(fleet, "explain", "n1", "--json"))["node"] == "n1"
    run([FARSIDE, "explain", "i-leak", "--html", str(page), "--config",
         str(fleet.configure("top"))], 120.0)  # fmt: skip
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_where_no_kafka_is_the_exit_code_is_3_and_a_sentence_says_so(tmp_path: Path) -> None:
    config = Fleet(tmp_path, ["127.0.0.1:9"]).configure("top")
    ended = run([FARSIDE, "top", "--once", "--config", str(config)], 120.0)
    assert ended.code == 3
    assert "127.0.0.1:9" in ended.err
    assert "Traceback" not in ended.err
