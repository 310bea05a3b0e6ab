"""Messages keep their bytes and their JSON form, release after release."""

import json
from pathlib import Path
from typing import get_args

import jsonschema
import msgspec
import pytest

from bus.codec import decode, encode, to_json, type_of
from bus.messages import Message
from bus.schema import schemas
from tests.unit.bus.examples import EXAMPLES

GOLDEN = Path(__file__).parents[2] / "golden" / "messages"


def test_there_is_an_example_of_every_type() -> None:
    """A type without a golden file could change unseen."""
    assert {type_of(one) for one in EXAMPLES} == {kind.__name__ for kind in get_args(Message)}


def golden(message: Message) -> list[Path]:
    """All golden files of a type, as released: NAME.v1, then NAME.v1.2 and so on."""
    return sorted(GOLDEN.glob(f"{type_of(message)}.v1*"))


@pytest.mark.parametrize("message", EXAMPLES, ids=type_of)
def test_golden_bytes_decode_to_the_same_message(message: Message) -> None:
    """What an older version wrote is read for ever; what it did not know has its default."""
    for file in golden(message):
        known = msgspec.structs.asdict(decode(file.read_bytes()))
        told = {name: getattr(message, name) for name in json_fields(file, message)}
        assert {name: known[name] for name in told} == told


def json_fields(file: Path, message: Message) -> list[str]:
    """The fields that a golden file holds."""
    reader = msgspec.json if file.read_bytes().startswith(b"{") else msgspec.msgpack
    fields = reader.decode(file.read_bytes())
    return [name for name in fields if hasattr(message, name)]


@pytest.mark.parametrize("message", EXAMPLES, ids=type_of)
def test_encoding_gives_the_newest_golden_bytes(message: Message) -> None:
    """A new optional field is a new golden file beside the old one, never another old one."""
    assert encode(message) == golden(message)[-1].read_bytes()


@pytest.mark.parametrize("message", EXAMPLES, ids=type_of)
def test_the_json_form_comes_back_as_the_same_message(message: Message) -> None:
    """`up --record` and `replay` lose nothing."""
    assert decode(to_json(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=type_of)
def test_the_json_form_fits_the_published_schema(message: Message) -> None:
    """A stranger who validates against docs/reference accepts what we write."""
    jsonschema.validate(json.loads(to_json(message)), schemas()[type_of(message)])
