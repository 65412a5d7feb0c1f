"""Reads one tool call that a model writes as JSON, while its text comes."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from decimal import Decimal
from typing import Any, Literal

SPACE = " \t\r\n"
ARGUMENTS = ("arguments", "parameters")
KEYS = (*ARGUMENTS, "name", "function", "id", "type")  # of a call; other keys are a sign of another document
_IN_STRING = re.compile(r'["\\\x00-\x1f]')
_AFTER_PRIMITIVE = re.compile(r"[,}\]\s]")
_HEX, _HIGH, _LOW = "[0-9a-fA-F]", "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = re.compile(rf"\\u(?:{_HIGH}|{_LOW})")  # of a surrogate pair
_WHOLE_ESCAPE = re.compile(rf"\\(?:[^u]|u{_HEX}{{4}}|u{_HIGH}\\u{_LOW})", re.DOTALL)
_BEGIN_OF_ESCAPE = re.compile(rf"\\(?:u(?:{_HEX}{{0,3}}|{_HIGH}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?))")
_REPLACEMENT = r"\ufffd"

State = Literal["reading", "complete", "failed"]


class JsonValue:
    """Finds the end of a JSON value. Control characters in strings are escaped, which makes the text valid JSON. Half
    of a surrogate pair, which is not a character, becomes U+FFFD: clients could not send it back.

    Attributes:
        complete: whether its end has come.
        in_string: whether a string has begun, and its end has not come.
    """

    def __init__(self) -> None:
        self._depth, self.in_string, self._begun = 0, False, False
        self._escape = ""  # the begin of one, until its end has come
        self.complete = False

    def add(self, text: str, start: int) -> tuple[str, int]:
        """More of the value.

        Args:
            text: its characters from `start` on; the first one of all is not a space.

        Returns:
            the part of the value, and the index of the first character after it.
        """
        parts, index, begin, size = list[str](), start, start, len(text)
        while index < size and not self.complete:
            if self._escape:
                part, count = self._more_of_escape(text[index])
                parts.append(part)
                begin = index = index + count
            elif self.in_string:
                match = _IN_STRING.search(text, index)
                if match is None:
                    index = size
                    break
                index, character = match.start(), match.group()
                if character == '"':
                    self.in_string = False
                    self.complete = self._depth == 0
                elif character == "\\":
                    parts.append(text[begin:index])
                    self._escape, begin = character, index + 1
                else:
                    parts += [text[begin:index], json.dumps(character)[1:-1]]
                    begin = index + 1
                index += 1
            else:
                index = self._outside(text, index)
        parts.append(text[begin:index])
        return "".join(parts), index

    def _more_of_escape(self, character: str) -> tuple[str, int]:
        """What is passed on of an escape, and how many characters were read."""
        before, whole = self._escape, self._escape + character
        self._escape = whole if _BEGIN_OF_ESCAPE.fullmatch(whole) else ""
        if self._escape:
            return "", 1
        if _WHOLE_ESCAPE.fullmatch(whole):
            return _REPLACEMENT if _HALF.fullmatch(whole) else whole, 1
        half = _HALF.match(before)
        self._escape = before[6:] if half else ""
        return _REPLACEMENT if half else before, 0

    def _outside(self, text: str, index: int) -> int:
        """Reads on outside of a string; returns the next index."""
        character = text[index]
        if character == '"':
            self.in_string = self._begun = True
        elif character in "{[":
            self._depth += 1
            self._begun = True
        elif character in "}]" and self._depth:
            self._depth -= 1
            self.complete = self._depth == 0
        elif self._depth == 0:  # a number, or a word
            if self._begun and _AFTER_PRIMITIVE.match(character):
                self.complete = True
                return index
            self._begun = True
        return index + 1


class JsonCall:
    """One call: `{"name": ..., "arguments": {...}}`, or the value of its arguments alone.

    Arguments that are an object are passed on while they come, once the name is known. Those that are a string of JSON
    or null are converted when they are complete, and arguments that are missing are an empty object. Where a call has
    arguments twice, such as under both keys, those that are not empty count; two that differ are an error of the model:
    the arguments are not completed.

    Args:
        offered: the names of the functions.
        bare: whether there is no mark before the object. Then it is not a call if it has unknown keys or no arguments.
        name: of a call whose name was read before; the text is its arguments.

    Attributes:
        state: "failed" where the text is not a call of an offered function.
        name: once the call is certain, else None.
        whole: whether the arguments that were passed on are a JSON object.
    """

    def __init__(self, offered: Container[str], bare: bool = False, name: str | None = None) -> None:
        self._offered, self._bare = offered, bare
        self._members: dict[str, str] = {}  # as JSON
        self._arguments: list[str] = []  # under either key
        self._key = "arguments" if name is not None else ""
        self._known = name
        self._single = name is not None
        self._step = "value" if self._single else "open"
        self._value = JsonValue()
        self._text: list[str] = []  # of the value or key that is being read
        self._streams: bool | None = None  # whether the value is passed on; None while that is not known
        self.state: State = "reading"
        self.name: str | None = None
        self.whole = False

    def add(self, text: str) -> tuple[str, int]:
        """More text.

        Returns:
            a part of the arguments as JSON, and how many characters were read. `name` is set before the first part.
        """
        index, parts, size = 0, list[str](), len(text)
        while index < size and self.state == "reading":
            character = text[index]
            if self._step == "inside":
                undecided = self._streams is None  # then one character at a time: it may begin the mark of another call
                part, count = self._value.add(text[index : index + 1 if undecided else size], 0)
                part = self._pass_on(part)
                failed = undecided and self.name is None and self.state != "reading"
                index += 0 if failed else count
                if part:
                    parts.append(part)
                continue
            if character in SPACE:
                index += 1
                continue
            if self._step == "value" or (self._step == "key" and character == '"'):
                self._begin_value(character)
                continue
            if self._arguments and self._step in ("after", "key") and character not in ",}":
                parts.append(self._end())  # its brace is missing
                break
            index += 1
            part = self._mark(character)
            if part:
                parts.append(part)
        return "".join(parts), index

    def close(self) -> str:
        """The rest of the arguments, where the text ends: "" where they are cut off, or were passed on."""
        return self._end() if self._arguments and self._step == "after" and self.state == "reading" else ""

    def _mark(self, character: str) -> str:
        """A character between keys and values."""
        step = (self._step, character)
        if step == ("open", "{"):
            self._step = "key"
        elif step == ("colon", ":"):
            self._step = "value"
        elif step == ("after", ","):
            self._step = "key"
        elif step in (("key", "}"), ("after", "}")):
            return self._end()
        else:
            self.state = "failed"
        return ""

    def _begin_value(self, character: str) -> None:
        self._value, self._text = JsonValue(), []
        known = self._step == "value" and self._key in ARGUMENTS and self.name is None and self._known is not None
        self._streams = None if known and character == "{" else False
        self._after = "colon" if self._step == "key" else "after"
        self._step = "inside"

    def _pass_on(self, part: str) -> str:
        """A part of a key or value; returns what is passed on of it."""
        if self._streams is None:
            self._text.append(part)
            held = "".join(self._text)
            second = held[1:].lstrip()[:1]
            if not second:
                return ""
            if second not in '"}':  # such as {city: "Paris"}, which is not JSON
                self.state = "failed"
                return ""
            self._streams, part = second == '"', held  # an empty object may be followed by others
            if self._streams:
                self.name = self._known
        else:
            self._text.append(part)
        if self._value.complete:
            self._complete("".join(self._text))
            part = part[:-1]  # its brace is passed on at the end of the call: other arguments may follow
        part = part if self._streams else ""
        return part + self._end() if self._single and self._value.complete else part

    def _complete(self, value: str) -> None:
        """A key or a value is complete."""
        self._step = self._after
        if self._after == "colon":
            key = _loads(value)
            self._key = key if isinstance(key, str) else ""
            if self._bare and self._key not in KEYS and self.name is None:
                self.state = "failed"
            return
        if self._key in ARGUMENTS:
            self._arguments.append(value)
        self._members.setdefault(self._key, value)
        if self._key in ("name", "function") and self._known is None:
            name = _loads(value)
            if isinstance(name, str):
                self._known = name
                if name not in self._offered:
                    self.state = "failed"
            elif self._key == "name":
                self.state = "failed"

    def _end(self) -> str:
        """The object is complete."""
        if self.name is not None:  # its arguments were passed on, but for their brace
            self.state, self.whole = "complete", joined(self._arguments) is not None
            last = self._arguments[0][-1]  # of arguments that are not JSON perhaps another bracket, which stays
            return "}" if self.whole else last if len(self._arguments) == 1 else ""
        function = self._members.get("function", "")
        if self._known is None and function.startswith("{"):  # OpenAI's form
            nested = JsonCall(self._offered, self._bare)
            arguments, _ = nested.add(function)
            self.name, self.state, self.whole = nested.name, nested.state, nested.whole
            return arguments
        document = not self._arguments and (self._bare or set(self._members) - set(KEYS))
        whole = None if document else joined(self._arguments)
        if not isinstance(self._known, str) or self._known not in self._offered or whole is None:
            self.state = "failed"
            return ""
        self.name, self.state, self.whole = self._known, "complete", True
        return whole


def joined(values: list[str]) -> str | None:
    """The arguments of a call that has them several times: the one object that is not empty; None where two differ."""
    objects = [arguments_of(value) for value in values]
    if len(objects) == 1:
        return objects[0]
    found = [each for each in objects if each is None or _loads(each)]
    if None in found or any(_loads(each or "") != _loads(found[0] or "") for each in found):
        return None
    return found[0] if found else "{}"


def arguments_of(value: str) -> str | None:
    """The arguments of a call as a JSON object: from an object, null or a string that spells one of these; None from
    anything else."""
    document = _loads(value)
    if isinstance(document, str):
        value, _ = JsonValue().add(document.strip() or "{}", 0)
        document = _loads(value)
    if isinstance(document, dict):
        return value
    return "{}" if document is None and value.strip() == "null" else None


def _loads(value: str) -> Any:
    """A value of JSON, with whole numbers of any length, which Python refuses to convert; None where it is wrong."""
    try:
        return json.loads(value, parse_int=Decimal, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None


def refuse_constant(name: str) -> Any:
    """Raises ValueError for NaN and the infinities, which Python reads although they are not JSON."""
    raise ValueError(f"{name} is not JSON")
