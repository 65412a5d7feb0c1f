"""Reads one tool call in the XML of Qwen3-Coder, while its text comes."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from typing import Any

from ox.serve.generation.json_schema import References
from ox.serve.protocol.text.json_call import SPACE, JsonValue, State, refuse_constant
from ox.serve.protocol.text.xml_values import END_PARAMETER, is_verbatim, is_writable

FUNCTION, PARAMETER = "<function=", "<parameter="
END_FUNCTION, END_CALL = "</function>", "</tool_call>"
LONGEST_NAME = 256
# What may be the begin of the end of a value.
_TAIL = re.compile(
    rf"\n?(?:<(?:/?[a-z_]*|parameter=[^>\n]{{0,{LONGEST_NAME}}}|/parameter\s{{0,8}}|"
    rf"/function>\s{{0,8}}(?:</?[a-z_]*)?))?\Z"
)
_PYTHON = {"True": "true", "False": "false", "None": "null"}  # as some models write


class XmlCall:
    """One call: `<function=name>`, then `<parameter=key>value</parameter>` for each argument, then `</function>`.

    Values that the function's schema declares as strings are passed on while they come, others when they are complete,
    as JSON of the declared type. Of a parameter that stands there twice the first value counts. A value whose end mark
    is missing, as some models leave it out, ends before a line with the next parameter, or with the end of the call.

    Args:
        offered: the schemas of arguments, by the names of the functions.
        strict: the names of those whose arguments a grammar holds to the schema.

    Attributes:
        state: "failed" where the function is not offered.
        name: once it is known, else None.
    """

    def __init__(self, offered: Mapping[str, Mapping[str, Any]], strict: Container[str] = ()) -> None:
        self._offered, self._strict = offered, strict
        self._step = self._open
        self._rest = ""
        self._keys = set[str]()
        self._again = False  # the parameter was there before
        self._first = True  # of a value
        self._types: frozenset[str] = frozenset()
        self._verbatim = False  # whether the value is a string as it stands there; else it is JSON
        self._parts: list[str] = []  # of JSON
        self._json = JsonValue()
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
        self._rest, self._first, self._step = after, True, self._value
        self._parts, self._json = [], JsonValue()
        self._again = key in self._keys
        if self._again:
            return ""
        self._types = self._properties.types(key)
        self._verbatim = is_verbatim(self._properties, key, self.name in self._strict)
        comma = ", " if self._keys else ""
        self._keys.add(key)
        self._ends = self._ends_of_value()
        return f"{comma}{_json(key)}: " + ('"' if self._verbatim else "")

    def _value(self) -> str | None:
        rest = self._rest
        if self._first and rest:
            rest, self._first = rest.removeprefix("\n"), False
        end = self._ends.search(rest)
        place = end.start() if end else _TAIL.search(rest).start()  # type: ignore[union-attr]
        value, self._rest = rest[:place], rest[place:]
        marked = end is not None and end[0][0] == "<"
        if not self._verbatim:
            self._add_json(value)
            # JSON has no line breaks in strings: a mark after one is not a part of a string
            if marked and self._json.in_string and not value.endswith("\n"):
                self._add_json(self._rest[0])
                self._rest = self._rest[1:]
                return ""
            value = ""
        if end is not None:
            self._step = self._end_value
        if end is not None and marked:
            value, self._rest = value.removesuffix("\n"), rest[end.end() :]
        value = "" if self._again else _json(value)[1:-1]
        return value if value or end is not None else None

    def _ends_of_value(self) -> re.Pattern[str]:
        """What ends the value that begins; of a strict function that is what the grammar has."""
        if self.name in self._strict:
            return re.compile(END_PARAMETER)
        keys = [key for key in self._properties.properties.keys() - self._keys if is_writable(key)]
        following = "|".join(re.escape(key) for key in keys if len(key) < LONGEST_NAME // 2)
        others = rf"\n{PARAMETER}(?:{following})>|" if following else ""
        return re.compile(rf"</parameter\s{{0,8}}>|{others}\n{END_FUNCTION}\s{{0,8}}{END_CALL}")

    def _add_json(self, text: str) -> None:
        text = text if self._parts else text.lstrip()
        if text:
            self._parts.append(text)
        if self._parts and self._parts[0][0] in '{["':
            self._json.add(text, 0)

    def _end_value(self) -> str:
        self._step = self._between
        if self._again:
            return ""
        return '"' if self._verbatim else typed("".join(self._parts).removesuffix("\n"), self._types)


def typed(value: str, types: frozenset[str]) -> str:
    """The JSON of a value of one of these types; of a string where it is not JSON of another one.

    Args:
        types: names of JSON schema; none where the schema does not tell.
    """
    text = value.strip()
    text = _PYTHON.get(text, text)
    if "boolean" in types and text.lower() in ("true", "false"):
        text = text.lower()
    read, end = JsonValue().add(text, 0)
    text = read + text[end:]
    try:
        document = json.loads(text, parse_int=_Integer, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return _json(value)
    kind = _kind(document)
    numeric = kind == "integer" and "number" in types
    absent = kind == "null" and "string" not in types
    # a string with quotes, as grammars write it beside values of other types
    return text if kind == "string" or not types or kind in types or numeric or absent else _json(value)


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
