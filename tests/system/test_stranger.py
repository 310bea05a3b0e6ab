"""A program of somebody else reads what farside says: with docs/reference and a plain client alone.

What the stranger does is in the functions below; they import nothing of ours.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import msgspec  # any reader of MessagePack would do
import pytest
from kafka import KafkaConsumer, TopicPartition

from bus.messages import (
    Delivery,
    ExecutionReport,
    IsolationCommand,
    NodeHealth,
    Refusal,
    Watermark,
)
from bus.topics import COMMANDS, DELIVERIES, HEALTH, REPORTS, SUSPICIONS
from deploy.kafka.cluster import Cluster
from tests.system.processes import Fleet, Reading
from tests.system.telemetry import Nodes

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ROW = re.compile(r"\| \[?`(farside\.\w+)`[^|]*\| ([\w, ]+) \|", re.ASCII)
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
WAIT_S = 60.0


class Found(NamedTuple):
    """A record: its topic, and its message in the form of which the schemas speak."""

    topic: str
    key: str
    message: dict[str, Any]
    headers: dict[str, str]
    value: bytes


def topics_of_the_page() -> dict[str, list[str]]:
    """Return which types each topic carries, as topics.md says."""
    rows = ROW.findall((REFERENCE / "topics.md").read_text())
    return {name: carried.split(", ") for name, carried in rows}


def schema(kind: str) -> jsonschema.Draft202012Validator:
    found = json.loads((REFERENCE / "schemas" / f"{kind}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def telemetry(value: bytes) -> dict[str, Any]:
    """Return a message of farside.telemetry as JSON would have it."""
    message: dict[str, Any] = msgspec.msgpack.decode(value)
    whole_s, rest_ns = divmod(message["time"], 10**9)
    day = datetime.fromtimestamp(whole_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    message["time"] = f"{day}.{rest_ns:09d}Z"
    if "samples" in message:
        names_block, values_block = message["samples"]
        names = msgspec.msgpack.decode(names_block)
        values = struct.unpack(f"<{len(names) // 2}d", values_block)
        message["samples"] = [
            {"metric": metric, "device": device} | ({} if math.isnan(number) else {"value": number})
            for metric, device, number in zip(names[::2], names[1::2], values, strict=True)
        ]
    return message


def read(bootstrap: list[str], topics: list[str]) -> Iterator[Found]:
    """Give everything that these topics hold now."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        for topic in topics:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            end = consumer.end_offsets([place])[place]
            while consumer.position(place) < end:
                for records in consumer.poll(timeout_ms=500).values():
                    yield from (found(topic, record) for record in records)
    finally:
        consumer.close()


def found(topic: str, record: Any) -> Found:  # noqa: ANN401  # the client has no types
    headers = {name: content.decode() for name, content in record.headers}
    packed = headers["content-type"] == "application/msgpack"
    message = telemetry(record.value) if packed else json.loads(record.value)
    return Found(topic, record.key.decode(), message, headers, record.value)


# --- what there is to be read --------------------------------------------------------------------

DETECT = """
[act.gpu_off_bus.default]
actions = ["drain"]
dry_run = true
[decide]
held_percent = 100.0
burst = 1
acts_per_hour = 1.0
"""


@pytest.fixture(scope="module")
def said(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    kafka.heal()
    kafka.renew_topics()
    with Fleet(tmp_path_factory.mktemp("stranger"), kafka.bootstrap) as fleet:
        for role, toml in (("detect", DETECT), ("execute", ""), ("notify", "")):
            fleet.role(role, toml=toml)
        with (
            Nodes(fleet.bus("nodes"), ["gpu-01", "gpu-02"]) as nodes,
            Reading(fleet, SUSPICIONS, COMMANDS, REPORTS, HEALTH, DELIVERIES) as reading,
        ):
            reading.wait_for(Watermark, 3, WAIT_S)
            nodes.fail("gpu-01", "0000:3b:00.0")
            reading.wait_for(IsolationCommand, 1, WAIT_S)
            nodes.fail("gpu-02", "0000:3b:00.0")  # one act an hour: this one is refused
            reading.wait_for(Refusal, 1, WAIT_S)
            reading.wait_for(ExecutionReport, 1, WAIT_S)
            reading.wait_for(Delivery, 1, WAIT_S)
            reading.wait_for(NodeHealth, 2, WAIT_S)
    return list(read(kafka.bootstrap, list(topics_of_the_page())))


def test_everything_that_is_said_fits_the_schema_of_its_type(said: list[Found]) -> None:
    for one in said:
        schema(one.message["type"]).validate(one.message)
    assert {one.message["type"] for one in said} >= {
        "SampleBatch", "LogLine", "Tick", "Suspicion", "Watermark", "Incident", "NodeHealth",
        "IsolationCommand", "Refusal", "ExecutionReport", "Delivery",
    }  # fmt: skip


def test_every_topic_carries_what_the_page_says(said: list[Found]) -> None:
    carried = topics_of_the_page()
    assert [
        (one.topic, one.message["type"])
        for one in said
        if one.message["type"] not in carried[one.topic]
    ] == []


def test_times_are_written_as_the_page_says(said: list[Found]) -> None:
    times = [
        one.message[name]
        for one in said
        for name in ("time", "opened", "updated", "issued", "expires", "since", "finished")
        if isinstance(one.message.get(name), str)
    ]
    assert times
    assert [one for one in times if not MOMENT.fullmatch(one)] == []


def test_headers_tell_what_a_record_is(said: list[Found]) -> None:
    for one in said:
        kind = one.message["type"]
        assert one.headers["ce_type"] == f"farside.{kind}.v1"
        assert one.headers["ce_id"] == hashlib.sha256(one.value).hexdigest()[:16]
        assert one.headers["ce_cluster"] == "test"


def test_an_incident_leads_to_its_command_its_report_and_its_node(said: list[Found]) -> None:
    messages = [one.message for one in said]
    incident = next(
        one for one in messages if one["type"] == "Incident" and one["scope"]["node"] == "gpu-01"
    )
    command = next(
        one
        for one in messages
        if one["type"] == "IsolationCommand" and one["incident"] == incident["id"]
    )
    reports = [one for one in messages if one["type"] == "ExecutionReport"]
    assert {(one["command"], one["outcome"]) for one in reports} == {(command["id"], "done")}
    health = [one for one in said if one.topic == "farside.health" and one.key == "gpu-01"]
    assert incident["id"] in health[-1].message["incidents"]


def test_readings_are_what_the_node_sent(said: list[Found]) -> None:
    batches = [one.message for one in said if one.message["type"] == "SampleBatch"]
    assert {one["node"] for one in batches} == {"gpu-01", "gpu-02"}
    assert batches[0]["samples"][0] == {"metric": "memory_total_bytes", "device": "", "value": 64e9}
