"""`farside topics`: what the topics are beside what they should be, and to make what is missing."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from bus.kafka import Admin, FoundTopic
from farside.compose import Site
from farside.options import bootstrap_option, config_option, json_option
from farside.provisioning import Plan, Step, as_values, lines_of, plan
from farside.roles import open_bus
from farside.settings import read_settings, with_bootstrap
from runtime.errors import FarsideError, Misconfigured, NotPermitted, Unavailable
from runtime.wait import wait_until

_SETTLES_S = 30.0


@click.command("topics")
@config_option
@json_option
@bootstrap_option
@click.option("--create", is_flag=True, help="Make and complete what may be; nothing shrinks.")
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=None,
    help="Copies of each topic (default: 3, or as many as there are brokers).",
)
def command(
    config: Path | None,
    bootstrap: str | None,
    replicas: int | None,
    *,
    as_json: bool,
    create: bool,
) -> int:
    """Show each topic, say what differs, and with --create make what is missing.

    Nothing is ever made smaller, made anew or deleted. Exit code 0: all is as it should be.
    1: something differs. 3: no broker answers, or this user may not ask.
    """
    settings = with_bootstrap(read_settings(config), bootstrap)
    site = Site(settings)
    bus = open_bus(site, "topics")
    try:
        copies = _copies(bus.admin, replicas)

        def look() -> Plan:
            return plan(bus.admin.find(), settings.bus.cells, copies, copies)

        found = look()
        if create and found.steps:
            refused = [*_made(bus.admin, found.steps, copies, tell_aside=as_json)]
            found = _settled(look)
            if found.steps and refused:
                raise refused[0]
        _show(bus.admin.find(), found, settings.bus.cells, as_json=as_json)
    except Unavailable as error:
        raise NotPermitted(str(error)) from None
    finally:
        bus.close()
    return 1 if found.differences else 0


def _copies(admin: Admin, wanted: int | None) -> int:
    brokers = admin.brokers()
    if wanted and wanted > brokers:
        there = "there is 1 broker" if brokers == 1 else f"there are {brokers} brokers"
        raise Misconfigured(f"--replicas {wanted}: {there}, and each holds one copy at most")
    return wanted or min(3, brokers)


def _made(
    admin: Admin, steps: list[Step], replicas: int, *, tell_aside: bool
) -> Iterator[FarsideError]:
    """Take the steps; give what was refused, which matters only if somebody else did not do it."""
    for step in steps:
        try:
            _take(admin, step, replicas)
        except FarsideError as error:
            yield error
        else:
            click.echo(f"{step.topic}: {_words(step)}", err=tell_aside)


def _settled(look: Callable[[], Plan]) -> Plan:
    """Return what is so once it is told everywhere, and new partitions have leaders."""
    with contextlib.suppress(Unavailable):
        wait_until(lambda: look().settled, _SETTLES_S, every_s=0.25)
    return look()


def _take(admin: Admin, step: Step, replicas: int) -> None:
    if step.make:
        admin.create(step.topic, step.partitions, replicas, step.config)
        return
    if step.partitions:
        admin.add_partitions(step.topic, step.partitions)
    if step.config:
        admin.alter_config(step.topic, step.config)


def _words(step: Step) -> str:
    if step.make:
        return f"made, partitions: {step.partitions}"
    did = [f"partitions: {step.partitions}"] if step.partitions else []
    return f"now {', '.join([*did, *(f'{key}={value}' for key, value in step.config.items())])}"


def _show(
    there: dict[str, FoundTopic], found: Plan, cells: dict[str, int], *, as_json: bool
) -> None:
    if as_json:
        click.echo(json.dumps(as_values(there, found, cells)))
        return
    for line in lines_of(there, found, cells):
        click.echo(line)
