"""One process of the demo: `python -m farside.demo.child KIND --json PARAMS`.

It waits for one line "go MONOTONIC_SECONDS" on standard input and then follows its curve by that
clock (CLOCK_MONOTONIC is the same for all processes of a machine). Private memory is mapped as
private anonymous pages and written to, page by page, so that the kernel really has to give them;
freeing unmaps them, so that resident memory and VmData both go down. File pages come from a file
that is written, mapped shared and read, so that the page cache and RssFile grow and nothing else.

It prints nothing, except one line on standard error when something ends it early.

Exit codes: 0 standard input was closed (the parent is done or gone), 1 its file can't be written,
2 it was started wrongly, 12 it met its RLIMIT_DATA (12 is the number of ENOMEM), 28 the disk was
full (28 is the number of ENOSPC).

A parent that dies takes it along (SIGKILL). "Parent" means the thread that started it: start it
from a thread that lives as long as the demo.

Standard library only: a process of 10 MB that starts in a few hundredths of a second leaves the
figures to its curve.
"""

import ctypes
import errno
import json
import mmap
import os
import select
import signal
import sys
import time

from farside.demo.curves import KINDS, Curve

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_AT_LIMIT = errno.ENOMEM
EXIT_DISK_FULL = errno.ENOSPC

STEP_S = 0.05
PAGE = mmap.PAGESIZE
# Memory moves in pieces of 16 pages: 64 KiB is far below what shows in a sample, and a piece that
# is unmapped alone really goes back.
PIECE = 16 * PAGE
_TOUCH = bytes([1]) * (PIECE // PAGE)

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_THP_DISABLE = 41


class PrivateMemory:
    """Private anonymous memory that holds as many bytes as it is told to."""

    def __init__(self) -> None:
        self._pieces: list[mmap.mmap] = []

    def hold(self, size_bytes: int) -> None:
        """Grow or shrink to `size_bytes`, rounded to whole pieces; `OSError` ENOMEM at a limit."""
        wanted = round(size_bytes / PIECE)
        while len(self._pieces) < wanted:
            piece = mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            piece[::PAGE] = _TOUCH
            self._pieces.append(piece)
        while len(self._pieces) > wanted:
            self._pieces.pop().close()


class FilePages:
    """A file whose pages stay in the page cache and in this process's map.

    Its name is removed as soon as it is open: whatever ends the process, nothing stays on the disk.
    """

    def __init__(self, folder: str, size_bytes: int) -> None:
        path = f"{folder}/.farside-demo-{os.getpid()}"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)  # noqa: PTH108  # pathlib would double what this process loads
        whole = -(-max(size_bytes, 1) // PIECE) * PIECE
        os.ftruncate(self._file, whole)
        self._map = mmap.mmap(self._file, whole, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        self._held = 0

    def hold(self, size_bytes: int) -> None:
        """Write on until the file has `size_bytes`, and touch the new pages; it never shrinks."""
        end = min(size_bytes // PIECE * PIECE, len(self._map))
        block = b"\x5a" * PIECE
        while self._held < end:
            os.pwrite(self._file, block, self._held)
            _ = self._map[self._held : self._held + PIECE : PAGE]
            self._held += PIECE


def dress(name: str) -> None:
    """Take the name of an ordinary workload, die with the parent, and do without huge pages.

    With transparent huge pages a touched page may cost two megabytes, and the figures would show
    the kernel's generosity instead of the curve.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def await_go() -> float | None:
    """Return the common start by the monotonic clock; None when standard input ends before it."""
    words = sys.stdin.buffer.readline().split()
    if len(words) == 2 and words[0] == b"go":
        return float(words[1])
    return None


def follow(curve: Curve, start_s: float, folder: str) -> None:
    """Hold what the curve says until standard input is closed.

    After a stall (a busy machine, a freeze that was lifted) it catches up at once: the curve is a
    function of the clock, so the plan's times stay true.
    """
    private = PrivateMemory()
    pages = FilePages(folder, curve.size_bytes) if folder and curve.file_bytes(1e9) else None
    while True:
        # the plan's own clock, shared with the parent; no record is made of it
        at_s = time.monotonic() - start_s
        private.hold(curve.private_bytes(max(at_s, 0.0)))
        if pages is not None:
            pages.hold(curve.file_bytes(at_s))
        ready, _, _ = select.select([0], [], [], STEP_S)
        if ready and not os.read(0, 4096):
            return


def complain(sentence: str) -> None:
    """Say why it ends, without needing memory for it."""
    os.write(2, sentence.encode())


def read_params(kind: str, text: str) -> tuple[str, Curve, str]:
    """Return (comm name, curve, folder) from PARAMS; `ValueError` says what can't be used.

    PARAMS is one JSON object: name (the comm name), curve (the fields of `Curve` but its kind) and,
    for the page cache, folder (where its file may lie).
    """
    try:
        params = json.loads(text)
        curve = Curve(kind=kind, **params["curve"])
        return str(params["name"]), curve, str(params.get("folder", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"PARAMS can't be used: {error!r}") from None


def main(arguments: list[str]) -> int:
    """Run one process of the demo; return its exit code."""
    if len(arguments) != 3 or arguments[0] not in KINDS or arguments[1] != "--json":
        complain("usage: python -m farside.demo.child KIND --json PARAMS\n")
        return EXIT_USAGE
    try:
        name, curve, folder = read_params(arguments[0], arguments[2])
    except ValueError as error:
        complain(f"{error}\n")
        return EXIT_USAGE
    # made now: at its limit there may be no memory left to make a sentence
    at_limit = f"{name}: out of memory, the limit of its data is reached; it ends here\n"
    dress(name)
    start_s = await_go()
    try:
        if start_s is not None:
            follow(curve, start_s, folder)
    except MemoryError:
        complain(at_limit)
        return EXIT_AT_LIMIT
    except OSError as error:
        complain(at_limit if error.errno == errno.ENOMEM else f"{name}: {error}\n")
        return error.errno if error.errno in {EXIT_AT_LIMIT, EXIT_DISK_FULL} else EXIT_FAILED
    return EXIT_DONE


if __name__ == "__main__":
    # os._exit: at its limit an interpreter may lack the memory to shut down in good order
    os._exit(main(sys.argv[1:]))
