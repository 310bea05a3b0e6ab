"""`farside check`: judge configuration and permissions; starts nothing, changes nothing."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from collectors.agent import Settings as AgentSettings
from farside.options import config_option, json_option
from farside.settings import COLLECTORS, EXECUTORS, NOTIFIERS, Settings, chosen
from runtime import plugins
from runtime.clock import SystemClock
from runtime.errors import FarsideError, Misconfigured, NotPermitted
from runtime.files import SysTree
from runtime.settings import Table, plugin_settings, read, written


class Finding(NamedTuple):
    """One thing that was looked at: ok, a limitation ("note"), or wrong, with the exit code."""

    about: str
    text: str
    code: int = 0
    limits: bool = False


@click.command("check")
@config_option
@json_option
@click.option("--print", "show", is_flag=True, help="Show the effective configuration.")
def command(config: Path | None, *, as_json: bool, show: bool) -> int:
    """Judge the configuration and what this user may see and do; starts nothing.

    Exit code 0: it would run. 2: the configuration is wrong. 3: something needed is absent or not
    permitted. What merely can't be seen is told and is no failure.
    """
    settings = read(config, Settings, os.environ)
    used: dict[str, msgspec.Struct] = {}
    found = [*_identity(settings), *_plugins(settings, used), *_detection(settings, used)]
    worst = max(finding.code for finding in found)
    if as_json:
        rows = [
            {"about": one.about, "text": one.text, "ok": not one.code, "limits": one.limits}
            for one in found
        ]
        click.echo(msgspec.json.encode({"exit": worst, "findings": rows}).decode())
    else:
        for one in found:
            mark = "WRONG" if one.code else "note " if one.limits else "ok   "
            click.echo(f"{mark} {one.about}: {one.text}")
    if show:
        click.echo(_effective(settings, used))
    return worst


def _effective(settings: Settings, used: dict[str, msgspec.Struct]) -> str:
    """Return the configuration with everything that was left to its default."""
    sections = {
        section: {
            name.partition(".")[2]: Table(place=name) for name in used if name.startswith(section)
        }
        for section in ("collect.", "execute.", "notify.", "models.")
    }
    named = {section.rstrip("."): tables for section, tables in sections.items()}
    whole = {name: Table(place=name) for name in ("agent", "detect", "decide") if name in used}
    return written(msgspec.structs.replace(settings, **named, **whole), used)


def _identity(settings: Settings) -> Iterator[Finding]:
    identity = settings.farside
    yield Finding("node", f"{identity.node_name()} in cell {identity.cell} of {identity.cluster}")
    folder = identity.state_path()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        made = "" if there == folder else " (will be made)"
        yield Finding("state_dir", f"{folder}{made}")
    else:
        remedy = "set [farside] state_dir to a folder of this user"
        yield Finding("state_dir", f"{folder} can't be used, {there} is not writable: {remedy}", 3)
    rules = [
        f"{', '.join(rule.actions)} for {fault} in pool {pool}"
        for fault, pools in settings.act.items()
        for pool, rule in pools.items()
        if rule.actions
    ]
    yield Finding("acting", "; ".join(rules) or "off everywhere")


def _plugins(settings: Settings, used: dict[str, msgspec.Struct]) -> Iterator[Finding]:
    tree = SysTree()
    try:
        used["agent"] = plugin_settings(settings.agent, AgentSettings)
    except Misconfigured as error:
        yield Finding("agent", str(error), 2)
    for name, table in chosen(settings.collect, COLLECTORS).items():

        def blind(given: msgspec.Struct, name: str = name) -> list[str]:
            collector = plugins.load("collectors", name).build(given, tree)
            sentences: list[str] = collector.cannot_see()
            return sentences

        yield from _judged("collectors", "collect", name, table, used, blind)
    for name, table in chosen(settings.execute, EXECUTORS).items():

        def unable(given: msgspec.Struct, name: str = name) -> list[str]:
            from executors.base import Context  # only where executors are asked

            clock = SystemClock()
            context = Context(tree=tree, clock=clock, node=settings.farside.node_name())
            sentences: list[str] = plugins.load("executors", name).build(given, context).cannot()
            return sentences

        yield from _judged("executors", "execute", name, table, used, unable)
    for name, table in chosen(settings.notify, NOTIFIERS).items():
        yield from _judged("notifiers", "notify", name, table, used, lambda _: [])


def _judged(
    family: plugins.Family,
    section: str,
    name: str,
    table: Table,
    used: dict[str, msgspec.Struct],
    limits: Callable[[msgspec.Struct], list[str]],
) -> Iterator[Finding]:
    about = f"{section}.{name}"
    try:
        module = plugins.load(family, name)
        given = plugin_settings(table, module.Settings)
        used[about] = given
        sentences = limits(given)
    except (Misconfigured, NotPermitted) as error:
        yield Finding(about, str(error), 2 if isinstance(error, Misconfigured) else 3)
        return
    except FarsideError as error:
        sentences = [str(error)]
    yield Finding(about, "ready")
    for sentence in sentences:
        yield Finding(about, sentence, limits=True)


def _detection(settings: Settings, used: dict[str, msgspec.Struct]) -> Iterator[Finding]:
    if importlib.util.find_spec("numpy") is None:
        text = "not installed here (a node's agent needs none): pip install 'farside[detect]'"
        yield Finding("detection", text, limits=True)
        return
    from farside.parts import Parts  # needs numpy

    try:
        parts = Parts(settings)
    except Misconfigured as error:
        yield Finding("detection", str(error), 2)
        return
    yield Finding("detection", "ready")
    used |= {"detect": parts.scoring, "decide": parts.deciding}
    for field in msgspec.structs.fields(type(parts.models)):
        used[f"models.{field.name}"] = getattr(parts.models, field.name)
