"""Parameters of a request: those that the protocol defines are checked, others are passed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.errors import ServeError
from ox.serve.protocol.v2.document import quote
from ox.serve.protocol.v2.request import NO_PARAMETERS

MAX_PARAMETERS = 64
MAX_SEQUENCE_ID = 128  # characters of a sequence id, as in Triton
SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")


def check(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checks the parameters for the model and its queue; returns `NO_PARAMETERS` if there are none.

    `binary_data_output` is about the response and is left out.

    Raises:
        ServeError: too many parameters, or a value of a wrong type or range.
    """
    if len(parameters) > MAX_PARAMETERS:
        raise ServeError(f"{len(parameters)} parameters", expected=f"at most {MAX_PARAMETERS}")
    checked = {}
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
        checked[name] = value
    return checked or NO_PARAMETERS


def echoed_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the response repeats: those of its sequence."""
    if "sequence_id" not in parameters:
        return {}
    return {name: parameters.get(name, False) for name in SEQUENCE}


def _sequence(value: Any) -> None:
    if type(value) is str and len(value) > MAX_SEQUENCE_ID:
        raise ServeError("the parameter sequence_id is too long", expected=f"at most {MAX_SEQUENCE_ID} characters")
    if type(value) not in (int, str) or (type(value) is int and not 0 <= value < 1 << 64):
        raise _wrong("sequence_id", "a whole number or a string", value)


def _wrong(name: str, expected: str, value: Any) -> ServeError:
    return ServeError(f"the parameter {quote(name)} is wrong", expected=expected, got=quote(value))
