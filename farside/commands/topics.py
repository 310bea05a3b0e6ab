"""`farside topics`: what the topics are beside what they should be, and to make what is missing."""

import json
from pathlib import Path

import click

from bus.kafka import Admin
from bus.topics import TOPICS
from farside.compose import Site
from farside.options import bootstrap_option, config_option, json_option
from farside.provisioning import Plan, Step, plan
from farside.roles import open_bus
from farside.settings import read_settings, with_bootstrap
from runtime.errors import NotPermitted, Unavailable


@click.command("topics")
@config_option
@json_option
@bootstrap_option
@click.option("--create", is_flag=True, help="Make and complete what may be; nothing shrinks.")
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=None,
    help="Copies of new topics (default: 3, or as many as there are brokers).",
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

    Exit code 0: all is as it should be. 1: something differs. 3: no broker answers.
    """
    settings = with_bootstrap(read_settings(config), bootstrap)
    bus = open_bus(Site(settings), "topics")
    try:
        copies = replicas or min(3, bus.admin.brokers())
        found = plan(bus.admin.find(), settings.bus.cells, copies, replicas or 0)
        if create and found.steps:
            for step in found.steps:
                _take(bus.admin, step, copies)
                click.echo(f"{step.topic}: {_words(step)}", err=as_json)
            found = plan(bus.admin.find(), settings.bus.cells, copies, replicas or 0)
        _show(bus.admin, found, as_json=as_json)
    except Unavailable as error:
        raise NotPermitted(str(error)) from None
    finally:
        bus.close()
    return 1 if found.differences else 0


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


def _show(admin: Admin, found: Plan, *, as_json: bool) -> None:
    there = admin.find()
    if as_json:
        told = {
            "topics": [one._asdict() for one in there.values() if one.name in TOPICS],
            "differences": [one._asdict() for one in found.differences],
        }
        click.echo(json.dumps(told))
        return
    width = max(len(name) for name in TOPICS)
    for topic in TOPICS.values():
        one = there.get(topic.name)
        kept = f"kept {topic.retention_h} h" if topic.retention_h else "compacted"
        shape = f"partitions {one.partitions}, copies {one.replicas}, {kept}" if one else "missing"
        click.echo(f"{topic.name:<{width}}  {shape}")
    for difference in found.differences:
        remedy = " (--create mends it)" if difference.mends else ""
        click.echo(f"{difference.topic}: {difference.what}{remedy}")
    if not found.differences:
        click.echo("all topics are as they should be")
