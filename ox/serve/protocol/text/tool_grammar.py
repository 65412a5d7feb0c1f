"""The grammar of calls of tools, in the formats of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.serve.protocol.text.json_schema import moved


def call_schema(offered: Mapping[str, Mapping[str, Any]], key: str = "arguments") -> dict[str, Any]:
    """The JSON schema of a call of one of these functions.

    Args:
        offered: the schemas of arguments, by the names of the functions.
        key: the name of the arguments in the call.
    """
    calls, definitions = list[dict[str, Any]](), {}
    for number, (name, schema) in enumerate(offered.items()):
        definitions[f"call{number}"] = moved(schema, f"#/$defs/call{number}")
        calls.append({
            "type": "object", "properties": {"name": {"const": name}, key: {"$ref": f"#/$defs/call{number}"}},
            "required": ["name", key], "additionalProperties": False,
        })  # fmt: skip
    return {"anyOf": calls, "$defs": definitions}
