"""JSON Schemas of all messages, made from the types; docs/reference keeps them for readers."""

from typing import Any, get_args

import msgspec

from bus.messages import Message
from bus.samples import Samples
from runtime.clock import Instant

_SAMPLES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "metric": {"type": "string"},
            "device": {"type": "string"},
            "value": {"type": "number", "description": "absent: it could not be read"},
        },
        "required": ["metric"],
    },
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each message's JSON form, by the type's name."""
    found = {}
    for kind in get_args(Message):
        (reference,), components = msgspec.json.schema_components(
            [kind],
            schema_hook=_special,
            ref_template="#/$defs/{name}",
        )
        name = kind.__name__
        own = components.pop(name)
        own["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        own["title"] = name
        if components:
            own["$defs"] = components
        assert reference == {"$ref": f"#/$defs/{name}"}, reference  # noqa: S101  # msgspec's form
        found[name] = own
    return found


def _special(kind: type) -> dict[str, Any]:
    if kind is Instant:
        return {"type": "string", "format": "date-time"}
    if kind is Samples:
        return _SAMPLES
    msg = f"{kind.__name__} has no schema"
    raise NotImplementedError(msg)
