"""What is said of one parameter of requests for texts, and how its value is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ox.serve.protocol.text.fields import Fields

if TYPE_CHECKING:
    from ox.serve.protocol.text.text_model import TextModel

DIALECTS = ("completions", "chat", "responses", "messages", "ollama", "generate")
NAMED = re.compile(r"'(\w+)'")  # a name in an error, which Markdown has in backticks
Schema = Mapping[str, Any]
Reader = Callable[[Fields, "TextModel"], Any]
CLASSES: dict[str, tuple[type, str]] = {
    "string": (str, "a string"), "object": (dict, "an object"), "array": (list, "a list"),
    "boolean": (bool, "true or false"), "integer": (int, "a whole number"), "number": (float, "a number"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of requests for texts.

    Args:
        name: as OpenAI's chats or vLLM call it; the requests of all dialects are translated to it.
        about: what it does, in a few words.
        schema: the JSON schema of its values.
        names: what the dialects that have it call it; "options.seed" is a field of the object "options".
        read: takes its value from the fields, checked; None where code of its own reads it.
        sets: "sampling.NAME", a field of `SamplingParams`; "request.NAME", one of `GenerationRequest`; "" for neither.
        required: the dialects that refuse a request without it.

    Attributes:
        owner, attribute: what it sets, apart: "sampling", "request" or ""; and a name, which is its own for "".
    """

    name: str
    about: str
    schema: Schema
    names: Mapping[str, str]
    read: Reader | None = None
    sets: str = ""
    required: frozenset[str] = frozenset()
    owner: str = field(init=False)
    attribute: str = field(init=False)

    def __post_init__(self) -> None:
        owner, _, attribute = self.sets.partition(".")
        object.__setattr__(self, "owner", owner)
        object.__setattr__(self, "attribute", attribute or self.name)


def number(
    name: str, low: float, high: float, where: str, about: str, *, above: bool = False, sets: str = ""
) -> Parameter:
    """A number from `low`, or above it, to `high`. `where` is as of `names_of`."""
    schema = {"type": "number", "exclusiveMinimum" if above else "minimum": low, "maximum": high}

    def read(fields: Fields, model: TextModel) -> float:
        return fields.number(name, low, high, low, above)

    return Parameter(name=name, about=about, schema=schema, names=names_of(name, where), read=read, sets=sets)


def whole(
    name: str, low: int, high: int, where: str, about: str, *, sets: str = "", to: Callable[[int], int] = int
) -> Parameter:
    """A whole number from `low` to `high`; `to` makes of it what is set."""
    schema = {"type": "integer", "minimum": low, "maximum": high}

    def read(fields: Fields, model: TextModel) -> int:
        return to(fields.whole(name, low, high) or 0)

    return Parameter(name=name, about=about, schema=schema, names=names_of(name, where), read=read, sets=sets)


def flag(name: str, where: str, about: str, *, sets: str = "") -> Parameter:
    """true or false."""

    def read(fields: Fields, model: TextModel) -> bool:
        return fields.flag(name)

    schema = {"type": "boolean"}
    return Parameter(name=name, about=about, schema=schema, names=names_of(name, where), read=read, sets=sets)


def texts(name: str, most: int, where: str, about: str, *, sets: str = "") -> Parameter:
    """A string, or a list of at most `most`, none of them empty."""

    def read(fields: Fields, model: TextModel) -> tuple[str, ...]:
        return fields.texts(name, most)

    schema = texts_schema(most)
    return Parameter(name=name, about=about, schema=schema, names=names_of(name, where), read=read, sets=sets)


def texts_schema(most: int) -> Schema:
    """The JSON schema of a string, or a list of at most `most`, none of them empty."""
    text = {"type": "string", "minLength": 1}
    return {"anyOf": [text, {"type": "array", "items": text, "maxItems": most}]}


def tokens(name: str, most: int, where: str, about: str, *, least: int = 0, sets: str = "") -> Parameter:
    """A list of `least` to `most` ids of tokens."""
    ids = {"type": "integer", "minimum": 0}
    schema = {"type": "array", "items": ids, "minItems": least, "maxItems": most}

    def read(fields: Fields, model: TextModel) -> tuple[int, ...]:
        return fields.wholes(name, most, model.engine.vocab_size, least)

    return Parameter(name=name, about=about, schema=schema, names=names_of(name, where), read=read, sets=sets)


def only(name: str, values: Sequence[Any], where: str, *, why: str = "", hint: str = "") -> Parameter:
    """A parameter that is refused, except for values that change nothing.

    Args:
        name, where: as of the others.
        values: those that are taken.
        why: why others are refused.
        hint: what to use instead.
    """

    def read(fields: Fields, model: TextModel) -> None:
        fields.only(name, values, why, hint or "a request without it")

    about = "refused" + (f": {why}" if why else "") + ("; try " + NAMED.sub(r"`\1`", hint) if hint else "")
    schema = {"enum": [*values]}
    return Parameter(name=name, about=about, schema=schema, names=names_of(name, where), read=read)


def unused(name: str, schema: Schema, where: str, about: str, *, silent: Sequence[Any] | None = None) -> Parameter:
    """A parameter that is taken, and changes nothing here.

    Args:
        name, where, about: as of the others.
        schema: its type is checked.
        silent: values that ask for what is done anyway; the warning header names the parameter for others. None for
            all.
    """
    kinds = [CLASSES[kind] for kind in ([schema["type"]] if isinstance(schema["type"], str) else schema["type"])]
    types, words = tuple(kind for kind, _ in kinds), " or ".join(words for _, words in kinds)

    def read(fields: Fields, model: TextModel) -> None:
        value = fields.take(name)
        if type(value) not in types:
            raise fields.wrong(name, words, value)
        if silent is not None and value not in silent:
            fields.remarks.add_unused(fields.shown(name))

    about = f"no effect: {about}"
    return Parameter(name=name, about=about, schema=schema, names=names_of(name, where), read=read)


def other(name: str, schema: Schema, where: str, about: str, *, required: str = "") -> Parameter:
    """A parameter that code of its own reads. `required` has the dialects that refuse a request without it."""
    return Parameter(
        name=name, about=about, schema=schema, names=names_of(name, where), required=frozenset(required.split())
    )


def names_of(name: str, where: str) -> dict[str, str]:
    """What dialects call a parameter.

    Args:
        name: its name.
        where: the dialects that have it, with spaces between them: "chat responses=max_output_tokens", where one calls
            it something else.
    """
    found = {}
    for each in where.split():
        dialect, _, theirs = each.partition("=")
        assert dialect in DIALECTS, dialect
        found[dialect] = theirs or name
    return found
