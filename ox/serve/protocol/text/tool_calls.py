"""Calls of tools in the text of a model: found in the text as it comes, where its format is known.

Two formats are known by the source of the chat template: that of Hermes and Qwen, one `<tool_call>{"name": ...,
"arguments": {...}}</tool_call>` for each call, and that of Llama 3, whose whole text is `{"name": ..., "parameters":
{...}}`. The calls of other models stay a part of the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

ToolFormat = Literal["hermes", "llama3", "forced"]  # the last: the whole text is a call, held to its schema
BEGIN, END = "<tool_call>", "</tool_call>"
MAX_HELD = 1 << 20  # characters of one call; a longer one is passed on as text


@dataclass(frozen=True)
class ToolCall:
    """A call: the name of a function, and its arguments as JSON."""

    name: str
    arguments: str


def format_of(source: str) -> ToolFormat | None:
    """How a model writes calls, by its chat template."""
    if BEGIN in source and END in source:
        return "hermes"
    if "<|python_tag|>" in source or '{"name": function name, "parameters"' in source:
        return "llama3"
    return None


def call_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON schema of a call of one of these functions, in OpenAI's form."""
    calls = []
    for tool in tools:
        function = tool["function"]
        arguments = function.get("parameters") or {"type": "object"}
        calls.append({
            "type": "object", "properties": {"name": {"const": function["name"]}, "arguments": arguments},
            "required": ["name", "arguments"], "additionalProperties": False,
        })  # fmt: skip
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


class ToolCallParser:
    """Divides a text into what is shown and calls, while it comes."""

    def __init__(self, form: ToolFormat) -> None:
        self._form = form
        self._held = ""
        self._inside = False  # what is held may be a call
        self._called = False  # of Hermes: there was a call
        self._text_begun = False  # of Llama 3: the text is no call

    def add(self, text: str) -> list[str | ToolCall]:
        """What is known after more text: pieces of text, none of them empty, and calls."""
        if self._form == "llama3":
            return self._add_llama3(text)
        self._held += text
        if self._form == "forced":
            return []
        found: list[str | ToolCall] = []
        while self._held:
            if not self._inside:
                place = self._held.find(BEGIN)
                if place < 0:
                    # spaces before a call are no text, and a call may follow
                    count = len(self._held[: len(self._held) - _overlap(self._held, BEGIN)].rstrip())
                    if count:
                        found.append(self._held[:count])
                        self._held = self._held[count:]
                    break
                if shown := self._held[:place].rstrip():
                    found.append(shown)
                self._held, self._inside = self._held[place:], True
            place = self._held.find(END)
            if place < 0:
                if len(self._held) > MAX_HELD:
                    found.append(self._held)
                    self._held, self._inside = "", False
                break
            whole, self._held, self._inside = self._held[: place + len(END)], self._held[place + len(END) :], False
            call = _call(whole[len(BEGIN) : -len(END)], "arguments")
            self._called = self._called or call is not None
            found.append(call or whole)
        return found

    def finish(self) -> list[str | ToolCall]:
        """What was held back, where the text ends."""
        held, self._held = self._held, ""
        if self._form == "forced":
            return [_call(held, "arguments") or held] if held else []
        if self._form == "llama3":
            calls = _llama3_calls(held)
            if calls:
                return list(calls)
        elif self._inside:
            call = _call(held.removeprefix(BEGIN), "arguments")
            return [call or held] if held else []
        return [held] if held.strip() or (held and not self._called) else []

    def _add_llama3(self, text: str) -> list[str | ToolCall]:
        if self._text_begun:
            return [text] if text else []
        self._held += text
        begin = self._held.lstrip()
        if (begin and not begin.startswith("{")) or len(self._held) > MAX_HELD:
            self._text_begun = True
            shown, self._held = self._held, ""
            return [shown]
        return []


def _llama3_calls(text: str) -> list[ToolCall]:
    """Calls with ";" between them; none if there is anything else."""
    calls, decoder, rest = list[ToolCall](), json.JSONDecoder(), text.strip()
    while rest:
        try:
            _, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return []
        call = _call(rest[:end], "parameters")
        behind = rest[end:].lstrip()
        if call is None or (behind and not behind.startswith(";")):
            return []
        calls.append(call)
        rest = behind[1:].lstrip()
    return calls


def _call(text: str, arguments: str) -> ToolCall | None:
    """A call from its JSON; None if it is none."""
    try:
        document = orjson.loads(text.strip())
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return None
    values = document.get(arguments, {})
    if not isinstance(values, dict):
        return None
    return ToolCall(document["name"], orjson.dumps(values).decode())


def _overlap(text: str, marker: str) -> int:
    """How many of the last characters may be the begin of a marker."""
    return next(
        (count for count in range(min(len(text), len(marker) - 1), 0, -1) if marker.startswith(text[-count:])), 0
    )
