"""A program that acts on one command and dies at a named point of the act, for test_crashes.py.

Arguments: the folder of its ledger, the point ("" = it lives, and leaves without a clean stop), the
settings and the command, both as JSON.
"""

import os
import sys
from pathlib import Path

import msgspec

from bus.codec import decode
from bus.messages import IsolationCommand
from executors.process import Settings
from tests.unit.executors.machine import CLOCK, executor


def main() -> None:
    """Act, and die."""
    folder, point, settings, wish = sys.argv[1:]

    def at(reached: str) -> None:
        if reached == point:
            os._exit(9)

    command = decode(wish.encode())
    assert isinstance(command, IsolationCommand)
    acting = executor(Path(folder), msgspec.json.decode(settings, type=Settings), at=at)
    acting.act(command, CLOCK.now())
    os._exit(0)


if __name__ == "__main__":
    main()
