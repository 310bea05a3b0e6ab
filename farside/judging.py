"""What one file says about who and where we are, judged before anything is started.

Types judge single values (runtime.settings); here is what needs more than one of them, or a
sentence of its own. Nothing here needs numpy: a node with the agent alone judges its file as well.
"""

import difflib
import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from bus.messages import EXECUTORS_OF, Fault
from farside.local import NAME as SOCKET
from farside.settings import EXECUTORS, Identity, Settings, chosen

NAME_CHARACTERS_MAX = 100  # names stand in file names, topics' keys and sentences
NODE_CHARACTERS_MAX = 253  # as long as a host's name in full
SOCKET_BYTES_MAX = 107  # the kernel's bound for the path of a Unix socket
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")


def mistakes(settings: Settings) -> Iterator[str]:
    """Yield a sentence with key and remedy for each thing that can't work."""
    identity = settings.farside
    yield from _no_name("farside.cluster", identity.cluster, NAME_CHARACTERS_MAX)
    yield from _no_name("farside.cell", identity.cell, NAME_CHARACTERS_MAX)
    where = "farside.node" if identity.node else "farside.node (not set, so the host's own name)"
    yield from _no_name(where, identity.node_name(), NODE_CHARACTERS_MAX)
    for key, path in (("farside.state_dir", identity.state_dir), ("farside.root", identity.root)):
        if path and not path.startswith("/"):
            yield f"{key} must be an absolute path, not {path[:60]!r}: begin it with /"
    if identity.root and not Path(identity.root, "proc").is_dir():
        yield (
            f"farside.root: there is no folder {identity.root[:60]}/proc: name the folder below "
            "which the host's /proc and /sys are mounted"
        )
    yield from _faults(settings)
    yield from _cells(settings)
    yield from _no_socket(settings)
    if settings.http.enabled:
        yield from _no_address(settings.http.address)


def limits(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each thing that comes to less than it seems to say."""
    cells, cell = settings.bus.cells, settings.farside.cell
    if cells and cell not in cells and cell == Identity().cell:
        yield f"an agent needs farside.cell, one of bus.cells ({', '.join(cells)}): it is not set"
    enabled = chosen(settings.execute, EXECUTORS)
    for fault, pools in settings.act.items():
        for pool, rule in pools.items():
            section = f"[act.{fault}.{pool}]"
            for action in rule.actions:
                knowing = EXECUTORS_OF[action]
                if action == "release":
                    yield f"release in {section} does nothing: it is for people to ask for"
                elif knowing and not (set(knowing) & set(enabled) - {"dry_run"}):
                    others = " or ".join(f"[execute.{name}]" for name in knowing[:-1])
                    said = "is only rehearsed" if "dry_run" in enabled else "is refused"
                    yield f"{action} in {section} {said}: {others} would carry it out"


def no_folder(folder: Path) -> str:
    """Return why a folder can't be used for state, "" where it can (or can be made)."""
    there = folder
    try:
        while not there.exists():
            there = there.parent
        if not there.is_dir():
            return f"{there} is a file, not a folder"
        if not os.access(there, os.W_OK | os.X_OK):
            return f"{there} is not writable"
    except OSError as error:
        return f"{there}: {(error.strerror or 'it is out of reach').lower()}"
    return ""


def _no_name(key: str, name: str, most: int) -> Iterator[str]:
    if not name:
        yield f"{key} is empty: write a name, or leave the key out"
    elif len(name) > most:
        yield f"{key} has {len(name)} characters: write a name of at most {most}"
    elif not _NAME.fullmatch(name):
        yield (
            f"{key} is no name: {name[:60]!r} must be letters, digits, '.', '_' and '-' alone and "
            "begin with a letter or a digit"
        )


def _faults(settings: Settings) -> Iterator[str]:
    known = get_args(Fault)
    for fault in settings.act:
        if fault not in known:
            close = difflib.get_close_matches(fault, known, 1)
            hint = f"did you mean act.{close[0]}? " if close else ""
            yield f"act.{fault[:60]} is no fault that is known: {hint}(known: {', '.join(known)})"


def _cells(settings: Settings) -> Iterator[str]:
    for cell in settings.bus.cells:
        yield from _no_name(f"bus.cells.{cell[:60]}", cell, NAME_CHARACTERS_MAX)
    cell = settings.farside.cell
    if settings.bus.cells and cell not in {*settings.bus.cells, Identity().cell}:
        known = ", ".join(settings.bus.cells)
        yield (
            f"bus.cells names no cell {cell!r}, which farside.cell is (known: {known}): add it "
            "there, or set farside.cell"
        )


def _no_socket(settings: Settings) -> Iterator[str]:
    path = settings.farside.state_path() / SOCKET
    if settings.bus.kind == "memory" and len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        yield (
            f"farside.state_dir is too long: the path of the socket in it, {SOCKET}, may have "
            f"{SOCKET_BYTES_MAX} bytes: name a folder nearer to the root"
        )


def _no_address(address: str) -> Iterator[str]:
    host, colon, port = address.rpartition(":")
    if not address:
        yield "http.address is empty: 127.0.0.1 is for this machine alone, 0.0.0.0 for all"
    elif colon and port.isdecimal() and (_HOST.fullmatch(host) or "/" in host):
        yield f"http.address must be an address alone, not {address[:60]!r}: http.port has the port"
    elif _is_ipv6(address):
        yield f"http.address: {address!r} is of IPv6, and only IPv4 is served: write 127.0.0.1"
    elif not _is_ipv4(address) and (
        not _HOST.fullmatch(address) or address.replace(".", "").isdecimal()
    ):
        yield (f"http.address: {address[:60]!r} is no address: write one of IPv4, or a host's name")


def _is_ipv4(address: str) -> bool:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return True


def _is_ipv6(address: str) -> bool:
    try:
        ipaddress.IPv6Address(address.strip("[]"))
    except ValueError:
        return False
    return True
