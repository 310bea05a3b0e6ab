"""Reading a machine's /proc and /sys from a root that a test can replace, and writing safely."""

import errno
import fcntl
import os
from pathlib import Path

from runtime.errors import Misconfigured, NotPermitted, Unavailable


class Absent(Unavailable):
    """The file or folder is not there (any more)."""


class Unreadable(Unavailable):
    """The file is there, but this user may not read it or the kernel refuses to."""


class SysTree:
    """The kernel's files below `root` (`/` in life, a captured or composed tree in tests).

    Paths are given absolute, as on the real machine: `tree.read_text("/proc/meminfo")`.
    Errors: `Absent` and `Unreadable`, both `Unavailable`.
    """

    def __init__(self, root: Path | str = "/") -> None:
        """Remember the root."""
        self.root = Path(root)
        self._prefix = str(self.root).rstrip("/")

    def path(self, path: str) -> str:
        """Return where `path` really lies."""
        return self._prefix + path

    def read_bytes(self, path: str, limit: int = 1 << 20) -> bytes:
        """Return at most `limit` bytes of the file."""
        try:
            descriptor = os.open(self._prefix + path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _explained(path, error) from None
        try:
            chunks = []
            left = limit
            while left > 0:
                chunk = os.read(descriptor, min(left, 1 << 16))
                if not chunk:
                    break
                chunks.append(chunk)
                left -= len(chunk)
            return b"".join(chunks)
        except OSError as error:
            raise _explained(path, error) from None
        finally:
            os.close(descriptor)

    def read_text(self, path: str, limit: int = 1 << 20) -> str:
        """Return at most `limit` bytes of the file as text; what is no UTF-8 shows as U+FFFD."""
        return self.read_bytes(path, limit).decode("utf-8", "replace")

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, in no order."""
        try:
            return os.listdir(self._prefix + path)  # noqa: PTH208  # each poll pays for it
        except OSError as error:
            raise _explained(path, error) from None

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder (links are not followed)."""
        try:
            with os.scandir(self._prefix + path) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            raise _explained(path, error) from None

    def exists(self, path: str) -> bool:
        """Tell whether something is there."""
        return os.path.lexists(self._prefix + path)

    def inode(self, path: str) -> int:
        """Return the inode number: the identity of a cgroup for as long as it lives."""
        try:
            return os.stat(self._prefix + path).st_ino  # noqa: PTH116
        except OSError as error:
            raise _explained(path, error) from None

    def readlink(self, path: str) -> str:
        """Return where a symbolic link points to."""
        try:
            return os.readlink(self._prefix + path)  # noqa: PTH115
        except OSError as error:
            raise _explained(path, error) from None

    def write_text(self, path: str, text: str) -> None:
        """Write to a kernel file (a cgroup's control file) in one call."""
        try:
            descriptor = os.open(self._prefix + path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _explained(path, error) from None


def _explained(path: str, error: OSError) -> Unavailable:
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV}:
        return Absent(f"{path} is not there")
    return Unreadable(f"{path}: {os.strerror(error.errno or 0).lower()}")


def take_lock(path: Path) -> int:
    """Make the folder of `path`, take the lock beside it, and return its descriptor.

    The kernel frees the lock when the descriptor is closed, at the latest with its process.
    Errors: `Misconfigured` when another process has it, `NotPermitted` and `Unavailable` when the
    folder can't be used.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritten(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise Misconfigured(
            f"another farside uses {path}: give each one a state_dir of its own"
        ) from None
    return descriptor


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write aside, sync, rename: after a crash the file is either the old or the new one.

    Errors: `Unavailable` when the disk is full or fails, `NotPermitted` when it may not be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        aside.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise _unwritten(path, error) from None


def _unwritten(path: Path, error: OSError) -> NotPermitted | Unavailable:
    reason = os.strerror(error.errno or 0).lower()
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return NotPermitted(
            f"{path} can't be written ({reason}): give this user the right to its folder"
        )
    return Unavailable(
        f"{path} can't be written ({reason}): make room or set another state_dir",
        retry_after_s=10.0,
    )
