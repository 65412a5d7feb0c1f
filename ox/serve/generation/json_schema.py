"""JSON schemas as parts of other schemas: their references, and the types of their properties."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urljoin

from ox.errors import ServeError, first_line

# Keywords whose values are schemas, lists of schemas, and schemas by name. Others hold data, such as `enum`.
_ONE = ("additionalProperties", "items", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames",
        "unevaluatedProperties", "unevaluatedItems", "contentSchema")  # fmt: skip
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_KNOWN = {*_ONE, *_LISTS, *_NAMED, "enum", "const", "default", "examples"}
_IDENTITIES = ("$id", "$anchor", "$dynamicAnchor", "$schema", "$vocabulary")
MOST_CHARACTERS = 1 << 18  # of a grammar
MOST_OF_PLACES = 1 << 24  # characters of the JSON pointers and base URIs of all parts of a schema, and of references
MOST_OF_VALUE = 10_000  # characters of one value, pattern or name: a step takes the longer, the longer it is
DEEPEST = 128  # levels: llguidance refuses more, and Python's writer at another depth by version
MOST_ROUNDS = 64  # of the search for parts that require themselves
MOST_REFERENCES = 32  # one after another, for the types of a property


def subschemas(schema: Any, pointer: str = "#", base: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All schemas inside of one, and itself: their JSON pointers, base URIs (by `$id`) and objects."""
    stack = [(pointer, "", base, schema)]
    while stack:
        above, step, base, schema = stack.pop()
        if not isinstance(schema, dict):
            continue
        pointer = above + step  # only now: those of many may take gigabytes
        identity = schema.get("$id")
        if isinstance(identity, str):
            base = _whole(base, identity)
        yield pointer, base, schema
        for name in _ONE:
            if name in schema:
                stack.append((pointer, f"/{name}", base, schema[name]))
        for name in _LISTS:
            if isinstance(schema.get(name), list):
                stack += [(pointer, f"/{name}/{index}", base, each) for index, each in enumerate(schema[name])]
        for name in _NAMED:
            if isinstance(schema.get(name), dict):
                stack += [(pointer, f"/{name}/{_escaped(key)}", base, each) for key, each in schema[name].items()]
        for name in schema.keys() - _KNOWN:  # such as `components`, with what references point to
            stack.append((pointer, f"/{_escaped(name)}", base, schema[name]))


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
        self._pointers: dict[int, str] = {}
        for pointer, base, each in subschemas(schema):
            self._by_pointer.setdefault(pointer, each)
            self._bases[id(each)] = base
            self._pointers[id(each)] = pointer
            if pointer == "#" or isinstance(each.get("$id"), str):
                self._targets.setdefault(base.partition("#")[0], pointer)
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(each.get(name), str):
                    self._targets.setdefault(_whole(base, f"#{each[name]}"), pointer)

    def pointer(self, schema: Mapping[str, Any], reference: str) -> str | None:
        """The JSON pointer from the root on of what a reference in `schema`, a part of the root, points to; None where
        that is in another document."""
        base = self._bases[id(schema)]
        whole = _whole(base, reference) if reference.rstrip("#") else base
        if whole in self._targets:
            return self._targets[whole]
        resource, _, fragment = whole.partition("#")
        start = self._targets.get(resource)
        if start is None or (fragment and not fragment.startswith("/")):
            return None
        whole = start + unquote(fragment)
        # some write the names as they are, also where they have a percent sign
        return start + fragment if whole not in self._by_pointer and start + fragment in self._by_pointer else whole

    def target(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the `$ref` of a part of the root points to."""
        return self._by_pointer.get(self.pointer(schema, schema["$ref"]) or "")

    def into_data(self) -> str | None:
        """The JSON pointer of a part whose reference points into this document, but not at a schema; None for none."""
        for pointer, _, each in subschemas(self._root):
            for name in ("$ref", "$dynamicRef"):
                target = self.pointer(each, each[name]) if isinstance(each.get(name), str) else None
                if target is not None and target not in self._by_pointer and type(self._at(target)) is not bool:
                    return pointer
        return None

    def _at(self, pointer: str) -> Any:
        """What stands at a JSON pointer through objects; None for nothing."""
        found: Any = self._root
        for step in pointer.split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found

    def chain(self, schema: Any) -> list[dict[str, Any]]:
        """A part of the root, what its `$ref` points to, and so on."""
        found = list[dict[str, Any]]()
        while isinstance(schema, dict) and len(found) < MOST_REFERENCES:
            found.append(schema)
            schema = self.target(schema) if isinstance(schema.get("$ref"), str) else None
        return found

    @property
    def owner(self) -> dict[str, Any]:
        """What has the properties of the root, an object: it, or what it refers to."""
        chain = self.chain(self._root)
        return next((each for each in chain if "properties" in each), chain[-1])

    @property
    def properties(self) -> dict[str, Any]:
        """Of the root, an object, by their names."""
        properties = self.owner.get("properties")
        return properties if isinstance(properties, dict) else {}

    @property
    def required(self) -> list[str]:
        """The names of the properties that the root, an object, must have."""
        lists = [each.get("required") for each in self.chain(self._root)]
        return [name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)]

    def pointer_to(self, schema: Any) -> str:
        """The JSON pointer of a part of the root."""
        return self._pointers.get(id(schema), "#")

    def chooses(self, name: str) -> list[str]:
        """The texts that a property of the root may be; none where it may be others."""
        schema = (self.chain(self.properties.get(name)) or [{}])[-1]
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []

    def types(self, name: str) -> frozenset[str]:
        """The JSON types that a property of the root, an object, may have; none where the schema does not tell."""
        found, seen = set[str](), set[int]()
        stack = [self.properties.get(name)]
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


def check_size(schema: Any, where: str = "") -> None:
    """Checks a schema that comes from a client.

    Args:
        where: which parameter of the request has it, for errors.

    Raises:
        ServeError: it is not JSON, has too many levels, is too long, has long names above many parts, or a value, a
            pattern or a name that is too long (400).
    """
    what = "JSON schema of a text"
    if is_deeper(schema, DEEPEST):
        raise ServeError(f"invalid {what}", where=where, expected=f"at most {DEEPEST} levels", got="nested too deep")
    try:
        size = len(json.dumps(schema))
    except (TypeError, ValueError) as error:
        raise ServeError(f"invalid {what}", where=where, got=first_line(error)[:300]) from error
    if size > MOST_CHARACTERS:
        expected = f"at most {MOST_CHARACTERS:,} characters"
        raise ServeError(f"the {what} is too long", where=where, expected=expected, got=f"{size:,}")
    places = longest = references = 0
    for pointer, base, each in subschemas(schema):
        places, longest = places + len(pointer) + len(base), max(longest, len(pointer))
        references += ("$ref" in each) + ("$dynamicRef" in each)  # a moved one has the pointer of its target
        if places + references * longest > MOST_OF_PLACES:
            raise ServeError(f"the {what} has too many parts below long names", where=where, hint="shorter names",
                             expected=f"at most {MOST_OF_PLACES:,} characters of pointers to all parts")  # fmt: skip
        for name, length in _lengths(each):
            if length > MOST_OF_VALUE:
                raise ServeError(f"this '{name}' of JSON schema is too long", where=f"{where} {pointer}".strip(),
                                 expected=f"at most {MOST_OF_VALUE:,} characters", got=f"{length:,}")  # fmt: skip


def _lengths(schema: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Keywords of a schema that hold what is generated, with the characters of the longest value, pattern or name."""
    for name in ("const", "enum", "pattern", "properties"):
        found = schema.get(name, "")
        values = [*found] if isinstance(found, list if name == "enum" else dict) and name != "const" else [found]
        yield name, max((len(each if isinstance(each, str) else json.dumps(each)) for each in values), default=0)


def map_schema(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A copy in which each schema inside, and the whole, is what `change` makes of it; data, as of `enum`, stays."""
    inside = {id(each) for _, _, each in subschemas(schema)}

    def copy(value: Any) -> Any:
        if isinstance(value, list):
            return [copy(each) for each in value]
        if not isinstance(value, dict):
            return value
        changed = change(value) if id(value) in inside else value
        return {name: copy(each) for name, each in changed.items()}

    return copy(schema)


def moved(schema: dict[str, Any], pointer: str) -> dict[str, Any]:
    """A schema that means the same as a part of another schema.

    Its references, which count from its own root, count from the new root. Anchors and identities, which may be those
    of other parts too, are left out: nothing refers to them any more.

    Args:
        pointer: where it will stand, such as `#/$defs/name`.
    """
    references = References(schema)

    def change(each: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in each.items() if name not in _IDENTITIES}
        for name in ("$ref", "$dynamicRef"):
            target = references.pointer(each, each[name]) if isinstance(each.get(name), str) else None
            if target is not None:
                del kept[name]
                kept["$ref"] = as_reference(pointer + target[1:])
        return kept

    return dict(map_schema(schema, change))


def reference_depth(schema: Any) -> int:
    """How many levels there are at most where each reference is followed once: those of the whole, and of each part
    that is referred to."""
    references = References(schema)
    parts = [(pointer, each) for pointer, _, each in subschemas(schema)]
    targets = {
        pointer for _, each in parts for name in ("$ref", "$dynamicRef")
        if isinstance(each.get(name), str) and (pointer := references.pointer(each, each[name])) is not None
    }  # fmt: skip
    depths = dict.fromkeys(targets, 1)
    deepest = 1
    for pointer, _ in parts:
        steps = pointer.split("/")
        deepest = max(deepest, len(steps))
        for count in range(1, len(steps) + 1):
            above = "/".join(steps[:count])
            if above in depths:
                depths[above] = max(depths[above], len(steps) - count + 1)
    return deepest + sum(depths.values())


def is_endless(schema: Any) -> str | None:
    """The JSON pointer of a part that every value of this schema contains without an end, since it requires itself;
    None where there is none."""
    if not isinstance(schema, dict):
        return None
    references = References(schema)
    parts = [(pointer, each) for pointer, _, each in subschemas(schema)]
    targets = {id(each): references.target(each) for _, each in parts if isinstance(each.get("$ref"), str)}
    ends = set[int]()  # parts that have values which end

    def ended(each: Any) -> bool:
        return not isinstance(each, dict) or id(each) in ends

    def may_end(each: dict[str, Any]) -> bool:
        if id(each) in targets and not ended(targets[id(each)]):
            return False
        for keyword in ("anyOf", "oneOf"):
            choices = each.get(keyword)
            if isinstance(choices, list) and choices and not any(map(ended, choices)):
                return False
        if isinstance(each.get("allOf"), list) and not all(map(ended, each["allOf"])):
            return False
        properties, required = each.get("properties"), each.get("required")
        if each.get("type") in ("object", ["object"]) and isinstance(properties, dict) and isinstance(required, list):
            return all(ended(properties.get(name)) for name in required if isinstance(name, str))
        if each.get("type") in ("array", ["array"]) and isinstance(each.get("minItems"), int) and each["minItems"] > 0:
            return ended(each.get("items"))
        return True

    waiting = parts[::-1]  # the inner ones first
    for _ in range(MOST_ROUNDS):
        left = list[tuple[str, dict[str, Any]]]()
        for pointer, each in waiting:
            if may_end(each):
                ends.add(id(each))
            else:
                left.append((pointer, each))
        if ended(schema):
            return None
        if len(left) == len(waiting):
            return min((pointer for pointer, _ in left), key=len)
        waiting = left
    return None


def is_deeper(value: Any, levels: int) -> bool:
    """Whether a value of JSON has objects and lists in more levels."""
    level = [value]
    for _ in range(levels + 1):
        children = [
            each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)
        ]
        if not children:
            return False
        level = [child for each in children for child in each]
    return True


def _whole(base: str, reference: str) -> str:
    """A reference as a whole URI. One that is wrong stays as it is: nothing in the schema has it."""
    if reference.startswith("#"):  # urljoin leaves out a base such as urn:uuid:1
        return base.partition("#")[0] + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def as_reference(pointer: str) -> str:
    """A JSON pointer from `#` on as a URI (RFC 6901, section 6)."""
    return "#" + quote(pointer[1:], safe="/~!$&'()*+,;=:@?")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
