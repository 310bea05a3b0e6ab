"""What stands on the page of a node: its memory, all its incidents, and what runs on it."""

from collections.abc import Iterator, Mapping

from farside.view.figures import Span, node_figure
from farside.view.markup import Child, Html, el
from farside.view.page_incident import headline
from farside.view.paper import clock, foot, small
from farside.view.plots import Mark
from farside.view.snapshot import Event
from farside.view.story import NodeStory


def node_sentence(found: NodeStory) -> str:
    """Return how the node is, in one sentence."""
    ill = any(case.incident.state != "closed" for case in found.cases)
    state = found.health.state if found.health else ("suspect" if ill else "healthy")
    why = found.health.sentence if found.health else ""
    return f"{found.node} is {state}" + (f": {why}" if why else "")


def node_parts(found: NodeStory, versions: Mapping[str, str] | None) -> Iterator[Child]:
    """Return the parts of a node's page from top to bottom."""
    yield el(
        "header",
        el("p", "Node ", el("b", found.node), class_="kicker"),
        el("h1", node_sentence(found)),
        el("p", _node_words(found), class_="lead"),
    )
    span = _node_span(found)
    if span is not None:
        yield _node_figure(found, span)
    yield _incident_list(found)
    yield _node_way(found)
    if span is not None:
        yield _things_of_node(found, span)
    yield foot(versions)


def _node_words(found: NodeStory) -> str:
    count = len(found.cases)
    incidents = "no incident" if not count else f"{count} incident{'s' if count > 1 else ''}"
    return f"{incidents}; {len(found.rows)} scopes are watched on it."


def _node_span(found: NodeStory) -> Span | None:
    held = [one.held for one in (found.curve, *found.curves) if one is not None and one.held]
    if not held:
        return None
    return Span(min(points[0][0] for points in held), max(points[-1][0] for points in held))


def _node_figure(found: NodeStory, span: Span) -> Html | None:
    if found.curve is None:
        return None
    opened = [
        Mark(
            int(case.incident.opened), f"incident: {case.incident.scope.kind}", "incident critical"
        )
        for case in found.cases
    ]
    inside = [mark for mark in opened if span.low_ns <= mark.at <= span.high_ns]
    figure = node_figure(found.curve, span, inside)
    if figure is None:
        return None
    return el(
        "section",
        el("h2", "Its memory"),
        el("p", "What the kernel can't take back, with file pages above it."),
        el("figure", figure, class_="figure"),
    )


def _incident_list(found: NodeStory) -> Html:
    if not found.cases:
        return el("section", el("h2", "Incidents"), el("p", "None is known."))
    head = el("tr", el("th", "Opened"), el("th", "State"), el("th", "What"))
    rows = (
        el(
            "tr",
            el("td", f"{case.incident.opened.text()[:10]} {clock(case.incident.opened)}"),
            el("td", case.incident.state),
            el("td", headline(case), el("span", case.incident.id, class_="sub id")),
        )
        for case in sorted(found.cases, key=lambda case: case.incident.opened, reverse=True)
    )
    table = el("table", el("thead", head), el("tbody", rows))
    return el("section", el("h2", "Incidents"), el("div", table, class_="wide"))


def _node_way(found: NodeStory) -> Html | None:
    if not found.events:
        return None
    return el(
        "section",
        el("h2", "What happened lately"),
        el("p", "Times are UTC."),
        el("ol", map(_event, found.events[-40:]), class_="way"),
    )


def _event(event: Event) -> Html:
    return el(
        "li",
        el("time", clock(event.time), datetime=event.time.text()),
        el("span", event.kind, class_=event.level),
        el("span", event.text),
    )


def _things_of_node(found: NodeStory, span: Span) -> Html | None:
    if not found.curves:
        return None
    return el(
        "section",
        el("h2", "What runs on it"),
        el("p", "Over the same time, each against its own limit, those that matter most first."),
        el("div", (small(one, span) for one in found.curves), class_="beside small"),
    )
