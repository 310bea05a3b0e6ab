"""A folder on a real disk: file pages on tmpfs are private memory in disguise."""

import os
from collections.abc import Iterable
from pathlib import Path

from farside.demo.layout import mounts
from runtime.errors import Unavailable
from runtime.files import SysTree

# Their pages are not page cache: nothing but deleting the file gives them back.
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})


def usual_folders() -> list[Path]:
    """Return where the demo looks when it was not told: /var/tmp, here, and at home."""
    return [Path("/var/tmp"), Path.cwd(), Path.home()]  # noqa: S108  # a unique name, opened anew


def find_folder(tree: SysTree, wanted_bytes: int, folders: Iterable[Path]) -> tuple[str, list[str]]:
    """Return the first folder that lies on a disk with room to spare, and why the others don't do.

    "" where there is none. Room to spare is twice of what is wanted: a demo must not fill a disk.
    """
    why_not: list[str] = []
    for folder in folders:
        reason = _objection(tree, folder, wanted_bytes)
        if not reason:
            return str(folder), why_not
        why_not.append(f"{folder} {reason}")
    return "", why_not


def _objection(tree: SysTree, folder: Path, wanted_bytes: int) -> str:
    try:
        real = folder.resolve(strict=True)
        room = os.statvfs(real)
    except OSError as error:
        return f"can't be used ({os.strerror(error.errno or 0).lower()})"
    if not os.access(real, os.W_OK | os.X_OK):
        return "is not writable"
    kind = _kind(tree, str(real))
    if kind in _IN_MEMORY:
        return f"lies in memory ({kind})"
    if room.f_bavail * room.f_frsize < 2 * wanted_bytes:
        return "has too little room"
    return ""


def _kind(tree: SysTree, path: str) -> str:
    """Return the kind of file system that `path` lies on; "" where that can't be told."""
    try:
        found = mounts(tree)
    except Unavailable:
        return ""
    # the longest mount point above the path wins, the last of equals (it hides the others)
    best, kind = -1, ""
    for mount in found:
        point = mount.point.rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(point) >= best:
            best, kind = len(point), mount.kind
    return kind
