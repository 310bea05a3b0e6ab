"""A real Kafka on this machine: `python -m deploy.kafka.cluster`, `make kafka`, and for the tests.

One broker or three, in KRaft mode, on loopback and free ports, in a folder, with small heaps. All
that a cluster needs to start again on the same data and ports lies in its folder.
"""

import concurrent.futures
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import click
import msgspec

from deploy.kafka import admin, layout
from deploy.kafka.broker import Broker
from deploy.kafka.jars import ensure, kafka_version, locked
from deploy.kafka.jvm import Software, find_java
from runtime.clock import SystemClock
from runtime.errors import FarsideError, Misconfigured, Unavailable
from runtime.files import write_atomically
from runtime.process import run
from runtime.wait import wait_until

USERNAME = "farside"
FORMAT_S = 120.0
CLOSE_S = 2.0


class Sasl(NamedTuple):
    """How to reach the listener with TLS and SCRAM-SHA-512."""

    bootstrap: list[str]
    username: str
    password_file: Path
    ca_file: Path


class Cluster:
    """A cluster that runs; as a context manager it is closed at the exit."""

    def __init__(
        self,
        brokers: list[Broker],
        sasl: Sasl | None,
        folder: Path,
        starter: concurrent.futures.Executor,
    ) -> None:
        """Take over brokers that are started; use `start`."""
        self.brokers = brokers
        self.folder = folder
        self._sasl = sasl
        self._starter = starter

    @classmethod
    def start(cls, folder: Path, brokers: int = 1, *, sasl: bool = False, port: int = 0) -> Self:
        """Start a cluster in a folder and wait until every broker answers and sees the others.

        A folder that holds one already: that one is started again, with its data and ports. `port`
        fixes the first broker's port of a new one.
        Errors: `NotPermitted` where Java, Maven or a jar is missing, `Misconfigured` where the
        folder holds another kind of cluster or a port is taken, `Unavailable` where a broker does
        not come up (with the end of its log).
        """
        software = Software(find_java(), ensure())
        software = software._replace(options=_quick(cls, software))
        return cls._start(folder.absolute(), software, brokers, sasl=sasl, port=port)

    @classmethod
    def _start(
        cls, folder: Path, software: Software, brokers: int, *, sasl: bool, port: int
    ) -> Self:
        folder.mkdir(parents=True, exist_ok=True)
        plan = _plan(folder / "cluster.json", brokers, sasl=sasl, port=port)
        secret = _sasl(plan, folder) if sasl else None
        _configure(plan, folder, folder / "broker.pem" if sasl else None)
        _format(plan, folder, software, secret)
        # Its one thread lives as long as the cluster: see deploy.kafka.jvm.Software.broker.
        starter = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="kafka-starter")
        made = [
            Broker(node, _home(folder, node), software.broker(_settings(folder, node)), starter)
            for node in plan.nodes
        ]
        found = cls(made, secret, folder, starter)
        try:
            for broker in made:
                broker.start()
            found.wait_ready()
        except BaseException:
            found.close()
            raise
        return found

    @property
    def bootstrap(self) -> list[str]:
        """Return the addresses of the plain listeners."""
        return [broker.address for broker in self.brokers]

    @property
    def sasl(self) -> Sasl:
        """Return how to reach the listener with TLS and SCRAM."""
        if self._sasl is None:
            raise ValueError("started without sasl=True")
        return self._sasl

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """Return the broker that leads a partition now; `Unavailable` where there is none."""
        number = admin.leader([one.address for one in self.brokers if one.running()],
                              topic, partition)  # fmt: skip
        return next(broker for broker in self.brokers if broker.id == number)

    def heal(self) -> None:
        """Let every broker run again, and wait until each sees all others."""
        for broker in self.brokers:
            broker.resume()
            broker.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every broker answers and sees all others; errors as of `start`."""
        everyone = frozenset(broker.id for broker in self.brokers)
        for broker in self.brokers:
            broker.wait_ready(everyone)

    def renew_topics(self, *, cells: int = 1) -> None:
        """Make all topics of the product anew and empty, `cells` partitions of telemetry."""
        admin.renew(self.bootstrap, cells=cells, copies=len(self.brokers))

    def close(self) -> None:
        """End all brokers: together, and killed where they have not ended after a moment.

        Three can't hand over to each other when all end; what they acknowledged survives that.
        """
        for broker in self.brokers:
            broker.ask_to_end()
        try:
            wait_until(lambda: not any(one.running() for one in self.brokers), CLOSE_S)
        except Unavailable:
            pass
        finally:
            for broker in self.brokers:
                broker.kill()
            self._starter.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _quick(kind: type[Cluster], software: Software) -> tuple[str, ...]:
    """Return the JVM's options for a start in half the time.

    The classes that a broker loads are kept in an archive beside the jars, once for each Java: the
    first start on a machine runs a broker for it. An empty archive: this Java can't make one.
    """
    archive = software.library / f"java-{software.java.version}.jsa"
    with locked(software.library.parent), tempfile.TemporaryDirectory() as folder:
        if not archive.exists():
            aside = archive.with_suffix(".new")
            aside.unlink(missing_ok=True)
            options = ("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={aside}",
                       "-Xlog:disable", "-Xlog:all=error")  # fmt: skip
            software = software._replace(options=options)
            with kind._start(Path(folder), software, 1, sasl=False, port=0) as cluster:  # noqa: SLF001
                cluster.renew_topics()
                cluster.brokers[0].stop()
            aside.touch()
            aside.rename(archive)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.stat().st_size else ()


def _plan(path: Path, brokers: int, *, sasl: bool, port: int) -> layout.Layout:
    found = layout.load(path)
    if found is None:
        found = layout.plan(brokers, sasl=sasl, port=port)
        write_atomically(path, msgspec.json.encode(found))
    elif port not in {0, found.nodes[0].port}:
        raise Misconfigured(
            f"{path.parent} holds a cluster at port {found.nodes[0].port}: leave --port out, or use"
            " another folder"
        )
    elif len(found.nodes) != brokers or any(bool(one.sasl_port) != sasl for one in found.nodes):
        raise Misconfigured(
            f"{path.parent} holds a cluster of {len(found.nodes)} brokers "
            f"{'with' if found.nodes[0].sasl_port else 'without'} SASL: "
            "start it so, or use another folder"
        )
    for node in found.nodes:
        for taken in (node.port, node.controller_port, node.sasl_port):
            if taken and not layout.is_free(taken):
                raise Misconfigured(
                    f"port {taken} of broker {node.id} is taken: end what listens there"
                    " (is this cluster running already?) or use another port or folder"
                )
    return found


def _home(folder: Path, node: layout.Node) -> Path:
    return folder / f"broker-{node.id}"


def _settings(folder: Path, node: layout.Node) -> Path:
    return _home(folder, node) / "server.properties"


def _configure(plan: layout.Layout, folder: Path, keystore: Path | None) -> None:
    for node in plan.nodes:
        _home(folder, node).mkdir(exist_ok=True)
        text = layout.properties(plan, node, _home(folder, node), keystore)
        _settings(folder, node).write_text(text, "utf-8")


def _sasl(plan: layout.Layout, folder: Path) -> Sasl:
    """Make the certificates anew at every start (they expire), the password once."""
    from deploy.kafka import tls  # noqa: PLC0415  # cryptography is for this alone

    made = tls.make(folder, SystemClock().now())
    password_file = folder / "password"
    if not password_file.exists():
        write_atomically(password_file, secrets.token_hex(16).encode())
    return Sasl(
        [f"{layout.LOOPBACK}:{node.sasl_port}" for node in plan.nodes],
        USERNAME,
        password_file,
        made.ca_file,
    )


def _format(plan: layout.Layout, folder: Path, software: Software, sasl: Sasl | None) -> None:
    """Let Kafka's storage tool prepare the folders that are not prepared yet, two at once."""
    scram = []
    if sasl is not None:
        password = sasl.password_file.read_text("ascii")
        scram = ["--add-scram", f"SCRAM-SHA-512=[name={sasl.username},password={password}]"]

    def one(node: layout.Node) -> None:
        done = run(
            software.storage(
                "format", "-t", plan.cluster, "-c", str(_settings(folder, node)),
                "--initial-controllers", plan.voters, *scram,
            ),
            FORMAT_S,
        )  # fmt: skip
        if done.code != 0:
            said = (done.err + done.out).strip().splitlines()
            raise Unavailable(f"broker {node.id} can't be prepared: {' '.join(said[-3:])[:600]}")

    with concurrent.futures.ThreadPoolExecutor(2) as several:
        list(several.map(one, [node for node in plan.nodes if not _is_prepared(folder, node)]))


def _is_prepared(folder: Path, node: layout.Node) -> bool:
    return (_home(folder, node) / "data" / "meta.properties").exists()


def toml(cluster: Cluster, *, sasl: bool) -> str:
    """Return the lines for farside.toml."""
    where = cluster.sasl.bootstrap if sasl else cluster.bootstrap
    lines = ["[bus]", 'kind = "kafka"', "", "[bus.kafka]", f"bootstrap = {_quoted(where)}"]
    if sasl:
        lines += [
            'security = "sasl_ssl"',
            f"username = {_quoted(cluster.sasl.username)}",
            f"password_file = {_quoted(str(cluster.sasl.password_file))}",
            f"ca_file = {_quoted(str(cluster.sasl.ca_file))}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(value: object) -> str:
    """Return a string or a list of strings as TOML writes it (the form of JSON)."""
    return msgspec.json.encode(value).decode()


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="farside-kafka-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@click.command()
@click.option("--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True)
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path),
              help="Where data and logs lie, kept for the next start. Default: a temporary folder, "
                   "removed at the end.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=None,
              help="The first broker's port. Default: a free one.")  # fmt: skip
@click.option("--sasl", is_flag=True, help="Listen with TLS and SCRAM-SHA-512, too.")
def main(brokers: str, folder: Path | None, port: int | None, *, sasl: bool) -> None:
    """Run a Kafka on loopback until Ctrl-C, and print what farside.toml needs."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup wants it to live on
            signal.signal(number, signal.default_int_handler)
    try:
        with (
            _folder(folder) as place,
            Cluster.start(place, int(brokers), sasl=sasl, port=port or 0) as cluster,
        ):
            what = "1 broker" if brokers == "1" else f"{brokers} brokers"
            click.echo(f"# Kafka {kafka_version()}: {what} at {', '.join(cluster.bootstrap)}")
            click.echo(f"# data and logs: {place}; Ctrl-C ends it. For farside.toml:")
            click.echo(toml(cluster, sasl=sasl))
            _attend(cluster)
    except KeyboardInterrupt:
        return
    except Misconfigured as error:
        click.echo(f"farside: {error}", err=True)
        sys.exit(2)
    except FarsideError as error:
        click.echo(f"farside: {error}", err=True)
        sys.exit(3)


def _attend(cluster: Cluster) -> None:
    """Stay until we are asked to end; `Unavailable` once a broker has ended by itself."""
    clock, never = SystemClock(), threading.Event()
    while True:
        for broker in cluster.brokers:
            if not broker.running():
                raise Unavailable(f"broker {broker.id} has ended\n{broker.tail()}")
        clock.wait(never, 0.5)


if __name__ == "__main__":
    main()
