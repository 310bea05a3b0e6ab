"""Starting other programs: the only place that does, always with an argument list, never a shell.

Errors: `Misconfigured` when the program is not installed, `NotPermitted` when this user may not
start it, `Unavailable` when the machine can't start it now or it gives no answer in time.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple, Self

from runtime.errors import FarsideError, Misconfigured, NotPermitted, Unavailable

# Where a started program's output goes: nowhere, into a pipe to read from, to where ours goes.
Output = Literal["discard", "pipe", "inherit"]
_PLACES: Mapping[Output, int | None] = {
    "discard": subprocess.DEVNULL,
    "pipe": subprocess.PIPE,
    "inherit": None,
}


class Finished(NamedTuple):
    """How a program ended: exit code (negative: the signal that ended it) and what it printed."""

    code: int
    out: str
    err: str


def run(
    argv: Sequence[str],
    timeout_s: float,
    input: bytes | None = None,  # noqa: A002  # the word that everybody knows from the library
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Finished:
    """Run a program to its end and return its exit code and output (UTF-8, else U+FFFD).

    It runs in a process group of its own; when `timeout_s` seconds are over the whole group is
    killed, so nothing that it started outlives it. `env` replaces the whole environment. A code
    other than 0 is no error here: the caller knows what it means.
    """
    child = _start(
        argv,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        own_group=True,
    )
    try:
        out, err = child.communicate(input, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{argv[0]} gave no answer within {timeout_s:g} s") from None
    finally:
        if child.returncode is None:
            _abandon(child)
    out_text, err_text = (text.decode("utf-8", "replace") for text in (out, err))
    return Finished(child.returncode, out_text, err_text)


class Running:
    """A program that was started and may still run; as a context manager it is ended at the exit.

    With `own_group` its signals reach everything that it started, too.
    """

    def __init__(self, child: subprocess.Popen[bytes], *, own_group: bool) -> None:
        self._child = child
        self._own_group = own_group

    @property
    def pid(self) -> int:
        """Its process id; of no use once `poll` has told an exit code."""
        return self._child.pid

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe to its standard input; `close` it to say "no more"."""
        if self._child.stdin is None:
            raise ValueError("started with stdin=False")
        return self._child.stdin

    def send(self, text: bytes) -> None:
        """Write to its standard input at once; `Unavailable` when it no longer reads."""
        try:
            self.stdin.write(text)
            self.stdin.flush()
        except OSError as error:
            raise Unavailable(f"process {self.pid} takes no input: {_why(error)}") from None

    def lines(self) -> Iterator[str]:
        """Yield what it prints, line by line without the line's end, until it closes its output."""
        if self._child.stdout is None:
            raise ValueError('started without output="pipe"')
        for line in self._child.stdout:
            yield line.decode("utf-8", "replace").rstrip("\n")

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal that ended it), None while it runs."""
        return self._child.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return the exit code; `Unavailable` when it runs on."""
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"process {self.pid} still runs after {timeout_s:g} s") from None

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens once `poll` or `wait` has told its end."""
        _signal(self._child, number, group=self._own_group)

    def kill(self) -> None:
        """End it at once; `wait` tells when it is gone."""
        self.signal(signal.SIGKILL)

    def stop(self, grace_s: float = 2.0) -> int:
        """Ask it to end, kill it after `grace_s` seconds, return its exit code, close the pipes."""
        try:
            if self._child.stdin is not None:
                with contextlib.suppress(OSError):
                    self._child.stdin.close()
            self.signal(signal.SIGTERM)
            try:
                return self._child.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()
                return self._child.wait()
        finally:
            if self._child.stdout is not None:
                self._child.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    argv: Sequence[str],
    *,
    stdin: bool = True,
    output: Output = "discard",
    errors: Literal["discard", "inherit", "output"] = "inherit",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    own_group: bool = False,
) -> Running:
    """Start a program and return at once.

    `stdin` gives it a pipe (else it reads nothing); a program that ends when that pipe closes
    can't outlive us. `output` is where its standard output goes, `errors` where its standard
    error goes ("output": to the same place). `own_group` keeps the terminal's Ctrl-C from it.
    """
    return Running(
        _start(
            argv,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=_PLACES[output],
            stderr=subprocess.STDOUT if errors == "output" else _PLACES[errors],
            env=env,
            cwd=cwd,
            own_group=own_group,
        ),
        own_group=own_group,
    )


def _start(
    argv: Sequence[str],
    *,
    stdin: int,
    stdout: int | None,
    stderr: int | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    own_group: bool,
) -> subprocess.Popen[bytes]:
    if isinstance(argv, str) or not argv:
        raise ValueError("a program is started with a list of arguments, its name first")
    try:
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
            process_group=0 if own_group else None,
        )
    except OSError as error:
        raise _not_started(argv[0], cwd, error) from None


def _not_started(program: str, cwd: Path | None, error: OSError) -> FarsideError:
    if cwd is not None and not cwd.is_dir():
        return Misconfigured(f"{program} can't be started in {cwd}: no such folder")
    if isinstance(error, FileNotFoundError):
        return Misconfigured(f"{program} is not installed or not on the PATH: install it")
    if isinstance(error, PermissionError):
        return NotPermitted(f"{program} may not be started by this user: {_why(error)}")
    return Unavailable(f"{program} can't be started now: {_why(error)}")


def _signal(child: subprocess.Popen[bytes], number: int, *, group: bool) -> None:
    """Signal a child or its whole group; not once its end was seen: the id may be another's."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(child.pid, number)


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill a child's group without waiting for one that even SIGKILL does not reach.

    A process that waits for a dead file system ends only when that answers; whoever called must
    not wait with it. The next start of a program collects it.
    """
    _signal(child, signal.SIGKILL, group=True)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1.0)


def _why(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()
