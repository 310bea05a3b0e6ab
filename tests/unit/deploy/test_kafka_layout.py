"""What a broker is told: its ports, its copies, its limits; and the Java that is asked for."""

import socket
from pathlib import Path

import msgspec
import pytest

from deploy.kafka import jvm, layout
from runtime.errors import Misconfigured, NotPermitted

HOME = Path("/tmp/k/broker-1")


def told(brokers: int, *, sasl: bool = False) -> dict[str, str]:
    nodes = tuple(
        layout.Node(n, f"dir{n}", 100 + n, 200 + n, 300 + n if sasl else 0)
        for n in range(1, brokers + 1)
    )
    keystore = Path("/tmp/k/broker.pem") if sasl else None
    text = layout.properties(layout.Layout("id", nodes), nodes[0], HOME, keystore)
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize("brokers", [1, 3])
def test_no_broker_listens_beyond_loopback(brokers: int) -> None:
    found = told(brokers, sasl=True)
    for name in ("listeners", "advertised.listeners"):
        assert [one.split("//")[1].split(":")[0] for one in found[name].split(",")] == [
            "127.0.0.1"
        ] * 3


@pytest.mark.parametrize("brokers", [1, 3])
def test_topics_are_made_on_purpose_and_the_log_gives_the_time(brokers: int) -> None:
    found = told(brokers)
    assert found["auto.create.topics.enable"] == "false"
    assert found["log.message.timestamp.type"] == "LogAppendTime"


def test_three_brokers_keep_three_copies_of_which_two_must_have_a_record() -> None:
    found = told(3)
    copies = {name: value for name, value in found.items() if name.endswith("replication.factor")}
    assert set(copies.values()) == {"3"}
    assert found["min.insync.replicas"] == "2"
    assert found["controller.quorum.bootstrap.servers"] == (
        "127.0.0.1:201,127.0.0.1:202,127.0.0.1:203"
    )
    assert found["broker.session.timeout.ms"] == "6000"


def test_one_broker_keeps_one_copy() -> None:
    found = told(1)
    assert {v for k, v in found.items() if k.endswith("replication.factor")} == {"1"}


def test_without_sasl_there_is_no_listener_for_it() -> None:
    assert "SASL_SSL" not in told(1)["listeners"]
    assert "SASL_SSL://127.0.0.1:301" in told(1, sasl=True)["listeners"]


@pytest.mark.loopback
def test_ports_are_free_different_and_never_given_to_outgoing_calls() -> None:
    ports = layout.free_ports(9)
    assert len(set(ports)) == 9
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < first
    assert all(layout.is_free(port) for port in ports)


@pytest.mark.loopback
def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not layout.is_free(port)
        assert layout.is_open(port)


@pytest.mark.loopback
def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = layout.plan(3, sasl=True, port=9092)
    assert plan.nodes[0].port == 9092
    (tmp_path / "cluster.json").write_bytes(msgspec.json.encode(plan))
    assert layout.load(tmp_path / "cluster.json") == plan


def test_a_folder_without_a_plan_holds_no_cluster_and_a_strange_one_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster.json"
    assert layout.load(path) is None
    path.write_text("{}")
    with pytest.raises(Misconfigured, match="use another folder"):
        layout.load(path)


def java(folder: Path, says: str) -> dict[str, str]:
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return {"PATH": str(folder)}


def test_the_java_of_the_path_is_taken(tmp_path: Path) -> None:
    found = jvm.find_java(java(tmp_path, 'openjdk version "21.0.4" 2024-07-16'))
    assert found == (str(tmp_path / "java"), "21.0.4")


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    for name in ("path", "home/bin"):
        (tmp_path / name).mkdir(parents=True)
    env = java(tmp_path / "path", 'openjdk version "11.0.2"')
    java(tmp_path / "home/bin", 'openjdk version "17"')
    assert jvm.find_java(env | {"JAVA_HOME": str(tmp_path / "home")}).version == "17"


@pytest.mark.parametrize("says", ['openjdk version "11.0.2" 2019', 'java version "1.8.0_5"', "?"])
def test_an_old_java_is_refused_with_the_packages_that_help(tmp_path: Path, says: str) -> None:
    with pytest.raises(NotPermitted, match=r"needs 17 or newer; .* openjdk-17-jre-headless maven$"):
        jvm.find_java(java(tmp_path, says))


def test_without_java_the_debian_packages_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match=r"^java is missing.* openjdk-17-jre-headless maven$"):
        jvm.find_java({"PATH": str(tmp_path)})
