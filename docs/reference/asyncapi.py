"""The AsyncAPI 3.0 document: the table of topics and the message types, for machines."""
# ruff: noqa: INP001  (beside the document that it makes, not in a package)

import json
from importlib.metadata import version
from typing import Any

import msgspec

from bus.cloudevents import headers
from bus.codec import encode, to_json
from bus.messages import TELEMETRY_TYPES
from bus.samples import Samples
from bus.topics import TOPICS, Topic
from docs.reference.topics_page import ABOUT, CLUSTER, golden, partitions
from runtime.clock import Instant

_BINDING = "0.5.0"
_TELEMETRY = {kind.__name__: kind for kind in TELEMETRY_TYPES}
_BLOCKS = {
    "type": "array",
    "minItems": 2,
    "maxItems": 2,
    "description": "two MessagePack bin: the names block (MessagePack: an array of strings, metric "
    "and device in turn) and the values block (one little-endian float64 for each pair)",
}


def document() -> dict[str, Any]:
    """Return the document."""
    names = dict.fromkeys(name for topic in TOPICS.values() for name in topic.carries)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "farside",
            "version": version("farside"),
            "description": "Streaming anomaly detection for GPU clusters: what travels over Kafka.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "127.0.0.1:9092",
                "protocol": "kafka",
                "description": "your brokers: [bus.kafka] bootstrap",
            },
        },
        "channels": {topic.short: _channel(topic) for topic in TOPICS.values()},
        "operations": dict(pair for topic in TOPICS.values() for pair in _operations(topic)),
        "components": {"messages": {name: _message(name) for name in names}},
    }


def _channel(topic: Topic) -> dict[str, Any]:
    config = topic.config(3)
    kept = {"cleanup.policy": [config["cleanup.policy"]]}
    numbers = {
        name: int(config[name]) for name in ("retention.ms", "max.message.bytes") if name in config
    }
    return {
        "address": topic.name,
        "description": ABOUT[topic.short],
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in topic.carries},
        "bindings": {
            "kafka": {
                # 0 stands for one partition for each cell: at least one.
                "partitions": topic.partitions or 1,
                "replicas": 3,
                "topicConfiguration": kept | numbers,
                "bindingVersion": _BINDING,
            },
        },
        "x-key": topic.key,
        "x-partitions": partitions(topic),
        "x-written-by": topic.writer,
        "x-read-by": list(topic.readers),
    }


def _operations(topic: Topic) -> list[tuple[str, dict[str, Any]]]:
    channel = {"$ref": f"#/channels/{topic.short}"}
    return [
        (
            f"write_{topic.short}",
            {"action": "send", "channel": channel, "summary": f"written by {topic.writer}"},
        ),
        (
            f"read_{topic.short}",
            {
                "action": "receive",
                "channel": channel,
                "summary": f"read by {', '.join(topic.readers)}",
            },
        ),
    ]


def _message(name: str) -> dict[str, Any]:
    message = golden(name)
    carried = dict(headers(message, encode(message), CLUSTER, "ROLE@NODE"))
    fixed = ("ce_specversion", "ce_type", "content-type")
    found: dict[str, Any] = {
        "name": f"farside.{name}.v{message.version}",
        "title": name,
        "summary": (type(message).__doc__ or "").split("\n", maxsplit=1)[0],
        "contentType": carried["content-type"].decode(),
        "headers": {
            "type": "object",
            "properties": {
                key: {
                    "type": "string",
                    **({"const": carried[key].decode()} if key in fixed else {}),
                }
                for key in carried
            },
            "required": list(carried),
        },
        "payload": {"$ref": f"schemas/{name}.json"},
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": _BINDING}},
    }
    if name in _TELEMETRY:
        found["payload"] = _packed(_TELEMETRY[name])
    else:
        found["examples"] = [{"payload": json.loads(to_json(message))}]
    return found


def _packed(kind: type) -> dict[str, Any]:
    """Return the schema of what MessagePack has, where it differs from the JSON form."""
    _, components = msgspec.json.schema_components(
        [kind], schema_hook=_special, ref_template="#/components/schemas/{name}"
    )
    found: dict[str, Any] = components[kind.__name__]
    return found


def _special(kind: type) -> dict[str, Any]:
    if kind is Instant:
        return {"type": "integer", "description": "nanoseconds since 1970-01-01T00:00:00Z"}
    if kind is Samples:
        return _BLOCKS
    raise NotImplementedError(f"{kind.__name__} has no schema")
