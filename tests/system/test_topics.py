"""`farside topics` and `farside consume` on a real broker."""

import json
import sys
from pathlib import Path

from bus.kafka import Admin
from bus.kafka import Settings as KafkaSettings
from bus.messages import Tick
from bus.topics import TELEMETRY, TOPICS
from bus.transport import Sink
from deploy.kafka.cluster import Cluster
from runtime.clock import SystemClock
from runtime.errors import Unavailable
from runtime.process import Finished, run
from runtime.wait import wait_until
from tests.system.processes import Fleet

FARSIDE = str(Path(sys.executable).with_name("farside"))


def farside(*arguments: str) -> Finished:
    return run([FARSIDE, *arguments], 60.0)


def admin(cluster: Cluster) -> Admin:
    return Admin(KafkaSettings(bootstrap=tuple(cluster.bootstrap)))


def test_missing_topics_are_told_and_made_and_then_all_is_well(tmp_path: Path) -> None:
    with Cluster.start(tmp_path / "kafka") as cluster:
        where = ("--bootstrap", ",".join(cluster.bootstrap))
        told = farside("topics", *where)
        assert (told.code, told.out.count("is missing")) == (1, len(TOPICS))
        assert farside("topics", "--create", *where).code == 0
        again = farside("topics", "--json", *where)
        assert (again.code, json.loads(again.out)["differences"]) == (0, [])


def test_a_longer_retention_and_more_cells_stay_and_a_wrong_clock_is_mended(
    fresh_topics: Cluster,
) -> None:
    where = ("--bootstrap", ",".join(fresh_topics.bootstrap))
    asked = admin(fresh_topics)
    asked.alter_config(TELEMETRY, {"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
    asked.add_partitions(TELEMETRY, 3)
    told = farside("topics", *where)
    assert told.code == 1
    assert "message.timestamp.type is CreateTime" in told.out
    assert "retention" not in told.out
    assert farside("topics", "--create", *where).code == 0
    after = asked.find()[TELEMETRY]
    asked.close()
    assert (after.partitions, after.config["retention.ms"]) == (3, "-1")
    assert after.config["message.timestamp.type"] == "LogAppendTime"


def test_with_three_brokers_two_must_have_a_record(kafka3: Cluster) -> None:
    kafka3.heal()
    kafka3.renew_topics()
    where = ("--bootstrap", ",".join(kafka3.bootstrap))
    assert farside("topics", "--create", *where).code == 0
    asked = admin(kafka3)
    found = asked.find()
    asked.close()
    assert {one.replicas for one in found.values()} == {3}
    assert {one.config["min.insync.replicas"] for one in found.values()} == {"2"}


def test_no_broker_is_one_sentence_and_code_three() -> None:
    told = farside("topics", "--bootstrap", "127.0.0.1:1")
    assert told.code == 3
    assert "Kafka at 127.0.0.1:1 can't be reached" in told.err
    assert "Traceback" not in told.err


def test_consume_shows_records_and_what_it_writes_is_read_by_replay(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    where = ("--bootstrap", ",".join(fresh_topics.bootstrap))
    clock = SystemClock()
    with Fleet(tmp_path, fresh_topics.bootstrap) as fleet:
        bus = fleet.bus("writer")
        sink = bus.sink()
        wait_until(lambda: _sent(sink, clock), 30.0)
        sink.flush(10.0)
        sink.close(1.0)
        bus.close()
    shown = farside("consume", "telemetry", *where)
    assert shown.code == 0
    assert "telemetry/0@0" in shown.out
    assert "Tick" in shown.out
    only = farside("consume", "telemetry", "--filter", "type=SampleBatch", *where)
    assert (only.code, only.out) == (0, "")
    written = farside("consume", "telemetry", "--json", *where)
    records = tmp_path / "records.jsonl"
    records.write_text(written.out)
    assert farside("replay", str(records)).code == 0


def _sent(sink: Sink, clock: SystemClock) -> bool:
    try:
        sink.send(TELEMETRY, "a", Tick(cell="a", time=clock.now()))
    except Unavailable:
        return False
    return True
