"""`farside check`: judge configuration and permissions; starts nothing, changes nothing."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from bus.kafka.settings import Settings as KafkaSettings
from collectors.agent import Settings as AgentSettings
from executors.worker import Settings as ExecutorSettings
from farside import judging
from farside.options import config_option, json_option
from farside.settings import COLLECTORS, EXECUTORS, NOTIFIERS, Settings, chosen, read_settings
from notifiers.worker import Settings as NotifierSettings
from runtime import plugins
from runtime.clock import SystemClock
from runtime.errors import FarsideError, Misconfigured, NotPermitted
from runtime.files import SysTree
from runtime.settings import Table, plugin_settings, written


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
    settings = read_settings(config)
    used: dict[str, msgspec.Struct] = {}
    found = [
        *_identity(settings, config),
        *_roles(settings, used),
        *_plugins(settings, used),
        *_detection(settings, used),
    ]
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
    kept = ("agent", "detect", "decide", "executor", "notifier")
    whole = {name: Table(place=name) for name in kept if name in used}
    bus = settings.bus
    if "bus.kafka" in used:
        bus = msgspec.structs.replace(bus, kafka=Table(place="bus.kafka"))
    return written(msgspec.structs.replace(settings, bus=bus, **named, **whole), used)


def _identity(settings: Settings, config: Path | None) -> Iterator[Finding]:
    identity = settings.farside
    wrong = list(judging.mistakes(settings))
    for sentence in wrong:
        yield Finding("configuration", f"{config or 'environment'}: {sentence}", 2)
    if not wrong:
        place = f"{identity.node_name()} in cell {identity.cell} of {identity.cluster}"
        yield Finding("node", place)
    folder = identity.state_path()
    problem = judging.no_folder(folder)
    if problem:
        remedy = "set [farside] state_dir to a folder of this user"
        yield Finding("state_dir", f"{folder} can't be used, {problem}: {remedy}", 3)
    else:
        made = "" if folder.exists() else " (will be made)"
        yield Finding("state_dir", f"{folder}{made}")
    rules = [
        f"{', '.join(rule.actions)} for {fault} in pool {pool}"
        for fault, pools in settings.act.items()
        for pool, rule in pools.items()
        if rule.actions
    ]
    yield Finding("acting", "; ".join(rules) or "off everywhere")
    if not wrong:
        for sentence in judging.limits(settings):
            yield Finding("configuration", sentence, limits=True)


def _roles(settings: Settings, used: dict[str, msgspec.Struct]) -> Iterator[Finding]:
    """Judge the sections of what runs beside the plug-ins, whether or not they say anything."""
    sections: list[tuple[str, Table, type[msgspec.Struct]]] = [
        ("agent", settings.agent, AgentSettings),
        ("executor", settings.executor, ExecutorSettings),
        ("notifier", settings.notifier, NotifierSettings),
    ]
    if settings.bus.kind == "kafka" or settings.bus.kafka.values:
        kafka = settings.bus.kafka
        placed = Table(kafka.values, kafka.place or "bus.kafka", kafka.file)
        sections.append(("bus.kafka", placed, KafkaSettings))
    for about, table, kind in sections:
        try:
            used[about] = plugin_settings(table, kind)
        except Misconfigured as error:
            yield Finding(about, str(error), 2)


def _plugins(settings: Settings, used: dict[str, msgspec.Struct]) -> Iterator[Finding]:
    tree = SysTree(settings.farside.root or "/")
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
    from farside.agreeing import contradictions  # both need numpy
    from farside.parts import Parts

    try:
        parts = Parts(settings)
    except Misconfigured as error:
        yield Finding("detection", str(error), 2)
        return
    agent = used.get("agent")
    sentences = list(contradictions(parts, agent)) if isinstance(agent, AgentSettings) else []
    for sentence in sentences:
        yield Finding("detection", sentence, 2)
    if not sentences:
        yield Finding("detection", "ready")
    used |= {"detect": parts.scoring, "decide": parts.deciding}
    for field in msgspec.structs.fields(type(parts.models)):
        used[f"models.{field.name}"] = getattr(parts.models, field.name)
