"""Every role in one process over the in-process bus: what `farside up` and the demo run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from bus.memory import MemoryBus
from bus.topics import TOPICS
from farside.compose import Site, build_collect, build_execute, build_notify, make_folder
from farside.detecting import build_decider, build_scorer
from farside.explaining import explained, page_of
from farside.local import Ask, LocalServer
from farside.parts import Parts
from farside.recording import Recorder
from farside.view.story import Story
from farside.watching import Watcher
from runtime.clock import Clock
from runtime.errors import FarsideError, Misconfigured, Rejected
from runtime.health import HttpServer
from runtime.service import Worker


@dataclass
class Assembly:
    """Everything that `up` runs, in the order of its start."""

    bus: MemoryBus
    story: Story
    workers: list[Worker]
    notes: list[str]
    port: int | None


def build_up(site: Site, stream: TextIO, record: Path | None = None) -> Assembly:
    """Return every role in one process over the in-process bus.

    Errors: `Misconfigured`, `NotPermitted`, each with the sentence that mends it.
    """
    settings = site.settings
    if settings.bus.kind != "memory":
        raise Misconfigured(
            'farside up has a bus of its own in one process; with [bus] kind = "kafka" start '
            "farside collect, detect, execute and notify"
        )
    make_folder(site.state_dir)
    bus = MemoryBus(site.clock, settings.bus.records_max, settings.bus.bytes_max)
    parts = Parts(settings)
    # Readers are made before anything writes, so that each sees the log from its beginning.
    story = Story(about=site.about())
    workers: list[Worker] = [Watcher(story, bus.source(list(TOPICS)))]
    if record is not None:
        workers.append(Recorder(record, bus.source(list(TOPICS))))
    tellers, mute = build_notify(site, bus, stream)
    executor, cannot = build_execute(site, bus)
    scorer = build_scorer(site, bus, parts, settings.farside.cell)
    workers += [*tellers, executor, scorer, build_decider(site, bus, parts)]
    agent, blind = build_collect(site, bus.sink())
    workers.append(agent)
    servers = _servers(site, story)
    workers += servers
    port = next((server.port for server in servers if isinstance(server, HttpServer)), None)
    return Assembly(bus, story, workers, [*blind, *cannot, *mute], port)


def _servers(site: Site, story: Story) -> list[HttpServer | LocalServer]:
    """Return what listens; where one can't, the other gives its place back."""
    http = site.settings.http
    servers: list[HttpServer | LocalServer] = []
    if http.enabled:
        servers.append(HttpServer(http.address, http.port, site.metrics, site.health))
    try:
        servers.append(LocalServer(site.state_dir, answers(story, site.clock)))
    except FarsideError:
        for server in servers:
            server.close()
        raise
    return servers


class Answers(Protocol):
    """What a local server asks."""

    def __call__(self, question: Ask) -> str:
        """Answer one question."""


def answers(story: Story, clock: Clock) -> Answers:
    """Return the function that answers `top` and `explain`."""

    def answer(question: Ask) -> str:
        if question.want == "alive":
            return "yes"
        if question.want == "snapshot":
            return story.snapshot(clock.now()).to_json().decode()
        if question.want in {"explain", "explain-json"}:
            return explained(story, question.name, as_json=question.want == "explain-json")
        if question.want == "page":
            return page_of(story, question.name)
        msg = f"no answer to {question.want[:40]!r}"
        raise Rejected(msg)

    return answer
