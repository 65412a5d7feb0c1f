"""JSON schemas as parts of other schemas: their references, and the types of their properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

# Keywords whose values are schemas, lists of schemas, and schemas by name. Others hold data, such as `enum`.
_ONE = ("additionalProperties", "items", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames",
        "unevaluatedProperties", "unevaluatedItems", "contentSchema")  # fmt: skip
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
MOST_REFERENCES = 32  # one after another, for the types of a property


def subschemas(schema: Any, pointer: str = "#", base: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All schemas inside of one, and itself: their JSON pointers, base URIs (by `$id`) and objects."""
    stack = [(pointer, base, schema)]
    while stack:
        pointer, base, schema = stack.pop()
        if not isinstance(schema, dict):
            continue
        identity = schema.get("$id")
        if isinstance(identity, str):
            base = urljoin(base, identity)
        yield pointer, base, schema
        for name in _ONE:
            stack.append((f"{pointer}/{name}", base, schema.get(name)))
        for name in _LISTS:
            if isinstance(schema.get(name), list):
                stack += [(f"{pointer}/{name}/{index}", base, each) for index, each in enumerate(schema[name])]
        for name in _NAMED:
            if isinstance(schema.get(name), dict):
                stack += [(f"{pointer}/{name}/{_escaped(key)}", base, each) for key, each in schema[name].items()]


class References:
    """Where the references in a schema point.

    Args:
        schema: the root.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema
        self._targets: dict[str, str] = {}  # JSON pointers by URI
        self._by_pointer: dict[str, dict[str, Any]] = {}
        self._bases: dict[int, str] = {}
        for pointer, base, each in subschemas(schema):
            self._by_pointer.setdefault(pointer, each)
            self._bases[id(each)] = base
            if pointer == "#" or isinstance(each.get("$id"), str):
                self._targets.setdefault(urldefrag(base).url, pointer)
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(each.get(name), str):
                    self._targets.setdefault(urljoin(base, f"#{each[name]}"), pointer)

    def pointer(self, schema: Mapping[str, Any], reference: str) -> str | None:
        """The JSON pointer from the root on of what a reference in `schema`, a part of the root, points to; None where
        that is in another document."""
        base = self._bases[id(schema)]
        whole = urljoin(base, reference) if reference.rstrip("#") else base
        if whole in self._targets:
            return self._targets[whole]
        resource, fragment = urldefrag(whole)
        start = self._targets.get(resource)
        if start is None or (fragment and not fragment.startswith("/")):
            return None
        return start + unquote(fragment)

    def target(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the `$ref` of a part of the root points to."""
        return self._by_pointer.get(self.pointer(schema, schema["$ref"]) or "")

    def types(self, name: str) -> frozenset[str]:
        """The JSON types that a property of the root, an object, may have; none where the schema does not tell."""
        owner: Any = self._root
        for _ in range(MOST_REFERENCES):
            if not isinstance(owner, dict) or "properties" in owner or not isinstance(owner.get("$ref"), str):
                break
            owner = self.target(owner)
        properties = owner.get("properties") if isinstance(owner, dict) else None
        found, seen = set[str](), set[int]()
        stack = [properties.get(name) if isinstance(properties, dict) else None]
        while stack:
            each = stack.pop()
            if not isinstance(each, dict):
                return frozenset()
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each.get("type"), str | list):
                found.update([each["type"]] if isinstance(each["type"], str) else filter(_is_text, each["type"]))
            elif "const" in each or isinstance(each.get("enum"), list):
                values = [each["const"]] if "const" in each else each["enum"]
                found.update(_TYPES.get(type(value), "null") for value in values)
            elif isinstance(each.get("$ref"), str):
                stack.append(self.target(each))
            else:
                choices = each.get("anyOf", each.get("oneOf"))
                if not isinstance(choices, list) or not choices:
                    return frozenset()
                stack += choices
        return frozenset(found)


def moved(schema: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """A schema that means the same as a part of another schema.

    Its references, which count from its own root, count from the new root. Anchors and identities, which may be those
    of other parts too, are left out: nothing refers to them any more.

    Args:
        pointer: where it will stand, such as `#/$defs/name`.
    """
    references = References(schema)
    changed = {id(each): each for _, _, each in subschemas(schema)}

    def copy(value: Any) -> Any:
        if isinstance(value, list):
            return [copy(each) for each in value]
        if not isinstance(value, dict):
            return value
        if id(value) not in changed:
            return {name: copy(each) for name, each in value.items()}
        kept = {
            name: copy(each) for name, each in value.items()
            if name not in ("$id", "$anchor", "$dynamicAnchor", "$schema", "$vocabulary")
        }  # fmt: skip
        for name in ("$ref", "$dynamicRef"):
            if isinstance(value.get(name), str):
                target = references.pointer(value, value[name])
                if target is not None:
                    del kept[name]
                    kept["$ref"] = pointer + target[1:]
        return kept

    return dict(copy(dict(schema) if id(schema) not in changed else schema))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
