"""The page of topics: made from bus/topics.py, the message types and the golden records."""
# ruff: noqa: INP001  (beside the page that it makes, not in a package)

import json
from pathlib import Path

from bus.cloudevents import headers, time_of
from bus.codec import decode, encode, to_json, type_of
from bus.messages import TELEMETRY_TYPES, Message
from bus.topics import TOPICS, Topic

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "tests/golden/messages"
CLUSTER = "main"
_TELEMETRY = tuple(kind.__name__ for kind in TELEMETRY_TYPES)

# What a reader can't see from the table: what a topic is for, and what to know when reading it.
ABOUT = {
    "telemetry": "What nodes measure and what their logs say, raw. The records of one node lie in "
    "one partition, in the order of their `sequence` (counted anew from each `start` of the agent, "
    "batches and lines together). (node, boot, start, sequence) names a record: one that comes "
    "again is a repeat, a number that never comes was lost. `[bus.cells]` says which partition a "
    "cell has. A Tick has the cell as its key.",
    "suspicions": "What the scorers think of each scope, and how far they have judged: "
    "`head_time` of a Watermark minus its `time` is how far detection lags behind the log. "
    "`source` is the telemetry record (partition, offset) after which it was said: within a cell "
    "what has an older `source` than a record before it is a repeat after a crash.",
    "incidents": "What is wrong, told at each change: the record with the same `id` that stands "
    "last is how it is now. Not seeing is an incident too: `scope.kind` cell with `fault` "
    "telemetry.",
    "commands": "What shall be done, what waits for a person (Proposal), and what was refused and "
    "why. `expires` ends a command: never act on one later. Where there is no incident, the key of "
    "a Refusal is its own `id`.",
    "health": "How each node is now: the last record of each key counts.",
    "audit": "Everything that was decided or said about acting, once more, kept for a year. The "
    "key is the incident's id; for a directive its scope, for a report on an unknown command the "
    "command's id.",
    "reports": "What became of each command: the last record of each key counts.",
    "inventory": "What the scheduler knows of nodes and jobs.",
    "directives": "What people say. Whoever may write here speaks for people.",
    "deliveries": "Who was told of what, and whether it arrived.",
    "rejects": "Records, or parts of them, that a reader could not use: why, and their first "
    "bytes (base64).",
}


def page(made: str) -> str:
    """Return the page; `made` is the line that says by what."""
    parts = [_HEAD.format(made=made), _table(), _HOW.format(
        incidents=_code("read_incidents.py"),
        telemetry=_code("read_telemetry.py"),
        headers=_headers(),
        without=", ".join(name for name in _types() if time_of(golden(name)) is None),
        raw=_hex(encode(golden("SampleBatch"))),
        names=_hex(golden("SampleBatch").samples.layout.names),  # type: ignore[union-attr]
        values=_hex(golden("SampleBatch").samples.values),  # type: ignore[union-attr]
        read=_read(),
        fields=_fields(),
    )]  # fmt: skip
    shown: set[str] = set()
    for topic in TOPICS.values():
        example = next((name for name in topic.carries if name not in shown), topic.carries[0])
        shown.add(example)
        parts.append(_section(topic, example))
    return "\n".join(parts)


def golden(name: str) -> Message:
    """Return the golden message of a type."""
    return decode((GOLDEN / f"{name}.v1").read_bytes())


def kept(topic: Topic) -> str:
    """Return for how long a topic keeps its records, in words."""
    if not topic.retention_h:
        return "the last of each key"
    days, hours = divmod(topic.retention_h, 24)
    return f"{topic.retention_h} h" if hours or days == 1 else f"{days} days"


def partitions(topic: Topic) -> str:
    """Return how many partitions a topic has, in words."""
    return str(topic.partitions or "one for each cell")


def _types() -> list[str]:
    return list(dict.fromkeys(name for topic in TOPICS.values() for name in topic.carries))


def _table() -> str:
    rows = [
        f"| [`{topic.name}`](#{topic.name.replace('.', '')}) | {', '.join(topic.carries)} | "
        f"{topic.key} | {partitions(topic)} | {kept(topic)} | "
        f"{topic.writer} | {', '.join(topic.readers)} |"
        for topic in TOPICS.values()
    ]
    head = "| topic | carries | key | partitions | kept | written by | read by |"
    return "\n".join([head, "|" + "---|" * 7, *rows, ""])


def _section(topic: Topic, example: str) -> str:
    types = ", ".join(
        f"{name} ([schema](schemas/{name}.json), [bytes](../../tests/golden/messages/{name}.v1))"
        for name in topic.carries
    )
    config = ", ".join(
        f"`{name}={value}`" for name, value in topic.config(3).items() if "timestamp" not in name
    )
    form = " (here in its JSON form)" if example in _TELEMETRY else ""
    return "\n".join(
        [
            f"## {topic.name}",
            "",
            ABOUT[topic.short],
            "",
            f"- written by: {topic.writer}; read by: {', '.join(topic.readers)}",
            f"- key: {topic.key}; partitions: {partitions(topic)}; kept: {kept(topic)}",
            f"- with three brokers: {config}",
            f"- carries: {types}",
            "",
            f"A record's value, {example}{form}:",
            "",
            "```json",
            json.dumps(json.loads(to_json(golden(example))), indent=2, ensure_ascii=False),
            "```",
            "",
        ],
    )


def _code(name: str) -> str:
    lines = (HERE / name).read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("# ruff:"))


def _headers() -> str:
    found = headers(golden("Incident"), encode(golden("Incident")), CLUSTER, "detect@head-1")
    return "\n".join(f"{name}: {value.decode()}" for name, value in found)


def _hex(block: bytes) -> str:
    text = block.hex()
    return "\n".join(text[at : at + 96] for at in range(0, len(text), 96))


def _read() -> str:
    batch = golden("SampleBatch")
    assert type_of(batch) == "SampleBatch"  # noqa: S101  # its golden file is one
    return "\n".join(f"{sample!r}," for sample in map(tuple, batch.samples))  # type: ignore[union-attr]


def _fields() -> str:
    """Return the fields of the types of telemetry, with what MessagePack has for them."""
    rows = [
        f"| {kind.__name__} | {name} | {_FORMS.get(name, 'str')} |"
        for kind in TELEMETRY_TYPES
        for name in ("type", *kind.__struct_fields__)
    ]
    return "\n".join(rows)


_FORMS = {
    "type": "str: the type's name",
    "sequence": "int",
    "time": "int: nanoseconds since 1970-01-01T00:00:00Z",
    "jobs": "array of str",
    "samples": "array of two bin: names block, values block",
    "fields": "map of str to str",
    "version": "int: 1",
}

_HEAD = """# Topics

{made}

Everything that farside says and hears travels over these topics. All are open to other programs:
this page is enough to read them with a plain Kafka client. [asyncapi.json](asyncapi.json) says the
same as an AsyncAPI 3.0 document; `farside topics` compares a cluster with this table, and
`farside consume incidents --follow` shows a topic in words.
"""

_HOW = """## Reading with a plain client

```
pip install "kafka-python[crc32c,lz4,zstd]" msgpack
```

The producers compress with zstd by default, so any client needs zstd. Incidents in ten lines:

```python
{incidents}
```

The same works for every topic whose messages are JSON: all but `farside.telemetry`.

- **Value**: the message alone, without an envelope. Its `type` names the schema; `version` is 1.
- **Key**: UTF-8 text, see the table. All records of one key lie in one partition, in order. The
  partition is the cell's in telemetry and 0 elsewhere, never a hash of the key.
- **Timestamp**: when the log took the record (LogAppendTime), in milliseconds.
- **JSON**: UTF-8, one object. All fields are present; `null` says that there is no value. Times are
  RFC 3339 with nine decimals and Z. Names and units of signals: [signals](signals.md).
- **MessagePack**: a map of the same field names, see below.
- **Repeats**: delivery is at least once. After a crash a record may be written again: incidents,
  commands and refusals with the same value and therefore the same `ce_id`.
- **Later versions** only add optional fields: pass over what you do not know, and types that you do
  not know. A new meaning gets a new `version`.
- **Scope** (`scope` in many messages): `kind` is one of fleet, cell, rack, switch, pool, job, node,
  gpu, port, disk, container, step, process; `cell`, `node` and `name` are empty where they say
  nothing.

### Headers

Each record has the headers of CloudEvents 1.0 in Kafka's binary mode, as UTF-8 text. Those of the
example under [farside.incidents](#farsideincidents):

```
{headers}
```

| header | what |
|---|---|
| `ce_specversion` | 1.0 |
| `ce_id` | the first 16 hexadecimal digits of the value's SHA-256: same content, same id |
| `ce_source` | `/farside/CLUSTER/ROLE@NODE`: who wrote it |
| `ce_type` | `farside.TYPE.vVERSION` |
| `ce_cluster` | the cluster's name (our extension) |
| `content-type` | `application/json` or `application/msgpack` |
| `ce_time` | the moment of which the message speaks, RFC 3339; absent for {without} |

### Telemetry

The values of `farside.telemetry` are MessagePack. Each is one map from field names to values:

| type | field | MessagePack |
|---|---|---|
{fields}

`samples` is an array of two binary blocks, which belong together:

1. the **names block** is itself MessagePack: an array of 2n strings, metric and device in turn (the
   device of what belongs to the node as a whole is empty);
2. the **values block** is n IEEE 754 doubles of 8 bytes, little-endian, without any header: the
   k-th belongs to the k-th pair. NaN says that it could not be read.

There is no registry and no earlier record to know: each record can be read alone. A node's names
block rarely changes, so keep what you parsed under its bytes. Counters are raw and cumulative.

```python
{telemetry}
```

A record to try it with, in hexadecimal (its JSON form is the example under
[farside.telemetry](#farsidetelemetry)):

```
{raw}
```

Its names block, its values block, and its samples:

```
{names}
```

```
{values}
```

```
{read}
```
"""
