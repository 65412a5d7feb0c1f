"""The JSON of a request: reading it, and naming what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import orjson

from ox.errors import ServeError

MOST_BRACKETS = (
    1 << 17
)  # each costs a hundred bytes and a third of a microsecond, and two characters are enough for one
FLAT = "flat data, or sending the tensors as binary data"


def load_json(text: bytes | bytearray) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ServeError: it is not JSON, nests deeper than 1,024 levels, holds NaN or too many brackets, or is not an object.
    """
    if len(text) > MOST_BRACKETS and text.count(b"{") + text.count(b"[") > MOST_BRACKETS:
        raise ServeError("the JSON holds too many lists and objects", expected=f"at most {MOST_BRACKETS}", hint=FLAT)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if any(
            text[max(0, error.pos - 1) : error.pos + 8].lstrip(b"-, [:").startswith(word) for word in (b"NaN", b"Inf")
        ):
            raise ServeError(
                "NaN and Infinity are not JSON", got=str(error), hint="sending that tensor as binary data"
            ) from None
        raise ServeError("the body is not JSON", got=str(error)) from None
    if type(document) is not dict:
        raise ServeError("the body is not a JSON object", expected='{"inputs": [...]}')
    return document


def parameters_of(owner: Any) -> dict[str, Any]:
    parameters = owner.get("parameters") if type(owner) is dict else None
    if parameters is None:
        return {}
    if type(parameters) is not dict:
        raise ServeError("'parameters' is not an object", got=quote(parameters))
    return parameters


def flag(parameters: dict[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if type(value) is not bool:
        raise ServeError(f"the parameter {name} is not true or false", got=quote(value))
    return value


def identifier_of(document: dict[str, Any]) -> str | None:
    identifier = document.get("id")
    if identifier is not None and type(identifier) is not str:
        raise ServeError("'id' is not a string", got=quote(identifier))
    return identifier


def quote(value: Any) -> str:
    """What the client sent, short enough for a message."""
    if isinstance(value, list | dict):  # may be as large and as deep as the body allows
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = f"'{value[:80]}'" if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: Any, names: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(name[:100], list(names), 1) if isinstance(name, str) else []
    return f"'{close[0]}'" if close else None
