"""`farside explain INCIDENT|NODE`: the page of an incident or a node, as the demo writes it."""

from pathlib import Path

import click

from bus.records import Broken, lines_of, load
from farside.explaining import explained, page_of
from farside.local import Ask, ask
from farside.options import back_option, bootstrap_option, config_option, json_option
from farside.settings import Settings, read_settings, with_bootstrap
from farside.view.story import Story
from runtime.errors import Misconfigured, NotPermitted


@click.command("explain")
@click.argument("name", metavar="INCIDENT|NODE")
@config_option
@bootstrap_option
@back_option
@json_option
@click.option("--from", "record", type=click.Path(path_type=Path), help="Use a record file.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the page to this file.")
def command(
    name: str,
    config: Path | None,
    bootstrap: str | None,
    back_s: float,
    record: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> int:
    """Explain an incident or a node: in words here, with all plots as a page.

    Where the bus is Kafka the topics are read; else the farside that runs on this machine is asked.
    """
    if record is not None:
        return _explain(_told(record), name, html, as_json=as_json)
    settings = with_bootstrap(read_settings(config), bootstrap)
    if settings.bus.kind == "kafka":
        return _explain(_read(settings, name, back_s), name, html, as_json=as_json)
    folder = settings.farside.state_path()
    if html is not None:
        _write(html, ask(folder, Ask(want="page", name=name)))
    click.echo(ask(folder, Ask(want="explain-json" if as_json else "explain", name=name)))
    return 0


def _explain(story: Story, name: str, html: Path | None, *, as_json: bool) -> int:
    if html is not None:
        _write(html, page_of(story, name))
    click.echo(explained(story, name, as_json=as_json))
    return 0


def _read(settings: Settings, name: str, back_s: float) -> Story:
    from farside import topics_view
    from farside.compose import Site

    with topics_view.opened(Site(settings), "explain", back_s) as view:
        view.begin_about(name)
        for note in view.notes:
            click.echo(note, err=True)
        return view.story


def _told(record: Path) -> Story:
    story = Story()
    try:
        with record.open("rb") as file:
            for found in load(lines_of(file)):
                if isinstance(found, Broken):
                    click.echo(f"line {found.line}: {found.reason}: {found.detail}", err=True)
                else:
                    story.see(found)
    except OSError as error:
        msg = f"{record} can't be read: {(error.strerror or '').lower()}"
        raise Misconfigured(msg) from None
    return story


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        msg = f"{path} can't be written ({(error.strerror or '').lower()}): name another file"
        raise NotPermitted(msg) from None
    click.echo(f"page written to {path}", err=True)
