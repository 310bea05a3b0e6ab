"""Runs the workers of a command until it is asked to end, with systemd kept informed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from farside.compose import Site
from farside.reloading import reloader
from farside.settings import Settings
from runtime.health import Systemd
from runtime.service import Service, Worker


def serve(
    site: Site,
    config: Path | None,
    workers: Sequence[Worker],
    judge: Callable[[Settings], object],
) -> None:
    """Run `workers` until a signal asks to end; `judge` judges the file again at SIGHUP.

    systemd is told of life only while every worker shows some.
    """
    systemd = Systemd(site.environ)
    service = Service(
        workers,
        site.clock,
        site.metrics,
        on_reload=reloader(config, site.settings, judge),
        on_ready=systemd.ready,
        on_stopping=systemd.stopping,
    )
    service.run(beat=lambda: site.health.alive().ok and systemd.watchdog())
