"""SIGHUP: the file is judged again; what can change live changes, the rest is named."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from farside.settings import Settings, read_settings
from runtime import logs


def reloader(
    config: Path | None, running: Settings, judge: Callable[[Settings], object]
) -> Callable[[], None]:
    """Return what a service calls at SIGHUP; its errors say what is wrong with the file.

    `judge` judges the sections that the running roles need.

    Live are the log's level and format. Of everything else that differs from the start it is said
    that it needs one: models, budgets and rights to act must not change under an open incident.
    """

    def reload() -> None:
        fresh = read_settings(config)
        judge(fresh)
        logs.set_up(fresh.farside.log_level, fresh.farside.log_format)
        waiting = changed(running, fresh)
        if waiting:
            logs.get().warning("changed in the file, needs a restart", sections=waiting)
        else:
            logs.get().info("reloaded, nothing else differs from what runs")

    return reload


def changed(before: Settings, after: Settings) -> list[str]:
    """Return the sections that differ, but for what changes live."""
    live = {"log_level": before.farside.log_level, "log_format": before.farside.log_format}
    same = msgspec.structs.replace(
        after,
        farside=msgspec.structs.replace(after.farside, **live),
    )
    names = [field.name for field in msgspec.structs.fields(Settings)]
    return [name for name in names if getattr(before, name) != getattr(same, name)]
