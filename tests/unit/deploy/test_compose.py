"""deploy/compose.yaml and its Dockerfile, by their form: no container is started here."""

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from deploy.kafka import jars
from runtime.errors import FarsideError
from runtime.process import run

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
ROLES = {"collect", "detect", "execute", "notify"}


class Service(msgspec.Struct, forbid_unknown_fields=True):
    """What this file says of one service; another key is taken for a slip of the pen."""

    image: str
    restart: Literal["no", "unless-stopped"]
    stop_grace_period: str
    volumes: list[str]
    healthcheck: dict[str, str | int | bool | list[str]]
    build: dict[str, str] = {}
    command: list[str] = []
    depends_on: dict[str, dict[Literal["condition"], str]] = {}
    environment: dict[str, str | int] = {}
    ports: list[str] = []
    user: str = ""
    pid: str = ""
    cgroup: str = ""
    devices: list[str] = []
    cap_add: list[str] = []


class Compose(msgspec.Struct):
    """The file."""

    services: dict[str, Service]
    volumes: dict[str, None]


@pytest.fixture(scope="module")
def compose() -> Compose:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    return msgspec.yaml.decode(COMPOSE.read_bytes(), type=Compose)


def test_every_role_has_a_service_that_runs_its_command(compose: Compose) -> None:
    commands = {name: one.command for name, one in compose.services.items()}
    assert commands == {name: [name] for name in ROLES} | {
        "kafka": [],
        "topics": ["topics", "--create"],
    }


def test_what_is_published_is_bound_to_loopback(compose: Compose) -> None:
    ports = [port for one in compose.services.values() for port in one.ports]
    assert ports != []
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_broker_is_the_version_that_the_tests_meet(compose: Compose) -> None:
    assert compose.services["kafka"].image == f"apache/kafka:{jars.kafka_version()}"


def test_the_broker_makes_no_topics_by_itself_and_gives_the_time(compose: Compose) -> None:
    told = compose.services["kafka"].environment
    assert told["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert told["KAFKA_LOG_MESSAGE_TIMESTAMP_TYPE"] == "LogAppendTime"


def test_every_lasting_service_has_a_health_check_and_starts_again(compose: Compose) -> None:
    lasting = [one for name, one in compose.services.items() if name != "topics"]
    assert all(one.healthcheck["test"] for one in lasting)
    assert {one.restart for one in lasting} == {"unless-stopped"}


def test_what_is_waited_for_and_mounted_exists(compose: Compose) -> None:
    services = compose.services
    assert {name for one in services.values() for name in one.depends_on} <= services.keys()
    mounted = {mount.split(":")[0] for one in services.values() for mount in one.volumes}
    assert {name for name in mounted if not name.startswith(".")} == compose.volumes.keys()
    assert [name for name in mounted if name.startswith(".") and not (DEPLOY / name).exists()] == []


def test_the_roles_find_the_broker_by_its_services_name() -> None:
    told = tomllib.loads((DEPLOY / "kafka" / "farside.toml").read_text("utf-8"))
    assert told["bus"] == {"kind": "kafka", "kafka": {"bootstrap": ["kafka:9092"]}}


def test_every_file_that_the_image_copies_is_there_and_let_in() -> None:
    root = DEPLOY.parent
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    let_in = [line.removeprefix("!").rstrip("/") for line in ignore if line.startswith("!")]
    assert [name for name in let_in if not (root / name).exists()] == []
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(wheel) <= set(let_in)
    copied = re.findall(r"^COPY (?!--from|\.)(\S+)", (DEPLOY / "Dockerfile").read_text("utf-8"),
                        re.MULTILINE)  # fmt: skip
    assert copied != []
    assert [name for name in copied if not (root / name).exists()] == []
    assert [n for n in copied if not any(fnmatch.fnmatch(n, f"{one}*") for one in let_in)] == []


def test_docker_reads_the_file_where_there_is_an_engine() -> None:
    try:
        engine = run(["docker", "info"], 30.0).code == 0
    except FarsideError:
        engine = False
    if not engine:
        pytest.skip("no Docker engine answers here: the file is checked only for form")
    done = run(["docker", "compose", "-f", str(COMPOSE), "config", "--quiet"], 60.0)
    assert (done.code, done.err) == (0, "")
