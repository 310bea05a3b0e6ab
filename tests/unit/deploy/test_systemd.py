"""deploy/systemd: each unit starts a role, is watched, never gives up, may do what its role does.

systemd itself judges them where it is installed; no service is started here.
"""

import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from collectors.kernel_log import PATH as KERNEL_LOG
from farside.main import COMMANDS
from runtime.process import run

UNITS = Path(__file__).parents[3] / "deploy/systemd"
ROLES = ("collect", "detect", "execute", "notify", "up")
ON_NODES = ("collect", "execute", "up")
STOP_S = 10  # runtime.service.STOP_DEADLINE_S

Unit = dict[str, dict[str, list[str]]]


def unit(role: str) -> Unit:
    """Return what a unit says: a list of values for each key, as a key may stand twice."""
    found: Unit = defaultdict(lambda: defaultdict(list))
    section = ""
    for number, line in enumerate(path(role).read_text("utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        key, sign, value = line.partition("=")
        assert sign, f"line {number}: {line!r} is neither a section nor a key with a value"
        assert section, f"line {number}: {line!r} stands before any section"
        found[section][key].append(value)
    return found


def path(role: str) -> Path:
    return UNITS / f"farside-{role}.service"


def test_there_is_one_unit_for_each_role() -> None:
    assert sorted(one.name for one in UNITS.glob("*.service")) == [path(r).name for r in ROLES]


@pytest.mark.parametrize("role", ROLES)
def test_it_starts_its_role_and_waits_until_that_says_that_it_is_ready(role: str) -> None:
    service = unit(role)["Service"]
    (started,) = service["ExecStart"]
    program, command, option, config = started.split()
    assert (Path(program).name, command, option) == ("farside", role, "--config")
    assert command in COMMANDS
    assert Path(config).is_absolute()
    assert service["Type"] == ["notify"]


@pytest.mark.parametrize("role", ROLES)
def test_it_is_watched_and_started_again_for_ever(role: str) -> None:
    found = unit(role)
    assert found["Unit"]["StartLimitIntervalSec"] == ["0"]
    assert found["Service"]["Restart"] == ["on-failure"]
    assert float(found["Service"]["RestartSec"][0].removesuffix("s")) > 0
    # Nor does any exit code make systemd give up.
    assert not found["Service"]["RestartPreventExitStatus"]
    # Heartbeats are promised within 30 s, and asked for about once a second.
    assert int(found["Service"]["WatchdogSec"][0].removesuffix("s")) > 30
    assert int(found["Service"]["TimeoutStopSec"][0].removesuffix("s")) > STOP_S


@pytest.mark.parametrize("role", ROLES)
def test_its_state_has_a_folder_that_it_may_write_and_nobody_else_reads(role: str) -> None:
    service = unit(role)["Service"]
    (folder,) = service["StateDirectory"]
    assert service["StateDirectoryMode"] == ["0700"]
    # Root's state folder is /var/lib/farside by itself; another one has to be told.
    told = f"FARSIDE__FARSIDE__STATE_DIR=%S/{folder}"
    assert folder == "farside" or told in service["Environment"]


def test_roles_of_different_users_do_not_share_a_state_folder() -> None:
    users = defaultdict(set)
    for role in ROLES:
        service = unit(role)["Service"]
        users[service["StateDirectory"][0]].add(role if service["DynamicUser"] else "root")
    assert all(len(one) == 1 for one in users.values())


def test_roles_on_one_machine_have_a_port_each() -> None:
    ports = [
        setting
        for role in ROLES
        for setting in unit(role)["Service"]["Environment"]
        if setting.startswith("FARSIDE__HTTP__PORT=")
    ]
    assert len(ports) == len(set(ports)) == len(ROLES) - 1  # up has the machine for itself


@pytest.mark.parametrize("role", ROLES)
def test_a_file_of_variables_may_be_missing_and_no_secret_is_in_a_unit(role: str) -> None:
    service = unit(role)["Service"]
    assert service["EnvironmentFile"] == ["-/etc/farside/farside.env", f"-/etc/farside/{role}.env"]
    text = path(role).read_text("utf-8").lower()
    assert role == "up" or "loadcredential=" in text
    assert "password=" not in text


@pytest.mark.parametrize("role", ["collect", "up"])
def test_what_collects_may_read_the_kernel_log(role: str) -> None:
    service = unit(role)["Service"]
    assert "CAP_SYSLOG" in service["CapabilityBoundingSet"][0].split()
    assert service["ProtectKernelLogs"] == ["no"]
    assert service["PrivateDevices"] == ["no"]
    # ProtectClock= implies a list of devices: what is not on it is closed.
    assert f"{KERNEL_LOG} r" in service["DeviceAllow"]


@pytest.mark.parametrize("role", ON_NODES)
def test_what_works_on_a_node_sees_all_processes(role: str) -> None:
    service = unit(role)["Service"]
    assert (service["ProtectProc"], service["ProcSubset"]) == (["default"], ["all"])
    assert "CAP_SYS_PTRACE" in service["CapabilityBoundingSet"][0].split()
    assert not service["DynamicUser"]


@pytest.mark.parametrize("role", ["execute", "up"])
def test_what_acts_may_write_control_groups_and_send_signals(role: str) -> None:
    service = unit(role)["Service"]
    assert service["ProtectControlGroups"] == service["ProtectKernelTunables"] == ["no"]
    assert {"CAP_KILL", "CAP_DAC_OVERRIDE"} <= set(service["CapabilityBoundingSet"][0].split())


@pytest.mark.parametrize("role", ["collect", "detect", "notify"])
def test_what_only_looks_or_tells_may_write_nothing_of_the_kernel(role: str) -> None:
    service = unit(role)["Service"]
    assert service["ProtectControlGroups"] == service["ProtectKernelTunables"] == ["yes"]
    assert "CAP_KILL" not in service["CapabilityBoundingSet"][0].split()


@pytest.mark.parametrize("role", ROLES)
def test_none_may_gain_powers_or_write_outside_its_folder(role: str) -> None:
    service = unit(role)["Service"]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["ProtectSystem"] == ["strict"]
    # One assignment without a value takes everything away; none at all would leave everything.
    assert len(service["CapabilityBoundingSet"]) == 1


def test_systemd_finds_nothing_wrong_with_them(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed; the tests above judge the form")
    units = []
    for role in ROLES:
        # It looks whether the program is there: ours is where this Python is.
        text = path(role).read_text("utf-8")
        text = text.replace("ExecStart=/opt/farside/bin/farside", f"ExecStart={sys.executable}")
        units.append(tmp_path / path(role).name)
        units[-1].write_text(text, "utf-8")
    found = run([program, "verify", "--man=no", *map(str, units)], 60.0)
    told = [line for line in found.err.splitlines() if "farside" in line]
    assert (found.code, told) == (0, [])
