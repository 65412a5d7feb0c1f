"""What the XML of Qwen3-Coder can say of the arguments of a function: values as they are, or as JSON."""

from __future__ import annotations

from typing import Any

from ox.errors import ServeError
from ox.serve.generation.json_schema import References

END_PARAMETER = "</parameter>"
_REMARKS = {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly",
            "$anchor", "$id", "$defs", "definitions"}  # fmt: skip
# Keywords of an object that are about several arguments together, or about those that `properties` does not list.
_OF_OBJECTS = ("anyOf", "oneOf", "allOf", "enum", "const", "minProperties", "maxProperties", "patternProperties",
               "propertyNames", "dependentRequired", "dependentSchemas", "dependencies")  # fmt: skip


def is_verbatim(references: References, key: str, strict: bool) -> bool:
    """Whether the value of an argument stands there as it is; else as JSON. Strings stand there as they are, except
    where a strict schema restricts them by more than a list: grammars have such strings in JSON only.

    Args:
        references: of the schema of the arguments.
        key: the argument's name.
        strict: whether the arguments are held to the schema.
    """
    if references.types(key) != {"string"}:
        return False
    if not strict:
        return True
    kept = [each.keys() - _REMARKS for each in references.chain(references.properties.get(key))]
    listed = {"type", "enum"}, {"type", "const"}
    return (
        all(keys == {"$ref"} for keys in kept[:-1])
        and any(kept[-1] <= keys for keys in listed)
        and not any(END_PARAMETER in text for text in references.chooses(key))
    )


def is_writable(key: str) -> bool:
    """Whether the name of an argument can stand between its marks."""
    return ">" not in key and key == key.strip()


def check_strict(references: References, schema: dict[str, Any], where: str) -> None:
    """Checks that calls can be held to a schema of arguments.

    Args:
        references: of the schema.
        schema: of an object.
        where: the place of the schema, for errors.

    Raises:
        ServeError: it has what the format cannot express, with its place (400).
    """
    owner = references.owner
    for each in references.chain(schema):
        found = [name for name in _OF_OBJECTS if name in each]
        if each is owner and "$ref" in each:
            found.append("$ref")
        if found:
            raise _error(found[0], where, references.pointer_to(each))
        if each is owner:
            break
    for key in references.properties:
        if not is_writable(key):
            raise _error("properties", where, references.pointer_to(owner), "names without '>'", key)
    if unlisted := [key for key in references.required if key not in references.properties]:
        raise _error("required", where, references.pointer_to(owner), "names of 'properties'", unlisted[0])


def _error(keyword: str, where: str, pointer: str, expected: str = "", got: str = "") -> ServeError:
    return ServeError(
        f"this '{keyword}' of JSON schema is not supported in calls of the format qwen3_coder",
        where=f"{where} {pointer}", expected=expected, got=repr(got)[:100] if got else "", hint='"strict": false',
    )  # fmt: skip
