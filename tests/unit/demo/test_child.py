"""The demo's processes as they really run on this machine."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from farside.demo.child import EXIT_AT_LIMIT, EXIT_DONE, EXIT_USAGE
from farside.demo.curves import LEAK, PAGECACHE, SAWTOOTH, STEADY, Curve
from runtime.process import Running, run, start
from runtime.wait import wait_until

ROOT = Path(__file__).parents[3]
MB = 1_000_000
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SOON_S = 30.0  # a bound for a machine under load; nothing here takes a second on an idle one


def command(name: str, curve: Curve, folder: Path | None = None) -> list[str]:
    fields = curve._asdict()
    kind = fields.pop("kind")
    params = {"name": name, "curve": fields, "folder": str(folder or "")}
    return [sys.executable, "-m", "farside.demo.child", kind, "--json", json.dumps(params)]


@contextmanager
def running(curve: Curve, folder: Path | None = None, *, go: bool = True) -> Iterator[Running]:
    child = start(command("loader", curve, folder), env=ENVIRONMENT, output="pipe", errors="output")
    try:
        wait_until(lambda: comm(child.pid) == "loader", SOON_S)
        if go:
            child.send(f"go {monotonic()}\n".encode())
        yield child
    finally:
        child.kill()
        child.stop()


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_tooth_that_drops_gives_its_memory_back_to_the_machine() -> None:
    with running(Curve(SAWTOOTH, 4 * MB, 40 * MB, 0.0, 0.8, 0.0)) as child:
        wait_until(lambda: status_bytes(child.pid, "RssAnon") > 35 * MB, SOON_S)
        wait_until(lambda: status_bytes(child.pid, "RssAnon") < 20 * MB, SOON_S)
        wait_until(lambda: status_bytes(child.pid, "VmData") > 35 * MB, SOON_S)
        wait_until(lambda: status_bytes(child.pid, "VmData") < 20 * MB, SOON_S)


def test_the_page_cache_process_grows_in_file_pages_alone_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    curve = Curve(PAGECACHE, 4 * MB, 30 * MB, 0.0, 0.3, 100.0 * MB)
    with running(curve, tmp_path) as child:
        wait_until(lambda: status_bytes(child.pid, "RssFile") > 29 * MB, SOON_S)
        assert status_bytes(child.pid, "RssAnon") < 20 * MB
        assert status_bytes(child.pid, "VmData") < 20 * MB
        assert list(tmp_path.iterdir()) == []


def test_at_its_limit_it_dies_with_one_line_and_an_exit_code_of_its_own() -> None:
    leak = json.dumps(command("loader", Curve(LEAK, 0, MB, 0.0, 1.0, 400.0 * MB)))
    limited = (
        "import json, os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (60_000_000, 60_000_000))\n"
        f"argv = json.loads({leak!r})\n"
        "os.execv(argv[0], argv)\n"
    )
    child = start([sys.executable, "-c", limited], env=ENVIRONMENT, output="pipe", errors="output")
    try:
        child.send(f"go {monotonic()}\n".encode())
        said = list(child.lines())
        assert child.wait(SOON_S) == EXIT_AT_LIMIT
    finally:
        child.kill()
        child.stop()
    assert said == ["loader: out of memory, the limit of its data is reached; it ends here"]


def test_it_ends_quietly_when_its_standard_input_closes() -> None:
    for go in (False, True):
        with running(Curve(STEADY, MB, 0, 0.0, 1.0, 0.0), go=go) as child:
            child.stdin.close()
            assert (child.wait(SOON_S), list(child.lines())) == (EXIT_DONE, [])


def test_it_dies_with_its_parent_even_while_it_is_stopped() -> None:
    argv = json.dumps(command("loader", Curve(STEADY, MB, 0, 0.0, 1.0, 0.0)))
    parent_text = (
        "import json, subprocess, sys\n"
        f"child = subprocess.Popen(json.loads({argv!r}), stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = start([sys.executable, "-c", parent_text], env=ENVIRONMENT, output="pipe")
    try:
        pid = int(next(parent.lines()))
        wait_until(lambda: comm(pid) == "loader", SOON_S)
        os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait(SOON_S)
        wait_until(lambda: is_gone(pid), SOON_S)
    finally:
        parent.kill()
        parent.stop()


def test_wrong_arguments_are_told_in_one_line() -> None:
    said = []
    for arguments in (["leak"], ["what", "--json", "{}"], ["leak", "--json", '{"name": "x"}']):
        finished = run(
            [sys.executable, "-m", "farside.demo.child", *arguments], SOON_S, env=ENVIRONMENT
        )
        said.append((finished.code, finished.err.count("\n"), finished.out))
    assert said == [(EXIT_USAGE, 1, "")] * 3


def test_it_loads_nothing_but_the_standard_library() -> None:
    text = (
        "import sys; import farside.demo.child; "
        "print([name for name in ('numpy', 'msgspec', 'click', 'runtime', 'bus') "
        "if name in sys.modules])"
    )
    assert run([sys.executable, "-c", text], SOON_S, env=ENVIRONMENT).out == "[]\n"
