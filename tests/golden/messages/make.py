"""Writes a golden file for each message type that has none; never overwrites one."""

# ruff: noqa: E402  (the path has to be set before the imports)

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from bus.codec import encode, type_of
from tests.unit.bus.examples import EXAMPLES

for message in EXAMPLES:
    path = Path(__file__).with_name(f"{type_of(message)}.v1")
    if not path.exists():
        path.write_bytes(encode(message))
