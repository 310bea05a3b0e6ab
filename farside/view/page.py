"""The page of an incident, and that of a node: one HTML file that needs nothing but a browser."""

from collections.abc import Mapping

from farside.view.cases import Truth
from farside.view.page_incident import headline, incident_parts
from farside.view.page_node import node_parts, node_sentence
from farside.view.paper import page
from farside.view.story import Story


def incident_page(
    story: Story,
    incident_id: str,
    truth: Truth | None = None,
    versions: Mapping[str, str] | None = None,
) -> str:
    """Return the page of an incident.

    `truth` is what a demo knows from outside; `versions` names what else ran, beside farside.
    Errors: `Rejected` where the story knows no such incident.
    """
    case = story.incident(incident_id)
    return page(headline(case), *incident_parts(case, truth, versions))


def node_page(story: Story, node: str, versions: Mapping[str, str] | None = None) -> str:
    """Return the page of a node: all its incidents, and what runs on it.

    Errors: `Rejected` where the story knows nothing of it.
    """
    found = story.node(node)
    return page(node_sentence(found), *node_parts(found, versions))
