"""Writes a golden file for each message type that has none, or has got fields since its newest.

It never overwrites one: NAME.v1 is what the first release wrote, NAME.v1.2 the next form.
"""

# ruff: noqa: E402  (the path has to be set before the imports)

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from bus.codec import encode, type_of
from tests.unit.bus.examples import EXAMPLES

for message in EXAMPLES:
    name = f"{type_of(message)}.v1"
    there = sorted(Path(__file__).parent.glob(f"{name}*"))
    if not there:
        Path(__file__).with_name(name).write_bytes(encode(message))
    elif there[-1].read_bytes() != encode(message):
        Path(__file__).with_name(f"{name}.{len(there) + 1}").write_bytes(encode(message))
