"""Every role ends in order while its broker is away."""

from pathlib import Path

from bus.messages import SampleBatch, Watermark
from bus.topics import SUSPICIONS, TELEMETRY
from deploy.kafka.cluster import Cluster
from tests.system.processes import Fleet, Reading


def test_a_role_that_is_stopped_while_the_broker_is_away_ends_without_a_traceback(
    fresh_topics: Cluster, tmp_path: Path
) -> None:
    with Fleet(tmp_path, fresh_topics.bootstrap) as fleet:
        roles = [fleet.role(name) for name in ("notify", "execute", "detect", "collect")]
        with Reading(fleet, TELEMETRY, SUSPICIONS) as reading:
            reading.wait_for(SampleBatch)
            reading.wait_for(Watermark, 2)
        fresh_topics.brokers[0].kill()
        roles[-1].says("the bus is away")
        assert [role.stop() for role in roles] == [0, 0, 0, 0]
        assert [role.text for role in roles if "Traceback" in role.text] == []
