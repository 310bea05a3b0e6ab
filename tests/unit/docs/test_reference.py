"""docs/reference by its content: a stranger gets on with what the pages say.

That the pages are what docs/reference/make.py writes is held by tests/architecture/test_docs.py.
"""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import msgspec
import pytest

from bus.cloudevents import headers
from bus.codec import encode, type_of
from bus.messages import TELEMETRY_TYPES, Message
from bus.topics import TOPICS
from docs.reference.topics_page import golden
from tests.unit.bus.examples import EXAMPLES

REFERENCE = Path(__file__).parents[3] / "docs/reference"
PAGE = (REFERENCE / "topics.md").read_text("utf-8")
DOCUMENT = json.loads((REFERENCE / "asyncapi.json").read_bytes())
BY_TYPE = {type_of(one): one for one in EXAMPLES}


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's code, with another decoder of MessagePack under the name that it imports."""
    stand_in = ModuleType("msgpack")
    stand_in.unpackb = msgspec.msgpack.decode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "msgpack", stand_in)
    spec = importlib.util.spec_from_file_location("reading", REFERENCE / "read_telemetry.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_code_of_the_page_reads_a_batch(reading: ModuleType) -> None:
    batch = BY_TYPE["SampleBatch"]
    found = reading.read(encode(batch))
    assert found["samples"] == [tuple(sample) for sample in batch.samples]  # type: ignore[union-attr]
    assert (found["node"], found["time"]) == ("gpu-0421", 1796040000123456789)


@pytest.mark.parametrize("kind", ["LogLine", "Tick"])
def test_the_code_of_the_page_reads_what_has_no_samples(kind: str, reading: ModuleType) -> None:
    assert reading.read(encode(BY_TYPE[kind]))["type"] == kind


def test_the_page_shows_the_code_and_the_bytes_of_the_golden_record() -> None:
    text = (REFERENCE / "read_telemetry.py").read_text("utf-8").split("\n", maxsplit=1)[1]
    assert text.rstrip() in PAGE
    hexadecimal = re.sub(r"(?<=[0-9a-f])\n(?=[0-9a-f])", "", PAGE)
    assert encode(golden("SampleBatch")).hex() in hexadecimal


def test_a_consumer_of_incidents_takes_ten_lines() -> None:
    block = next(text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


def test_every_topic_has_a_section_with_an_example_that_is_a_message() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    found = {}
    for section in sections:
        name = section.split("\n", maxsplit=1)[0]
        example = re.search(r"```json\n(.*?)```", section, re.DOTALL)
        if name in TOPICS and example:
            found[name] = json.loads(example[1])["type"]
    assert set(found) == set(TOPICS)
    assert all(kind in TOPICS[name].carries for name, kind in found.items())


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def resolved(reference: str) -> Any:  # noqa: ANN401  # whatever stands there
    file, _, place = reference.partition("#")
    found = json.loads((REFERENCE / file).read_bytes()) if file else DOCUMENT
    for name in filter(None, place.split("/")):
        found = found[name]
    return found


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    assert all(resolved(one) for one in set(references(DOCUMENT)))


def test_the_asyncapi_document_has_every_topic_with_all_that_it_carries() -> None:
    channels = {one["address"]: tuple(one["messages"]) for one in DOCUMENT["channels"].values()}
    assert channels == {topic.name: topic.carries for topic in TOPICS.values()}


@pytest.mark.parametrize("message", EXAMPLES, ids=type_of)
def test_a_record_fits_what_the_asyncapi_document_says_of_it(message: Message) -> None:
    said = DOCUMENT["components"]["messages"][type_of(message)]
    record = encode(message)
    carried = {name: text.decode() for name, text in headers(message, record, "c", "collect@n1")}
    jsonschema.validate(carried, said["headers"])
    payload = said["payload"]
    if isinstance(message, TELEMETRY_TYPES):
        jsonschema.validate(msgspec.msgpack.decode(record), payload)
    else:
        jsonschema.validate(json.loads(record), resolved(payload["$ref"]))
    assert said["contentType"] == carried["content-type"]
