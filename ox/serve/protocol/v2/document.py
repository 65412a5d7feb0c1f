"""Parses the JSON of requests, with helpers for error messages."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

from ox.errors import ServeError

MAX_BRACKETS = 1 << 17  # each takes 100 bytes of memory and 0.3 µs for two characters of JSON
FLAT_HINT = "flat data, or sending the tensors as binary data"


def load_json(text: bytes | bytearray, nan: bool = False, tensors: bool = False) -> dict[str, Any]:
    """Parses a JSON object.

    Args:
        nan: allows NaN, Infinity and -Infinity, with a slower parser.
        tensors: hints of errors may name binary tensors.

    Raises:
        ServeError: not JSON, nested deeper than 1,024 levels, NaN, too many brackets, or not an object.
    """
    if len(text) > MAX_BRACKETS and text.count(b"{") + text.count(b"[") > MAX_BRACKETS:
        what, hint = "the JSON holds too many lists and objects", FLAT_HINT if tensors else None
        raise ServeError(what, expected=f"at most {MAX_BRACKETS}", hint=hint)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not text[max(0, error.pos - 1) : error.pos + 8].lstrip(b"-, [:").startswith((b"NaN", b"Inf")):
            raise ServeError("the body is not JSON", got=str(error)) from None
        if not nan:
            hint = "sending that tensor as binary data, or ox serve --json-nan" if tensors else None
            raise ServeError("NaN and Infinity are not JSON", got=str(error), hint=hint) from None
        document = _load_lenient(text)
    if type(document) is not dict:
        raise ServeError("the body is not a JSON object", expected='{"name": value, ...}', got=quote(document))
    return document


def _load_lenient(text: bytes | bytearray) -> Any:
    """Uses Python's parser, which accepts NaN and infinities."""
    try:
        document = json.loads(text.decode())
        if b"\\u" in text:  # lone surrogates, which cannot be encoded in the response
            orjson.dumps(document)
    except (ValueError, TypeError, RecursionError) as error:
        raise ServeError("the body is not JSON", got=str(error)[:200]) from None
    return document


def parameters_of(owner: Any) -> dict[str, Any]:
    """The parameters of a request, a tensor or a call. One that is null counts as absent.

    Raises:
        ServeError: they are not an object.
    """
    parameters = owner.get("parameters") if type(owner) is dict else None
    if parameters is None:
        return {}
    if type(parameters) is not dict:
        raise ServeError("'parameters' is not an object", got=quote(parameters))
    if None in parameters.values():
        return {name: value for name, value in parameters.items() if value is not None}
    return parameters


def flag(parameters: dict[str, Any], name: str) -> bool:
    value = parameters.get(name)
    if value is None:
        return False
    if type(value) is not bool:
        raise ServeError(f"the parameter {name} is not true or false", got=quote(value))
    return value


def identifier_of(document: dict[str, Any]) -> str | None:
    identifier = document.get("id")
    if identifier is not None and type(identifier) is not str:
        raise ServeError("'id' is not a string", got=quote(identifier))
    return identifier


def quote(value: Any) -> str:
    """A value of the client, shortened for an error message."""
    if isinstance(value, list | dict):  # may be very large and deep
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = f"'{value[:80]}'" if isinstance(value, str) else repr(value)
    if value is None or isinstance(value, bool):
        text = "null" if value is None else text.lower()  # as JSON has them
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: Any, names: Iterable[str], least: float = 0.6) -> str | None:
    close = difflib.get_close_matches(name[:100], list(names), 1, least) if isinstance(name, str) else []
    return f"'{close[0]}'" if close else None


def timestamp(seconds: float) -> str:
    """A time since 1970 in the form of RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
