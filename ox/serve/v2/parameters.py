"""The parameters of a whole request: those that the protocol defines are checked, others pass through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.errors import ServeError
from ox.serve.v2.document import quote
from ox.serve.v2.request import NONE

MOST = 64
LONGEST = 128  # characters of a sequence's name, as with Triton
SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")


def check(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters that concern the model and its queue; `NONE` if there are none.

    `binary_data_output` says how to answer, so it is not among them.

    Raises:
        ServeError: too many of them, a value that is no number, string or truth, or one that its name does not allow.
    """
    if len(parameters) > MOST:
        raise ServeError(f"{len(parameters)} parameters", expected=f"at most {MOST}")
    kept = {}
    for name, value in parameters.items():
        if name == "binary_data_output":
            continue
        if not isinstance(value, str | int | float):
            raise _wrong(name, "a number, a string, true or false", value)
        if name in ("sequence_start", "sequence_end"):
            if type(value) is not bool:
                raise _wrong(name, "true or false", value)
        elif name == "sequence_id":
            _sequence(value)
        elif name == "priority":
            if type(value) is not int or not 0 <= value < 1 << 32:
                raise _wrong(name, "a whole number from 0 to 4294967295", value)
        elif name == "timeout" and (type(value) is not int or not 0 <= value < 1 << 63):
            raise _wrong(name, "microseconds, a whole number", value)
        kept[name] = value
    return kept or NONE


def echoed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the answer repeats: which sequence it belongs to."""
    if "sequence_id" not in parameters:
        return {}
    return {name: parameters.get(name, False) for name in SEQUENCE}


def _sequence(value: Any) -> None:
    if type(value) is str and len(value) > LONGEST:
        raise ServeError("the parameter sequence_id is too long", expected=f"at most {LONGEST} characters")
    if type(value) not in (int, str) or (type(value) is int and not 0 <= value < 1 << 64):
        raise _wrong("sequence_id", "a whole number or a string", value)


def _wrong(name: str, expected: str, value: Any) -> ServeError:
    return ServeError(f"the parameter {quote(name)} is wrong", expected=expected, got=quote(value))
