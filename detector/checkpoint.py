"""Checkpoints: state and position in one file, so that they can't disagree.

A file has one line of header (format, what it belongs to, checksum of the rest) and a body. It is
written aside, synced and renamed; the one before is kept as second generation and used when the
newest is damaged. Until the new one is on disk for certain, both old ones stay as they are.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bus.transport import Place
from runtime.errors import NotPermitted, Unavailable
from runtime.files import write_atomically

FORMAT = 1


def unharmed(point: str) -> None:
    """Let the worker live (tests pass something that does not)."""


class Unusable(Exception):
    """A checkpoint that can't be used; the text says why."""


class Position(msgspec.Struct, frozen=True):
    """The next offset of one partition."""

    topic: str
    partition: int
    offset: int


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What the body is: whose state, under which settings, of which log, up to where."""

    format: int
    owner: str
    fingerprint: str
    log: str
    positions: tuple[Position, ...]
    checksum: str

    def places(self) -> dict[Place, int]:
        """Return the positions as a source takes them."""
        return {(p.topic, p.partition): p.offset for p in self.positions}


class Column(msgspec.Struct, frozen=True):
    """One array in the body."""

    dtype: str
    shape: tuple[int, ...]
    block: bytes


class Body(msgspec.Struct, frozen=True):
    """Plain values as bytes, and arrays by name."""

    plain: bytes
    arrays: dict[str, Column]


class Checkpoint(msgspec.Struct, frozen=True):
    """What was read back."""

    header: Header
    plain: bytes
    arrays: dict[str, Any]


class CheckpointFile:
    """Two generations of one owner's checkpoint in a folder."""

    def __init__(self, folder: Path, owner: str, fingerprint: str) -> None:
        """Use `folder/owner.ckpt`; `fingerprint` names the settings that shape the state."""
        self.path = folder / f"{owner}.ckpt"
        self._before = folder / f"{owner}.ckpt.1"
        self._aside = folder / f"{owner}.ckpt.new"
        self._owner = owner
        self._fingerprint = fingerprint

    def save(
        self,
        log: str,
        positions: dict[Place, int],
        plain: bytes,
        arrays: dict[str, NDArray[Any]],
        crash: Callable[[str], None] = unharmed,
    ) -> None:
        """Write a new generation; `crash("during save")` is called when it is complete but aside.

        Errors: `Unavailable` when the disk is full or fails, `NotPermitted` without the right.
        """
        body = msgspec.msgpack.encode(
            Body(plain, {name: _column(array) for name, array in arrays.items()}),
        )
        header = Header(
            format=FORMAT,
            owner=self._owner,
            fingerprint=self._fingerprint,
            log=log,
            positions=tuple(
                Position(topic, partition, offset)
                for (topic, partition), offset in sorted(positions.items())
            ),
            checksum=hashlib.sha256(body).hexdigest(),
        )
        write_atomically(self._aside, msgspec.json.encode(header) + b"\n" + body)
        crash("during save")
        try:
            self._take_over()
        except OSError as error:
            msg = f"{self.path} can't be replaced: {error.strerror}"
            raise (
                NotPermitted(msg) if isinstance(error, PermissionError) else Unavailable(msg)
            ) from None

    def _take_over(self) -> None:
        """Make the newest generation the one before, and what lies aside the newest."""
        if self.path.exists():
            self._before.unlink(missing_ok=True)
            self._before.hardlink_to(self.path)
        self._aside.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def load(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest usable generation, and a sentence for each that was not usable."""
        problems: list[str] = []
        for path in (self.path, self._before):
            try:
                return self._read(path), problems
            except FileNotFoundError:
                continue
            except (Unusable, OSError, msgspec.DecodeError, ValueError) as error:
                problems.append(f"{path} is not used: {error}")
        return None, problems

    def _read(self, path: Path) -> Checkpoint:
        line, _, body = path.read_bytes().partition(b"\n")
        header = msgspec.json.decode(line, type=Header)
        if header.format != FORMAT:
            msg = f"format {header.format}, this version reads {FORMAT}"
            raise Unusable(msg)
        if header.owner != self._owner:
            msg = f"it belongs to {header.owner}"
            raise Unusable(msg)
        if header.fingerprint != self._fingerprint:
            msg = "it was made under other settings of models or signals; starting afresh"
            raise Unusable(msg)
        if hashlib.sha256(body).hexdigest() != header.checksum:
            msg = "its checksum does not match: cut short or damaged"
            raise Unusable(msg)
        parts = msgspec.msgpack.decode(body, type=Body)
        return Checkpoint(
            header,
            parts.plain,
            {name: _array(column) for name, column in parts.arrays.items()},
        )


def fingerprint(*parts: object) -> str:
    """Return a short digest of settings (anything that msgspec encodes)."""
    encoded = msgspec.json.encode(parts, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:16]


def _column(array: NDArray[Any]) -> Column:
    return Column(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())


def _array(column: Column) -> NDArray[Any]:
    return np.frombuffer(column.block, np.dtype(column.dtype)).reshape(column.shape).copy()
