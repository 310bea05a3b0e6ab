import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.clock import ManualClock
from runtime.errors import Misconfigured
from runtime.health import Check, Health, HttpServer, Systemd
from runtime.metrics import Metrics


def test_alive_means_every_heartbeat_is_recent() -> None:
    clock = ManualClock()
    health = Health(clock)
    scorer = health.heartbeat("scorer", 10)
    health.heartbeat("decider", 30)
    clock.advance(11)
    assert health.alive() == (
        False,
        {
            "scorer": Check(ok=False, text="last sign of life 11.0 s ago, allowed 10 s"),
            "decider": Check(ok=True, text="last sign of life 11.0 s ago, allowed 30 s"),
        },
    )
    scorer.beat()
    assert health.alive().ok


def test_ready_means_alive_and_every_condition_met() -> None:
    clock = ManualClock()
    health = Health(clock)
    health.heartbeat("scorer", 10)
    caught_up = health.condition("caught-up", "reading the log")
    assert health.alive().ok
    assert health.ready().checks["caught-up"] == Check(ok=False, text="reading the log")
    caught_up.met()
    assert health.ready().ok
    caught_up.unmet("4,000 records behind")
    assert not health.ready().ok
    caught_up.met()
    clock.advance(11)
    assert not health.ready().ok


@contextmanager
def served(health: Health, metrics: Metrics) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, metrics, health)
    stop = threading.Event()
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        thread.join(20)


def get(server: HttpServer, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.loopback
def test_the_endpoints_answer_with_state_and_figures() -> None:
    clock = ManualClock()
    health, metrics = Health(clock), Metrics()
    health.heartbeat("scorer", 10)
    health.condition("caught-up", "reading the log")
    metrics.gauge("farside_incidents", "Open incidents").set(3)
    with served(health, metrics) as server:
        assert get(server, "/healthz")[0] == 200
        status, body = get(server, "/readyz")
        assert (status, json.loads(body)["ok"]) == (503, False)
        assert json.loads(body)["checks"]["caught-up"] == {"ok": False, "text": "reading the log"}
        assert b"farside_incidents 3.0" in get(server, "/metrics?x=1")[1]
        assert get(server, "/secrets")[0] == 404
        clock.advance(11)
        assert get(server, "/healthz")[0] == 503


@pytest.mark.loopback
def test_a_client_that_says_nothing_keeps_nobody_waiting() -> None:
    with (
        served(Health(ManualClock()), Metrics()) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        assert get(server, "/healthz")[0] == 200


@pytest.mark.loopback
def test_a_client_that_talks_nonsense_or_leaves_harms_nobody() -> None:
    with served(Health(ManualClock()), Metrics()) as server:
        for words in (b"\x00\xff\r\n\r\n", b"GET /metrics HTTP/1.0\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(words)
        assert get(server, "/healthz")[0] == 200


@pytest.mark.loopback
def test_more_clients_than_places_are_let_go_and_their_places_come_back() -> None:
    with served(Health(ManualClock()), Metrics()) as server:
        address = ("127.0.0.1", server.port)
        clients = [socket.create_connection(address, timeout=20) for _ in range(20)]
        surplus = sum(_closed(client) for client in clients[8:])
        assert surplus == 12
        for client in clients:
            client.close()
        for _ in range(200):
            if _answers(server):
                return
        pytest.fail("no place came back")


@pytest.mark.loopback
def test_a_port_in_use_is_one_sentence_with_a_remedy() -> None:
    health, metrics = Health(ManualClock()), Metrics()
    first = HttpServer("127.0.0.1", 0, metrics, health)
    with pytest.raises(
        Misconfigured,
        match=rf"^port {first.port} on 127\.0\.0\.1 can't be taken \(address already in use\): end",
    ):
        HttpServer("127.0.0.1", first.port, metrics, health)
    first.close()


@pytest.mark.loopback
def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(Misconfigured, match="can't be taken"):
        HttpServer("192.0.2.1", 0, Metrics(), Health(ManualClock()))


@pytest.mark.loopback
def test_systemd_is_told_of_start_life_and_end(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(path)
        channel.settimeout(20)
        systemd = Systemd(
            {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, pid=7
        )
        assert systemd.watchdog_s == 3
        assert (systemd.ready(), systemd.watchdog(), systemd.stopping()) == (True, True, True)
        told = [channel.recv(100) for _ in range(3)]
    assert told == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_without_systemd_nobody_is_told() -> None:
    systemd = Systemd({})
    assert not systemd.ready()
    assert not systemd.watchdog()


def test_a_watchdog_meant_for_another_process_is_not_ours() -> None:
    environ = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}
    assert Systemd(environ, pid=7).watchdog_s is None


@pytest.mark.loopback
def test_a_systemd_that_does_not_listen_stops_nobody(tmp_path: Path) -> None:
    assert not Systemd({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


def _closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def _answers(server: HttpServer) -> bool:
    try:
        return get(server, "/healthz")[0] == 200
    except (ConnectionError, http.client.HTTPException):
        return False
