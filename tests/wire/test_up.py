"""`farside up` in this process on this machine: what it serves, what it survives, how it ends."""

import http.client
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bus.messages import Reject
from bus.records import Broken, load
from bus.topics import REJECTS, TELEMETRY
from farside.compose import Site
from farside.local import Ask, ask
from farside.main import run
from farside.settings import BusSettings, HttpSettings, Identity, Settings
from farside.whole import Assembly, build_up
from runtime.errors import Misconfigured, NotPermitted
from runtime.service import Service
from runtime.wait import wait_until

WAIT_S = 20.0


def settings(folder: Path, *, port: int = 0) -> Settings:
    return Settings(
        farside=Identity(node="n1", state_dir=str(folder)),
        bus=BusSettings(),
        http=HttpSettings(port=port),
    )


class Up(NamedTuple):
    """A farside that runs."""

    site: Site
    assembly: Assembly
    folder: Path

    def get(self, path: str) -> tuple[int, str]:
        assert self.assembly.port is not None
        connection = http.client.HTTPConnection("127.0.0.1", self.assembly.port, timeout=5.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def samples(self) -> int:
        return self.assembly.story.snapshot(self.site.clock.now()).samples


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("state")
    site = Site(settings(folder))
    assembly = build_up(site, io.StringIO(), folder / "record.jsonl")
    service = Service(assembly.workers, site.clock, site.metrics)
    service.start()
    found = Up(site, assembly, folder)
    wait_until(lambda: found.samples() > 0, WAIT_S, what="first samples")
    yield found
    assert service.stop() == []
    assert service.failed is None


def test_it_is_alive_and_ready(up: Up) -> None:
    assert up.get("/healthz")[0] == 200
    assert up.get("/readyz")[0] == 200


@pytest.mark.parametrize(
    "name",
    [
        'farside_records_total{outcome="seen",worker="scorer"}',
        'farside_records_total{outcome="kept",worker="scorer"}',
        'farside_step_seconds_count{worker="scorer"}',
        'farside_record_age_seconds{worker="scorer"}',
        'farside_lag_records{topic="farside.telemetry",worker="scorer"}',
        'farside_published_total{type="Watermark",worker="scorer"}',
        "process_resident_memory_bytes",
    ],
)
def test_its_vital_signs_are_there(up: Up, name: str) -> None:
    wait_until(lambda: name in up.get("/metrics")[1], WAIT_S, what=name)


def test_bytes_that_are_no_message_become_rejects_and_nothing_stops(up: Up) -> None:
    rejects = up.assembly.bus.source([REJECTS], start="latest")
    garbage = [b"\xc1\xff", b"{}", b"x" * 1_000_001, b'{"type":"Tick","cell":"c","version":9}']
    for record in garbage:
        up.assembly.bus.append(TELEMETRY, "n9", record)
    found: list[str] = []

    def all_there() -> bool:
        found.extend(
            one.message.reason for one in rejects.poll(10, 0.1) if isinstance(one.message, Reject)
        )
        return len(found) >= len(garbage)

    wait_until(all_there, WAIT_S, what="rejects")
    assert sorted(found) == ["no message", "no message", "oversized", "unknown version"]
    before = up.samples()
    wait_until(lambda: up.samples() > before, WAIT_S, what="more samples")


def test_top_shows_it_once_and_as_json(
    up: Up,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FARSIDE__FARSIDE__STATE_DIR", str(up.folder))
    assert run(["top", "--once"]) == 0
    assert "n1" in capsys.readouterr().out
    assert run(["top", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["about"]["host"] == "n1"


def test_explain_tells_of_a_node_and_writes_its_page(
    up: Up,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FARSIDE__FARSIDE__STATE_DIR", str(up.folder))
    page = tmp_path / "n1.html"
    assert run(["explain", "n1", "--html", str(page)]) == 0
    assert "n1" in capsys.readouterr().out
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert run(["explain", "nobody"]) == 1
    assert "nobody" in capsys.readouterr().err


def test_a_second_one_with_the_same_state_folder_is_refused(up: Up) -> None:
    with pytest.raises(NotPermitted, match="another farside"):
        build_up(Site(settings(up.folder)), io.StringIO())


def test_its_record_is_read_back_without_a_broken_line(up: Up) -> None:
    record = up.folder / "record.jsonl"
    wait_until(lambda: record.stat().st_size > 0, WAIT_S, what="a record")
    whole = record.read_bytes().rpartition(b"\n")[0].splitlines()
    assert not [one for one in load(whole) if isinstance(one, Broken)]


def test_the_socket_says_no_to_what_it_does_not_know(up: Up) -> None:
    with pytest.raises(Exception, match="no answer to"):
        ask(up.folder, Ask(want="everything"))


def test_a_port_in_use_is_a_plain_sentence(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"port {port} on 127.0.0.1"):
            build_up(Site(settings(tmp_path, port=port)), io.StringIO())


def test_a_state_folder_that_cant_be_made_is_a_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotPermitted, match="state_dir"):
        build_up(Site(settings(tmp_path / "file" / "below")), io.StringIO())


def test_a_record_file_that_cant_be_written_is_a_plain_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match="name another file"):
        build_up(Site(settings(tmp_path)), io.StringIO(), tmp_path / "no" / "folder.jsonl")
