"""How a cluster lies in its folder: ports, identities and the settings of every broker."""

import base64
import errno
import os
import secrets
import socket
from pathlib import Path

import msgspec

from runtime.errors import Misconfigured, Unavailable

LOOPBACK = "127.0.0.1"
_PORTS = 8000
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Node(msgspec.Struct, frozen=True):
    """One broker: its number, Kafka's id of its folder, and its ports (0: no such listener)."""

    id: int
    directory: str
    port: int
    controller_port: int
    sasl_port: int = 0


class Layout(msgspec.Struct, frozen=True):
    """A cluster: Kafka's id of it, and its brokers. Kept in the folder, so that it starts again."""

    cluster: str
    nodes: tuple[Node, ...]

    @property
    def quorum(self) -> str:
        """Return the controllers' addresses."""
        return ",".join(f"{LOOPBACK}:{node.controller_port}" for node in self.nodes)

    @property
    def voters(self) -> str:
        """Return the first controllers in the form that the storage tool takes."""
        return ",".join(
            f"{node.id}@{LOOPBACK}:{node.controller_port}:{node.directory}" for node in self.nodes
        )


def plan(brokers: int, *, sasl: bool, port: int = 0) -> Layout:
    """Return a new cluster on free ports; `port` fixes the first broker's."""
    each = 3 if sasl else 2
    free = free_ports(brokers * each)
    if port:
        free[0] = port
    nodes = (
        Node(number + 1, new_id(), *free[number * each : (number + 1) * each])
        for number in range(brokers)
    )
    return Layout(new_id(), tuple(nodes))


def load(path: Path) -> Layout | None:
    """Return the cluster that a folder holds already, None where there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Layout)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{path} is no cluster of ours ({error}): use another folder") from None


def new_id() -> str:
    """Return an id in Kafka's form: 16 bytes in base64 for URLs, not beginning with a dash."""
    while True:
        found = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not found.startswith("-"):
            return found


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below those that the kernel gives to outgoing calls.

    A client that calls again and again for a stopped broker could else be given the broker's own
    port, and talk to itself.
    """
    try:
        end = int(_PORT_RANGE.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        end = 32768
    first = max(end - _PORTS, 1024)
    found: list[int] = []
    for _ in range(100 * count):
        port = first + secrets.randbelow(max(end - first, 1))
        if port not in found and is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise Unavailable(f"no {count} free ports between {first} and {end}")


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise Unavailable(f"port {port}: {os.strerror(error.errno or 0).lower()}") from None
    return True


def is_open(port: int) -> bool:
    """Tell whether a server listens on this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def properties(layout: Layout, node: Node, folder: Path, keystore: Path | None = None) -> str:
    """Return the broker's server.properties; `folder` is its own."""
    copies = min(len(layout.nodes), 3)
    in_sync = 2 if copies == 3 else 1
    listeners = [f"PLAINTEXT://{LOOPBACK}:{node.port}"]
    if node.sasl_port:
        listeners.append(f"SASL_SSL://{LOOPBACK}:{node.sasl_port}")
    listeners.append(f"CONTROLLER://{LOOPBACK}:{node.controller_port}")
    settings = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.bootstrap.servers": layout.quorum,
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "listener.security.protocol.map":
            "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": folder / "data",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "log.message.timestamp.type": "LogAppendTime",
        "log.cleaner.dedupe.buffer.size": 8 << 20,  # the usual 128 MiB are a third of the heap
        "num.network.threads": 2,
        "num.io.threads": 2,
    }  # fmt: skip
    # A killed broker may come back only when its last session has ended; alone it has no other that
    # could take over in the meantime, so that nothing is won by waiting longer.
    session_ms = 6000 if copies > 1 else 3000
    settings |= {"broker.session.timeout.ms": session_ms, "broker.heartbeat.interval.ms": 1000}
    if keystore is not None:
        settings |= {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config":
                "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
            "listener.name.sasl_ssl.ssl.keystore.location": keystore,
        }  # fmt: skip
    return "".join(f"{key}={value}\n" for key, value in settings.items())
