"""Wrong files as operators write them: one sentence each, which names the key and the remedy."""

import json
from pathlib import Path

import pytest

from farside.main import run

LONG = "n" * 300

WRONG: list[tuple[str, str]] = [
    # --- the file itself
    ("this is no toml", "is no TOML"),
    ("[http", "is no TOML"),
    ("[farside]\nnode = 'x'\nnode = 'y'", "is no TOML: Cannot overwrite a value"),
    ("[collect.memory]\n[collect.memory]", "is no TOML"),
    ("a = " + "[" * 5000 + "]" * 5000, "lie too deep in each other"),
    ("#" * (5 << 20), "is longer than 4 MiB"),
    ("[[http]]\nport = 1", "http must be a section"),
    ("http = 9820", "http must be a section"),
    ("[collect]\nmemory = 3", "collect.memory must be a section"),
    ("[farsight]\nnode = 'x'", "farsight is no known key: did you mean farside?"),
    ("[farside]\nnodename = 'x'", "farside.nodename is no known key: did you mean farside.node?"),
    # --- names
    ("[farside]\ncluster = ''", "farside.cluster is empty: write a name"),
    ("[farside]\ncell = ''", "farside.cell is empty: write a name"),
    ("[farside]\ncell = '../../etc'", "farside.cell is no name: '../../etc' must be letters"),
    ("[farside]\ncell = 'a/b'", "farside.cell is no name: 'a/b' must be letters"),
    ("[farside]\nnode = 'my node'", "farside.node is no name: 'my node' must be letters"),
    ("[farside]\nnode = 5", "farside.node must be text, not 5"),
    ('[farside]\nnode = "a\\u0007b"', "farside.node has a control character in 'a\\x07b'"),
    ('[farside]\nnode = "n1\\nn2"', "farside.node has a control character in 'n1\\nn2'"),
    (f"[farside]\nnode = '{LONG}'", "farside.node has 300 characters: write a name of at most 253"),
    (f"[farside]\ncluster = '{LONG}'", "farside.cluster has 300 characters"),
    ("[bus.cells]\n'' = 0", 'bus.cells."" is no name'),
    ("[bus.cells]\n'default' = 0\n'a b' = 1", "bus.cells.a b is no name"),
    ("[bus.cells]\na = 0\nb = 0", "a and b both name partition 0: give each cell one of its own"),
    ("[farside]\ncell = 'b'\n[bus.cells]\na = 0", "bus.cells names no cell 'b', which farside"),
    ("[bus.cells]\ndefault = -1", "bus.cells.default must be a whole number from 0 to 10000"),
    # --- folders
    ("[farside]\nstate_dir = 'state'", "farside.state_dir must be an absolute path, not 'state'"),
    ("[farside]\nstate_dir = '~/state'", "farside.state_dir must be an absolute path"),
    (f"[farside]\nstate_dir = '/tmp/{'s' * 100}'", "farside.state_dir is too long"),
    ("[farside]\nroot = 'host'", "farside.root must be an absolute path, not 'host'"),
    ("[farside]\nroot = '/no/such'", "farside.root: there is no folder /no/such/proc"),
    ("[farside]\nlog_level = 'warn'", "not 'warn'; did you mean 'warning'?"),
    # --- addresses
    ("[http]\nport = 'many'", "http.port must be a whole number from 0 to 65535, not 'many'"),
    ("[http]\nport = -1", "http.port must be a whole number from 0 to 65535, not -1"),
    ("[http]\nport = 9820.5", "http.port must be a whole number from 0 to 65535, not 9820.5"),
    ("[http]\nport = true", "http.port must be a whole number from 0 to 65535, not true"),
    ("[http]\nport = 99999999999999999999", "http.port must be a whole number from 0 to 65535"),
    ("[http]\naddress = ''", "http.address is empty: 127.0.0.1 is for this machine alone"),
    ("[http]\naddress = 'my host'", "http.address: 'my host' is no address"),
    ("[http]\naddress = '300.1.1.1'", "http.address: '300.1.1.1' is no address"),
    ("[http]\naddress = '127.0.0.1:9820'", "http.port has the port"),
    ("[http]\naddress = 'http://127.0.0.1'", "http.address: 'http://127.0.0.1' is no address"),
    ("[http]\naddress = '::1'", "http.address: '::1' is of IPv6, and only IPv4 is served"),
    # --- the bus
    ("[bus]\nkind = 'rabbit'", "bus.kind must be one of 'kafka', 'memory', not 'rabbit'"),
    ("[bus]\nrecords_max = 0", "bus.records_max must be a whole number from 1"),
    ("[bus]\nkind = 'kafka'", "bus.kafka.bootstrap is missing"),
    ("[bus.kafka]\nbootstrap = []", "bus.kafka bootstrap is empty: name brokers"),
    ("[bus.kafka]\nbootstrap = ['k']", "bus.kafka bootstrap: 'k' is no address of the form"),
    ("[bus.kafka]\nbootstrap = ['k:99999']", "bus.kafka bootstrap: 'k:99999' is no address"),
    ("[bus.kafka]\nbootstrap = ['k:1', 'k:1']", "bus.kafka.bootstrap names 'k:1' twice"),
    ("[bus.kafka]\nbootstrap = 'k:1'", "bus.kafka.bootstrap must be a list, each entry text"),
    # --- the agent
    ("[agent]\nperiod_s = 0", "agent.period_s must be a number above 0"),
    ("[agent]\nperiod_s = '1s'", "agent.period_s must be a number above 0"),
    ("[agent]\nperiod_s = 60", "detect.leaks.gone_s = 5 is not more than agent.period_s (60)"),
    ("[agent.spool]\nrecords_max = -1", "agent.spool.records_max must be a whole number from 1"),
    ("[agent.spool]\nbytes_max = '16MB'", "agent.spool.bytes_max must be a whole number"),
    ("[agent.spool]\ndisk = 'yes'", "agent.spool.disk must be true or false, not 'yes'"),
    ("[collect.gpu_fan]", "there is no 'gpu_fan'"),
    ("[collect.memory]\nspeed = 3", "collect.memory.speed is no known key"),
    ("[collect.memory]\nenabled = 'no'", "collect.memory.enabled must be true or false"),
    ("[collect.cgroup]\ngroups_max = 0", "collect.cgroup.groups_max must be a whole number from 1"),
    # --- detection
    ("[detect.frames]\nperiod = 1", "detect.frames.period is no known key"),
    ("[detect.frames]\nperiod_s = 0", "detect.frames.period_s must be a number from 0.05"),
    ("[detect.frames]\nperiod_s = -1", "detect.frames.period_s must be a number from 0.05"),
    ("[detect.frames]\nlateness_s = nan", "detect.frames.lateness_s must be a number from 0"),
    ("[detect.frames]\nlateness_s = 3600", "lateness_s: 3600 keeps more than 1000 frames"),
    ("[detect.frames]\nlateness_s = 90", "decide.age_limit_s = 60 is not more than detect.frames"),
    ("[detect.watch]\nsuspect_phi = 20", "suspect_phi: 20 is above dead_phi (12)"),
    ("[detect.watch]\nsuspect_nats = 20", "suspect_nats: 20 is above dead_nats (13)"),
    ("[detect.fusion]\nsuspect_nats = 6", "suspect_nats: 6 is above degraded_nats (5.5)"),
    ("[detect.fusion]\nrefresh_s = 7200", "decide.forget_s = 3600 is not more than detect.fusion"),
    ("[detect.leaks]\nnear_share = 85", "detect.leaks.near_share must be a number above 0 and"),
    ("[detect.leaks]\ncap_nats = 2", "cap_nats: 2 is below width_nats (8)"),
    ("[detect.rules]\nwarning_nats = 15", "warning_nats: 15 is above error_nats (12)"),
    ("[detect.arrivals]\nskew_s = 7200", "detect.arrivals.skew_s must be a number from 0.1"),
    ("[detect.series]\nseries_max = 0", "detect.series.series_max must be a whole number from 1"),
    ("[models.floor]", "models.floor is no model"),
    ("[models.floors]\nwidths_s = []", "widths_s must be a list of 1 to 12 entries"),
    ("[models.floors]\nwidths_s = [5, 1]", "widths_s: 1 is no whole multiple of 5"),
    ("[models.floors]\nwidths_s = [1, 1]", "models.floors.widths_s names 1 twice"),
    ("[models.floors]\nblocks = 13", "blocks: 13 is not one of 12, 18, 24, 30"),
    ("[models.floors]\nblocks = 12\nholes_max = 12", "holes_max: 12 is not from 0 to 11"),
    ("[models.silence]\nwindow = 1", "models.silence.window must be a whole number from 2"),
    ("[models.level]\ntau_s = -3600", "models.level.tau_s must be a number from 1"),
    # --- deciding and acting
    ("[decide]\nheld_max = 0", "decide.held_max must be a whole number"),
    ("[decide]\nheld_percent = 500", "decide.held_percent must be a number above 0"),
    ("[decide]\nopen_nats = inf", "decide.open_nats must be a number"),
    ("[decide]\nopen_nats = 1.0", "decide.close_nats = 1 is not below decide.open_nats (1)"),
    ("[act.nonsense.default]", "act.nonsense is no fault that is known: (known: memory_leak,"),
    ("[act.memory_leek.default]", "did you mean act.memory_leak?"),
    ("[act.memory_leak]\nactions = ['freeze']", "act.memory_leak.actions must be a section"),
    ("[act.memory_leak.'']\nactions = ['freeze']", 'act.memory_leak."" is no name'),
    ("[act.memory_leak.default]\nactions = 'freeze'", "actions must be a list, each entry one of"),
    ("[act.memory_leak.default]\nactions = ['freez']", "'freez' (entry 1); did you mean 'freeze'?"),
    ("[act.memory_leak.default]\nactions = ['freeze', 'freeze']", "names 'freeze' twice"),
    ("[execute.slurmm]", "there is no 'slurmm'"),
    ("[execute.process]\nown_cgroup = '/x'", "execute.process.own_cgroup is no known key"),
    ("[execute.process]\nown_cgroups = '/x'", "execute.process.own_cgroups must be a list"),
    ("[execute.process]\nown_cgroups = ['jobs']", "own_cgroups: 'jobs' is no absolute path"),
    ("[execute.process]\nown_cgroups = ['/']", "own_cgroups: '/' is the whole machine"),
    ("[execute.process]\nown_cgroups = ['/a', '/a']", "own_cgroups names '/a' twice"),
    ("[execute.process]\nown_descendants_of = [7]", "not 7 (entry 1)"),
    ("[execute.process]\nown_descendants_of = ['me']", "own_descendants_of: 'me' is neither"),
    ("[execute.process]\nown_descendants_of = ['1']", "is the ancestor of the whole machine"),
    ("[execute.process]\nhold_s = 0", "execute.process.hold_s must be a number above 0"),
    ("[executor]\npoll_s = 0", "executor.poll_s must be a number above 0"),
    # --- telling
    ("[notify.pager]", "there is no 'pager'"),
    ("[notify.console]\ncolour = true", "notify.console.colour is no known key"),
    ("[notify.webhook]\nurl = 'https://h/'", "notify.webhook.secret_file is missing"),
    ("[notify.webhook]\nsecret_file = 'none'", "secret_file names none, which can't be read"),
    ("[notifier]\nwaiting_max = -1", "notifier.waiting_max must be a whole number"),
]


def complaints(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    path = folder / "farside.toml"
    path.write_text(text)
    code = run(["check", "--json", "--config", str(path)])
    captured = capsys.readouterr()
    findings = json.loads(captured.out)["findings"] if captured.out else []
    wrong = [one["text"] for one in findings if not one["ok"]]
    return code, "\n".join([*wrong, captured.err])


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file names no folder for its state, the tests' own is the user's."""
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_file_is_refused_by_a_sentence_that_names_the_key(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = complaints(tmp_path, text, capsys)
    assert (code, expected in said) == (2, True), said
