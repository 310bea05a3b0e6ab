"""What every test shares: how chance is drawn, and who may open a socket."""

import os
from pathlib import Path

import hypothesis
import pytest
import pytest_socket

TESTS = Path(__file__).parent

# In CI a run must not fail by the luck of the draw; at a desk each run looks at new examples.
hypothesis.settings.register_profile("desk", deadline=None, max_examples=40)
hypothesis.settings.register_profile(
    "ci", hypothesis.settings.get_profile("desk"), derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests under wire/ and those marked `loopback` open sockets, and no others."""
    for item in items:
        if item.path.is_relative_to(TESTS / "wire"):
            item.add_marker("loopback")
        if item.get_closest_marker("loopback"):
            item.add_marker("enable_socket")


@pytest.fixture(autouse=True)
def _sockets_stay_on_this_machine(request: pytest.FixtureRequest) -> None:
    """Of those that may open sockets, none connects to another machine.

    pytest-socket lifts its restrictions itself, after each test.
    """
    if request.node.get_closest_marker("loopback"):
        pytest_socket.socket_allow_hosts(["127.0.0.1", "::1"], allow_unix_socket=True)
