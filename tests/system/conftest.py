"""The tests that meet a real Kafka: `make system`.

Everything below this folder is marked `system` and may open sockets on this machine. Each process
of pytest starts the clusters that its tests ask for, once, and ends them.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.kafka.cluster import Cluster

HERE = Path(__file__).parent
# kafka-python leaves sockets to the garbage collector: those whose connection was refused, and
# those of a client whose making failed.
UNCLOSED = "Exception ignored in. <socket.socket"
UNRAISABLE = "pytest.PytestUnraisableExceptionWarning"
CHOSEN = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, before pytest chooses by marker."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for marker in ("system", "loopback", "enable_socket"):
                item.add_marker(marker)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where tests of this folder run, let the client's sockets go."""
    if any(item.path.is_relative_to(HERE) for item in session.items):
        session.config.addinivalue_line("filterwarnings", f"ignore:{UNCLOSED}:{UNRAISABLE}")
        session.config.stash[CHOSEN] = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Do so at the very end, too: pytest looks once more then, with the filters of its start."""
    if config.stash.get(CHOSEN, False):
        warnings.filterwarnings("ignore", UNCLOSED, pytest.PytestUnraisableExceptionWarning)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker."""
    with Cluster.start(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers; each topic has a copy on every one, two must hold a record."""
    with Cluster.start(tmp_path_factory.mktemp("kafka3"), 3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker that listens with TLS and SCRAM-SHA-512, too (`kafka_sasl.sasl`)."""
    with Cluster.start(tmp_path_factory.mktemp("kafka_sasl"), sasl=True) as cluster:
        yield cluster


@pytest.fixture
def fresh_topics(kafka: Cluster) -> Cluster:
    """The cluster of `kafka`: it runs, and all topics of the product are new and empty.

    A test that wants several partitions of telemetry calls `kafka.renew_topics(cells=…)` instead.
    """
    kafka.heal()
    kafka.renew_topics()
    return kafka


@pytest.fixture
def fresh_topics3(kafka3: Cluster) -> Cluster:
    """The same for three brokers."""
    kafka3.heal()
    kafka3.renew_topics()
    return kafka3


@pytest.fixture
def fresh_topics_sasl(kafka_sasl: Cluster) -> Cluster:
    """The same for the broker with TLS and SCRAM."""
    kafka_sasl.heal()
    kafka_sasl.renew_topics()
    return kafka_sasl
