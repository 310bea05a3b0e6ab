"""`farside topics --create` beside another one, for more cells, and against too few brokers."""

import json
import sys
from pathlib import Path

from bus.topics import TELEMETRY, TOPICS
from deploy.kafka.cluster import Cluster
from runtime.process import run
from tests.system.processes import Fleet

FARSIDE = str(Path(sys.executable).with_name("farside"))


def test_two_that_make_the_topics_at_once_both_end_well(tmp_path: Path) -> None:
    with (
        Cluster.start(tmp_path / "kafka") as cluster,
        Fleet(tmp_path, cluster.bootstrap) as fleet,
    ):
        config = fleet.configure("topics", toml="[bus.cells]\na = 0\nb = 3\n")
        wish = [FARSIDE, "topics", "--create", "--config", str(config)]
        together = [fleet.run(wish) for _ in range(2)]
        assert [one.ended(60.0) for one in together] == [0, 0], [one.text for one in together]
        told = run([FARSIDE, "topics", "--json", "--config", str(config)], 60.0)
        assert told.code == 0
        found = {one["topic"]: one["found"] for one in json.loads(told.out)["topics"]}
        assert set(found) == set(TOPICS)
        assert found[TELEMETRY]["partitions"] == 4
        assert all(one["leaders"] for one in found.values())


def test_more_cells_add_partitions_and_fewer_take_none_away(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    with Fleet(tmp_path, fresh_topics.bootstrap) as fleet:
        more = fleet.configure("topics", toml="[bus.cells]\na = 0\nb = 5\n")
        fewer = fleet.configure("topics", toml="[bus.cells]\na = 0\n")
        together = [fleet.run([FARSIDE, "topics", "--create", "--config", str(more)])
                    for _ in range(2)]  # fmt: skip
        assert [one.ended(60.0) for one in together] == [0, 0], [one.text for one in together]
        told = run([FARSIDE, "topics", "--create", "--config", str(fewer)], 60.0)
        assert told.code == 0
        (line,) = [one for one in told.out.splitlines() if one.startswith(TELEMETRY)]
        assert line.split()[1] == "6"


def test_more_copies_than_brokers_are_refused_before_anything_is_made(
    fresh_topics: Cluster,
) -> None:
    where = ("--bootstrap", ",".join(fresh_topics.bootstrap))
    told = run([FARSIDE, "topics", "--create", "--replicas", "3", *where], 60.0)
    assert told.code == 2
    assert "--replicas 3: there is 1 broker" in told.err
