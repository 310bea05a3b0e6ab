"""Kafka behind TLS and a password: the whole path, and what a mistake says."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer

from bus.codec import decode
from bus.messages import Incident, Message, SampleBatch, Watermark
from bus.topics import INCIDENTS, SUSPICIONS, TELEMETRY
from deploy.kafka import tls
from deploy.kafka.cluster import Cluster
from runtime.clock import SystemClock
from runtime.wait import wait_until
from tests.system.processes import Fleet, Process

CAPTURED = Path(__file__).parents[1] / "golden" / "machines" / "v2-pods" / "root"
WAIT_S = 60.0


def fleet_of(cluster: Cluster, folder: Path, **changes: Path) -> Fleet:
    """Return a fleet whose roles speak SASL_SSL; `changes` are other files for a key."""
    files = {"password_file": cluster.sasl.password_file, "ca_file": cluster.sasl.ca_file}
    lines = [f"{key} = '{path}'" for key, path in (files | changes).items()]
    user = ["security = 'sasl_ssl'", f"username = '{cluster.sasl.username}'"]
    return Fleet(folder, cluster.sasl.bootstrap, "\n".join([*user, *lines]))


@pytest.fixture
def heard(fresh_topics_sasl: Cluster) -> Iterator[Any]:
    """A plain consumer that knows the password."""
    sasl = fresh_topics_sasl.sasl
    consumer = KafkaConsumer(
        TELEMETRY,
        SUSPICIONS,
        INCIDENTS,
        bootstrap_servers=sasl.bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=sasl.username,
        sasl_plain_password=sasl.password_file.read_text(),
        ssl_cafile=str(sasl.ca_file),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    yield consumer
    consumer.close()


def test_the_whole_path_works_over_tls_and_scram(
    fresh_topics_sasl: Cluster,
    heard: Any,  # noqa: ANN401  # the client has no types
    tmp_path: Path,
) -> None:
    shutil.copytree(CAPTURED, tmp_path / "root")
    agent = f"root = '{tmp_path / 'root'}'\n[collect.kernel_log]\nfrom_start = true\n"
    found: list[Message] = []

    def arrived() -> bool:
        for records in heard.poll(timeout_ms=200).values():
            found.extend(decode(record.value) for record in records)
        kinds = {type(one) for one in found}
        return {SampleBatch, Watermark, Incident} <= kinds

    with fleet_of(fresh_topics_sasl, tmp_path) as fleet:
        roles = [fleet.role("detect"), fleet.role("collect", toml=agent)]
        wait_until(arrived, WAIT_S, what="readings, judgement and an incident")
        assert {one.fault for one in found if isinstance(one, Incident)} == {"gpu_off_bus"}
        assert [role.stop() for role in reversed(roles)] == [0, 0]
        assert_kept_secret(fresh_topics_sasl, *roles)


def assert_kept_secret(cluster: Cluster, *roles: Process) -> None:
    password = cluster.sasl.password_file.read_text().strip()
    assert [role.argv for role in roles if password in role.text] == []


# Where it is told, a server's role ends and says that something is not permitted; an agent goes on
# and keeps what it sees.
ENDS = {"detect": 3, "collect": 0}


def refusal_of(process: Process, role: str) -> str:
    """Return the sentence on what is wrong, once the role has ended or was asked to."""
    told = process.says("[bus.kafka]")
    assert (process.stop() if role == "collect" else process.ended()) == ENDS[role]
    assert "Traceback" not in process.text
    return told


@pytest.mark.parametrize("role", list(ENDS))
def test_a_wrong_password_is_told_with_its_key_and_never_shown(
    fresh_topics_sasl: Cluster, tmp_path: Path, role: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-password-7f3a")
    with fleet_of(fresh_topics_sasl, tmp_path, password_file=wrong) as fleet:
        process = fleet.role(role)
        assert "password_file" in refusal_of(process, role)
        assert "not-the-password-7f3a" not in process.text


@pytest.mark.parametrize("role", list(ENDS))
def test_an_authority_that_did_not_sign_is_told_with_its_key(
    fresh_topics_sasl: Cluster, tmp_path: Path, role: str
) -> None:
    (tmp_path / "other").mkdir()
    other = tls.make(tmp_path / "other", SystemClock().now()).ca_file
    with fleet_of(fresh_topics_sasl, tmp_path, ca_file=other) as fleet:
        process = fleet.role(role)
        assert "ca_file" in refusal_of(process, role)
        assert_kept_secret(fresh_topics_sasl, process)


def test_a_listener_with_tls_that_is_spoken_to_plainly_is_told(
    fresh_topics_sasl: Cluster, tmp_path: Path
) -> None:
    with Fleet(tmp_path, fresh_topics_sasl.sasl.bootstrap) as fleet:
        process = fleet.role("detect")
        process.says("waiting for")
        assert process.stop() == 0
        assert "Traceback" not in process.text
