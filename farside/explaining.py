"""`explain` in words: what a terminal shows of an incident or of a node."""

from collections.abc import Sequence

import msgspec

from bus.codec import to_json
from bus.messages import Message
from farside.view.cases import Case, moments
from farside.view.page import incident_page, node_page
from farside.view.page_node import node_sentence
from farside.view.story import Story
from farside.view.terminal import clock_text, render_table


def explained(story: Story, name: str, *, as_json: bool = False) -> str:
    """Return the incident or node of this name in words, or as one line of JSON.

    Errors: `Rejected` where the story knows neither.
    """
    if name in story.nodes():
        return _node_json(story, name) if as_json else _node_words(story, name)
    case = story.incident(name)
    return _case_json(case) if as_json else _case_words(case)


def page_of(story: Story, name: str) -> str:
    """Return the page of the incident or node of this name; `Rejected` where neither is known."""
    return node_page(story, name) if name in story.nodes() else incident_page(story, name)


def _case_words(case: Case) -> str:
    incident = case.incident
    lines = [
        incident.sentence,
        "",
        render_table(
            [
                ("incident", incident.id),
                ("about", incident.scope.label),
                ("state", f"{incident.state}, {incident.severity}"),
            ],
        ),
        "",
        "what happened",
        *(f"  {clock_text(one.time)}  {one.text}" for one in moments(case, None)),
        "",
        "what speaks for it",
        *(f"  {part.nats:5.1f} nats  {part.text or part.signal}" for part in incident.evidence),
    ]
    return "\n".join(lines)


def _case_json(case: Case) -> str:
    parts: dict[str, Sequence[Message]] = {
        "incident": [case.incident],
        "history": case.history,
        "suspicions": case.suspicions,
        "commands": case.commands,
        "reports": case.reports,
        "refusals": case.refusals,
    }
    return msgspec.json.encode(
        {name: [msgspec.Raw(to_json(one)) for one in found] for name, found in parts.items()},
    ).decode()


def _node_words(story: Story, name: str) -> str:
    found = story.node(name)
    lines = [node_sentence(found)]
    for case in found.cases:
        lines += ["", _case_words(case)]
    return "\n".join(lines)


def _node_json(story: Story, name: str) -> str:
    found = story.node(name)
    health = msgspec.Raw(to_json(found.health)) if found.health else None
    cases = [msgspec.Raw(_case_json(case).encode()) for case in found.cases]
    return msgspec.json.encode({"node": name, "health": health, "incidents": cases}).decode()
