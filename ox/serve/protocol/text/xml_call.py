"""Reads one tool call in the XML of Qwen3-Coder, while its text comes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ox.serve.generation.json_schema import References
from ox.serve.protocol.text.json_call import SPACE, State, refuse_constant
from ox.serve.protocol.text.marks import overlap

FUNCTION, PARAMETER = "<function=", "<parameter="
END_FUNCTION, END_PARAMETER, END_CALL = "</function>", "</parameter>", "</tool_call>"
LONGEST_NAME = 256
_PYTHON = {"True": "true", "False": "false", "None": "null"}  # as some models write


class XmlCall:
    """One call: `<function=name>`, then `<parameter=key>value</parameter>` for each argument, then `</function>`.

    Values that the function's schema declares as strings are passed on while they come, others when they are complete,
    as JSON of the declared type. Of a parameter that stands there twice the first value counts.

    Args:
        offered: the schemas of arguments, by the names of the functions.

    Attributes:
        state: "failed" where the function is not offered.
        name: once it is known, else None.
    """

    def __init__(self, offered: Mapping[str, Mapping[str, Any]]) -> None:
        self._offered = offered
        self._step = self._open
        self._rest = ""
        self._keys = set[str]()
        self._again = False  # the parameter was there before
        self._first = True  # of a value
        self._types: frozenset[str] = frozenset()
        self._parts: list[str] = []  # of a value that is not a string
        self.state: State = "reading"
        self.name: str | None = None

    @property
    def whole(self) -> bool:
        """Whether the arguments that were passed on are a JSON object."""
        return self.state == "complete"

    def close(self) -> str:
        """The rest of the arguments, where the text ends: none, because others may be missing."""
        return ""

    def add(self, text: str) -> tuple[str, int]:
        """More text, from the first character on that was not read.

        Returns:
            a part of the arguments as JSON, and how many characters were read. `name` is set before the first part.
        """
        self._rest = text
        parts = list[str]()
        while self.state == "reading" and (part := self._step()) is not None:
            parts.append(part)
        return "".join(parts), len(text) - len(self._rest)

    def _open(self) -> str | None:
        rest = self._rest
        name, mark, after = rest.removeprefix(FUNCTION).partition(">")
        if not rest.startswith(FUNCTION):
            known = FUNCTION.startswith(rest)
        elif mark:
            known = name.strip() in self._offered
        else:
            known = len(name) <= LONGEST_NAME
        if not known:
            self.state = "failed"
        if not known or not mark or not rest.startswith(FUNCTION):
            return None
        self.name, self._rest, self._step = name.strip(), after, self._between
        self._properties = References(self._offered[self.name])
        return "{"

    def _between(self) -> str | None:
        rest = self._rest = self._rest.lstrip(SPACE)
        if rest.startswith(PARAMETER):
            key, mark, after = rest.removeprefix(PARAMETER).partition(">")
            return self._begin_value(key.strip(), after) if mark else None
        if rest.startswith((END_FUNCTION, END_CALL)):  # some models leave the first one out
            self._rest, self.state = rest.removeprefix(END_FUNCTION), "complete"
            return "}"
        if any(mark.startswith(rest) for mark in (PARAMETER, END_FUNCTION, END_CALL)):
            return None
        self._rest = rest[1:]  # what belongs to no parameter
        return ""

    def _begin_value(self, key: str, after: str) -> str:
        self._rest, self._first, self._parts, self._step = after, True, [], self._value
        self._again = key in self._keys
        if self._again:
            return ""
        self._types = self._properties.types(key)
        comma = ", " if self._keys else ""
        self._keys.add(key)
        return f"{comma}{_json(key)}: " + ('"' if self._types == {"string"} else "")

    def _value(self) -> str | None:
        rest = self._rest
        if self._first and rest:
            rest, self._first = rest.removeprefix("\n"), False
        place = rest.find(END_PARAMETER)
        if place >= 0:
            value, self._rest, self._step = rest[:place].removesuffix("\n"), rest[place:], self._end_value
        else:
            count = len(rest) - overlap(rest, END_PARAMETER, f"\n{END_PARAMETER}")
            value, self._rest = rest[:count], rest[count:]
        if self._again:
            value = ""
        elif self._types == {"string"}:
            value = _json(value)[1:-1]
        else:
            self._parts.append(value)
            value = ""
        return value if value or place >= 0 else None

    def _end_value(self) -> str:
        self._rest, self._step = self._rest.removeprefix(END_PARAMETER), self._between
        if self._again:
            return ""
        return '"' if self._types == {"string"} else typed("".join(self._parts), self._types)


def typed(value: str, types: frozenset[str]) -> str:
    """The JSON of a value of one of these types; of a string where it is no JSON of another one.

    Args:
        types: names of JSON schema; none where the schema does not tell.
    """
    text = _PYTHON.get(value.strip(), value.strip())
    try:
        document = json.loads(text, parse_int=_Integer, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return _json(value)
    kind = _kind(document)
    numeric = kind == "integer" and "number" in types
    return text if kind != "string" and (not types or kind in types or numeric) else _json(value)


class _Integer:
    """A whole number of any length, which is not converted."""

    def __init__(self, text: str) -> None:
        pass


def _kind(document: Any) -> str:
    if document is None:
        return "null"
    kinds = {bool: "boolean", _Integer: "integer", float: "number", str: "string", dict: "object"}
    return kinds.get(type(document), "array")


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
