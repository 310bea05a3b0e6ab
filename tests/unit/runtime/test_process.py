import os
import signal
import sys
from pathlib import Path

import pytest

from runtime.errors import Misconfigured, NotPermitted, Unavailable
from runtime.process import Finished, run, start
from runtime.wait import wait_until

PYTHON = sys.executable


def test_a_program_that_ends_tells_its_code_and_what_it_printed() -> None:
    script = "import sys; print(sys.stdin.read().upper()); print('oh', file=sys.stderr); exit(3)"
    assert run([PYTHON, "-c", script], 20, b"leak") == Finished(3, "LEAK\n", "oh\n")


def test_the_environment_is_the_one_that_was_given() -> None:
    script = "import os; print(os.environ['COLOUR'], 'HOME' in os.environ)"
    assert run([PYTHON, "-c", script], 20, env={"COLOUR": "grey"}).out == "grey False\n"


def test_output_that_is_no_text_is_shown_with_replacement_marks() -> None:
    script = "import sys; sys.stdout.buffer.write(b'a\\xffb')"
    assert run([PYTHON, "-c", script], 20).out == "a\ufffdb"


def test_a_program_that_does_not_answer_is_killed_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "pid"
    grandchild = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600"
    with pytest.raises(Unavailable, match=r"^sh gave no answer within 2 s$"):
        run(["sh", "-c", f"sh -c '{grandchild}' & sleep 600"], 2)
    pid = int(pid_file.read_text())
    wait_until(lambda: not _runs(pid), 10, what="the grandchild is gone")


def test_a_program_that_is_not_installed_is_a_matter_of_configuration() -> None:
    with pytest.raises(Misconfigured, match="no-such-program is not installed"):
        run(["no-such-program"], 1)


def test_a_folder_that_is_not_there_is_named_instead_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no such folder"):
        run([PYTHON, "-V"], 1, cwd=tmp_path / "absent")


def test_a_file_that_may_not_be_run_is_a_matter_of_permission(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo")
    with pytest.raises(NotPermitted, match="may not be started by this user: permission denied"):
        run([str(tmp_path / "script")], 1)


def test_a_line_of_text_is_never_taken_for_a_command() -> None:
    with pytest.raises(ValueError, match="list of arguments"):
        run("echo hello", 1)


def test_a_running_program_talks_through_its_pipes_and_ends_when_its_input_closes() -> None:
    script = "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)"
    with start([PYTHON, "-c", script], output="pipe") as child:
        child.send(b"abc\n")
        assert next(child.lines()) == "cba"
        assert child.poll() is None
        child.stdin.close()
        assert child.wait(20) == 0


def test_a_killed_program_tells_the_signal_that_ended_it() -> None:
    with start(["sleep", "600"]) as child:
        child.kill()
        assert child.wait(20) == -signal.SIGKILL
        child.signal(signal.SIGTERM)  # its id may be another's by now: nothing is sent


def test_leaving_the_block_ends_a_program_that_will_not_listen() -> None:
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
    script += "; signal.pause()"
    with start([PYTHON, "-c", script], output="pipe", own_group=True) as child:
        next(child.lines())
        assert child.stop(grace_s=0.1) == -signal.SIGKILL


def test_waiting_for_a_program_has_a_limit() -> None:
    with start(["sleep", "600"]) as child, pytest.raises(Unavailable, match="still runs"):
        child.wait(0.01)


def test_a_program_that_no_longer_reads_is_reported_when_it_is_spoken_to() -> None:
    with start(["true"]) as child:
        child.wait(20)
        with pytest.raises(Unavailable, match="takes no input"):
            child.send(b"hello")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1]
    except (ProcessLookupError, FileNotFoundError):
        return False
