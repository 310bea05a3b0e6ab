"""The whole configuration: one TOML, its sections named after the plug-ins' files.

Nothing here needs numpy, so that a node with the agent alone can judge its file. The sections of
detection are kept as written and read by who needs them.
"""

import os
import platform
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from detector.deciding import ActRules
from runtime.errors import Misconfigured
from runtime.settings import Table, read

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]

COLLECTORS = ("memory", "cgroup", "process", "kernel_log")
EXECUTORS = ("dry_run",)
NOTIFIERS = ("console",)


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[farside]`: who and where we are.

    root: the folder below which /proc, /sys and /dev are read; in a container, where the host's are
    mounted (empty: this system's own).
    """

    cluster: str = "local"
    node: str = ""
    cell: str = "default"
    state_dir: str = ""
    root: str = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    def node_name(self) -> str:
        """Return the node's name: the setting, else the host's short name."""
        return self.node or platform.node().split(".", maxsplit=1)[0] or "localhost"

    def state_path(self) -> Path:
        """Return the folder for state: the setting, else one under the user's own state folder."""
        if self.state_dir:
            return Path(self.state_dir)
        if os.geteuid() == 0:
            return Path("/var/lib/farside")
        home = os.environ.get("XDG_STATE_HOME") or os.environ.get("HOME")
        if home:
            return Path(
                home, "farside" if "XDG_STATE_HOME" in os.environ else ".local/state/farside"
            )
        return Path(tempfile.gettempdir(), f"farside-{os.geteuid()}")


class BusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[bus]`: which bus; `[bus.kafka]` says how to reach Kafka.

    records_max and bytes_max bound each log of the bus inside one process. `[bus.cells]` names the
    partition of telemetry that each cell has; without it there is one cell, in partition 0.
    """

    kind: Literal["memory", "kafka"] = "memory"
    records_max: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 50_000
    bytes_max: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 40)] = 32 << 20
    kafka: Table = Table()
    cells: dict[str, Annotated[int, msgspec.Meta(ge=0, le=10_000)]] = {}

    def __post_init__(self) -> None:
        """Judge the table of cells: a partition belongs to one cell."""
        taken: dict[int, str] = {}
        for cell, partition in self.cells.items():
            if partition in taken:
                raise ValueError(
                    f"cells: {taken[partition]} and {cell} both name partition {partition}: "
                    "give each cell one of its own"
                )
            taken[partition] = cell

    def partition_of(self, cell: str) -> int:
        """Return the partition of a cell; `Misconfigured` where the table does not name it."""
        if not self.cells:
            return 0
        if cell not in self.cells:
            known = ", ".join(self.cells)
            raise Misconfigured(f"bus.cells names no cell {cell!r} (known: {known}): add it there")
        return self.cells[cell]

    def cell_of(self, partition: int, usual: str) -> str:
        """Return the cell of a partition; `usual` is the one cell where there is no table."""
        for cell, number in self.cells.items():
            if number == partition:
                return cell
        return usual if partition == 0 else f"{usual}-{partition}"


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[http]`: /metrics, /healthz and /readyz; off switches the server off."""

    enabled: bool = True
    address: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9820


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that one file says."""

    farside: Identity = Identity()
    bus: BusSettings = BusSettings()
    agent: Table = Table()
    collect: dict[str, Table] = {}
    models: dict[str, Table] = {}
    detect: Table = Table()
    decide: Table = Table()
    notifier: Table = Table()
    executor: Table = Table()
    act: ActRules = {}
    execute: dict[str, Table] = {}
    notify: dict[str, Table] = {}
    http: HttpSettings = HttpSettings()


def read_settings(path: Path | None) -> Settings:
    """Read the configuration file (none: the defaults) under the environment's overlay."""
    return read(path, Settings, os.environ)


def with_bootstrap(settings: Settings, bootstrap: str | None) -> Settings:
    """Return settings whose bus is Kafka at `bootstrap` (brokers, by commas); None: as they are."""
    if bootstrap is None:
        return settings
    given = settings.bus.kafka
    values = {**given.values, "bootstrap": [one.strip() for one in bootstrap.split(",")]}
    kafka = Table(values, given.place or "bus.kafka", given.file)
    bus = msgspec.structs.replace(settings.bus, kind="kafka", kafka=kafka)
    return msgspec.structs.replace(settings, bus=bus)


def chosen(sections: dict[str, Table], usual: tuple[str, ...]) -> dict[str, Table]:
    """Return the plug-ins to use: the usual ones and those with a section of their own.

    `enabled = false` in a section leaves that plug-in out.
    """
    names = {**dict.fromkeys(usual, Table()), **sections}
    used = {}
    for name, table in names.items():
        values = dict(table.values)
        enabled = values.pop("enabled", True)
        if not isinstance(enabled, bool):
            msg = f"{table.file or 'configuration'}: {table.place}.enabled must be true or false"
            raise Misconfigured(msg)
        if enabled:
            used[name] = Table(values, table.place, table.file)
    return used
