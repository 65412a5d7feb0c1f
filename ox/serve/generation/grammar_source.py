"""From constraints to grammars of the package llguidance, with errors that say what it lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ox.errors import ServeError, first_line
from ox.serve.generation.exact_numbers import with_exact_numbers
from ox.serve.generation.grammar import lark_source
from ox.serve.generation.json_schema import (
    MOST_CHARACTERS,
    References,
    check_size,
    is_endless,
    map_schema,
    moved,
    reference_depth,
    subschemas,
)
from ox.serve.generation.multiples import (
    MOST_STATES,
    largest_multiple,
    states_of_multiples,
    without_large_multiples,
)
from ox.serve.generation.request import Constraint

MOST_PROPERTIES = 2048  # of one object: the package takes the square of them
MOST_PARTS = 2000  # of a grammar in Lark's form
NESTING = ":([{?*+~"  # what each of them has
MOST_LEVELS = 1200  # with those behind references: the package descends into them by calls, until its stack is full
# JSON on one line, as Python writes it: where any spaces may stand, some models write nothing else
SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
NAMES = {
    "json_schema": "JSON schema", "json_object": "form", "regex": "regular expression", "choice": "choice",
    "grammar": "grammar",
}  # fmt: skip
LOOSER = '"strict": false, where the API has it, leaves out what is not supported'
FORMATS = (  # that JSON schema defines; others are annotations
    "date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri",
    "uri-reference", "iri", "iri-reference", "uri-template", "uuid", "json-pointer", "relative-json-pointer", "regex",
)  # fmt: skip
LACKS = (  # words of the package's messages, and the keyword that they are about
    ("Unknown format: ", "format", LOOSER),
    ("oneOf constraints are", "oneOf", LOOSER),
    (" range: min=", "minimum' or 'maximum", "numbers that are closer to zero"),
    ("regex", "pattern", LOOSER),
    ("Resource ", "$ref", "the schema itself, without other documents"),
)


def grammars(
    constraint: Constraint, matcher: Any, special: Callable[[str], int | None], prefix: str = ""
) -> list[dict[str, Any]]:
    """The grammar of a constraint and those of its parts; the first one is the whole.

    Args:
        constraint: what a text must look like.
        matcher: llguidance's class.
        special: the id of a special token by its text; None where that is not one.
        prefix: of the names of its parts.

    Raises:
        ServeError: it is wrong, too large, not supported, or no text can be of this form (400).
    """
    kind, value = constraint.kind, constraint.value
    what = f"{NAMES.get(kind, 'form')} of a text"
    if kind == "json_object":
        value = {"type": "object"}
    if kind in ("json_schema", "json_object") and isinstance(value, dict | bool):
        return [_of_schema(constraint, value, matcher)]
    if kind == "regex" and isinstance(value, str):
        return [_checked(constraint, {"lark_grammar": _regex(value, what, matcher)}, matcher)]
    if kind == "choice" and isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        text = "|".join(re.escape(str(each)) for each in value)
        return [_checked(constraint, {"lark_grammar": _regex(text, what, matcher)}, matcher)]
    if kind == "grammar" and isinstance(value, str):
        _check_length(what, value)
        _check_lark(what, value)
        return [_checked(constraint, {"lark_grammar": value}, matcher)]
    if kind == "grammar" and isinstance(value, list | tuple):
        found = [{"lark_grammar": lark_source(value, prefix, special)}]
        size = 0
        for part in constraint.parts.values():  # before work on any of them: each may have a whole schema
            size += len(json.dumps(part.value)) if isinstance(part.value, dict) else 0
            _check_size(what, size)
        for name, part in constraint.parts.items():
            first, *others = grammars(part, matcher, special, f"{prefix}{name}_")
            found += [{**first, "name": prefix + name}, *others]
        _check_length(what, json.dumps(found))
        return found
    expected = {"regex": "a text", "choice": "a list of texts", "json_schema": "an object", "grammar": "a text"}
    raise ServeError(f"invalid {what}", expected=expected.get(kind, ", ".join(NAMES)), got=repr(value)[:100])


def _check_lark(what: str, source: str) -> None:
    """The package descends into rules by calls, until its stack is full and the process ends: one rule in another, and
    the brackets and repetitions of each. So do schemas in a grammar, which `_of_schema` has not checked."""
    if "%json" in source:
        got, hint = "%json in a grammar", "a JSON schema in place of the grammar"
        raise ServeError(f"a JSON schema in the {what} is not supported", got=got, hint=hint)
    parts = sum(map(source.count, NESTING))
    if parts > MOST_PARTS:
        expected = f"at most {MOST_PARTS:,} rules, brackets and repetitions"
        raise ServeError(f"the {what} is too large", expected=expected, got=f"{parts:,}")


def _regex(value: str, what: str, matcher: Any) -> str:
    _check_length(what, value)
    return str(json.loads(matcher.grammar_from_regex(value))["grammars"][0]["lark_grammar"])


def _checked(constraint: Constraint, grammar: dict[str, Any], matcher: Any) -> dict[str, Any]:
    failed, messages = matcher.validate_grammar_with_warnings(json.dumps({"grammars": [grammar]}))
    if failed:
        raise ServeError(
            f"no text can be of this {NAMES[constraint.kind]}",
            where=constraint.where,
            got=first_line(messages[0])[:300],
        )
    return grammar


def _of_schema(constraint: Constraint, schema: dict[str, Any] | bool, matcher: Any) -> dict[str, Any]:
    what = "JSON schema of a text"
    where = constraint.where
    check_size(schema, where)
    properties = [each.get("properties") for _, _, each in subschemas(schema)]
    sizes = [len(each) for each in properties if isinstance(each, dict)]
    if sum(size**2 for size in sizes) > MOST_PROPERTIES**2:
        expected = f"at most {MOST_PROPERTIES:,} properties of an object"
        raise ServeError(
            f"the {what} is too large", where=where, expected=expected, got=f"{sum(sizes):,} of all objects"
        )
    if isinstance(schema, dict) and (place := References(schema).into_data()) is not None:
        raise ServeError(f"invalid {what}", where=_join(where, place),
                         expected="the $ref of a schema inside, such as #/$defs/name")  # fmt: skip
    if isinstance(schema, dict) and (depth := reference_depth(schema)) > MOST_LEVELS:
        expected = f"at most {MOST_LEVELS:,} levels, where each reference is followed once"
        raise ServeError(f"the {what} is too large", where=where, expected=expected, got=f"{depth:,}")
    if (place := is_endless(schema)) is not None:
        raise ServeError(f"the {what} has no end: a part of it requires itself", where=_join(where, place),
                         hint="make the part optional, or allow null")  # fmt: skip
    schema = with_exact_numbers(schema, constraint.strict, where)
    if states_of_multiples(schema) > MOST_STATES:
        if constraint.strict:
            place, value = largest_multiple(schema)
            expected = f"multiples of at most {MOST_STATES:,} together, without their decimal points"
            raise ServeError("this 'multipleOf' of JSON schema is not supported", expected=expected, hint=LOOSER,
                             got=str(value)[:80], where=_join(where, place))  # fmt: skip
        schema = without_large_multiples(schema)
    if isinstance(schema, dict):  # the package reads references in ASCII only
        schema = map_schema(moved(schema, "#"), _without_annotations)
    failed, message, grammar = _compiled(schema, constraint.strict, matcher)
    if failed and "regex" in message and not constraint.strict:
        failed, message, grammar = _compiled(_without_patterns(schema, matcher), False, matcher)
    if failed:
        raise _schema_error(schema, message, constraint)
    return grammar


def _without_annotations(schema: dict[str, Any]) -> dict[str, Any]:
    """Without what restricts nothing: formats that JSON schema does not define, such as Pydantic's `password`, and
    names of properties that are any string, as Zod writes them."""
    left = set[str]()
    if isinstance(schema.get("format"), str) and schema["format"] not in FORMATS:
        left.add("format")
    if schema.get("propertyNames") in (True, {}, {"type": "string"}):
        left.add("propertyNames")
    return {name: value for name, value in schema.items() if name not in left} if left else schema


def _compiled(schema: Any, strict: bool, matcher: Any) -> tuple[bool, str, dict[str, Any]]:
    options = {**SPACES, "lenient": not strict}
    try:
        source = str(matcher.grammar_from_json_schema(json.dumps(schema), defaults=options))
    except ValueError as error:
        return True, first_line(error), {}
    failed, messages = matcher.validate_grammar_with_warnings(source)
    grammar = json.loads(source)["grammars"][0]
    return failed, messages[0] if messages else "", {"json_schema": grammar["json_schema"]}


def _without_patterns(schema: Any, matcher: Any) -> Any:
    """Without the regular expressions that the package cannot read."""

    def change(each: dict[str, Any]) -> dict[str, Any]:
        pattern = each.get("pattern")
        bad = isinstance(pattern, str) and matcher.validate_grammar(matcher.grammar_from_regex(pattern))
        return {name: value for name, value in each.items() if name != "pattern"} if bad else each

    return map_schema(schema, change)


def _schema_error(schema: Any, message: str, constraint: Constraint) -> ServeError:
    """What the package says of a schema, with its place."""
    got, where = _line(message), constraint.where
    listed = re.search(r"Unimplemented keys: (\[.*?\])", message)
    if listed:
        name = json.loads(listed[1])[0]
        where = _join(where, _place(schema, name))
        return ServeError(f"'{name}' of JSON schema is not supported", where=where, hint=LOOSER)
    for words, name, hint in LACKS:
        if words in message:
            value = got.partition(words)[2].strip() if name == "format" else None
            where = _join(where, _place(schema, name, value) if name in ("format", "oneOf", "$ref") else "")
            got = " ".join(message.split())[-300:] if name == "pattern" else got  # its reason is the last line
            return ServeError(f"this '{name}' of JSON schema is not supported", where=where, got=got, hint=hint)
    if "Unsatisfiable" in message:
        return ServeError("no text can be of this JSON schema", where=where, got=got)
    if "panic" in message or "too " in message:
        return ServeError("the JSON schema of a text is too large", where=where, got=got, hint="a smaller schema")
    return ServeError("invalid JSON schema of a text", where=where, got=got)


def _place(schema: Any, name: str, value: str | None = None) -> str:
    """The JSON pointer of the first part of a schema that has a keyword, with this value where there is one."""
    places = [pointer for pointer, _, each in subschemas(schema) if name in each and value in (None, each[name])]
    return min(places, key=len, default="")


def _line(message: str) -> str:
    return message.strip().partition("\n")[0][:300]


def _join(where: str, pointer: str) -> str:
    return f"{where} {pointer}".strip()


def _check_length(what: str, text: str, where: str = "") -> None:
    _check_size(what, len(text), where)


def _check_size(what: str, size: int, where: str = "") -> None:
    if size > MOST_CHARACTERS:
        expected = f"at most {MOST_CHARACTERS:,} characters"
        raise ServeError(f"the {what} is too long", where=where, expected=expected, got=f"{size:,}")
