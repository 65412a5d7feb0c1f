"""The messages and tools of a chat, checked, in the form in which templates take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.v2.document import quote

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 4096
MAX_TOOLS = 128


def read_messages(fields: Fields) -> list[dict[str, Any]]:
    """The messages; contents are texts.

    Raises:
        ParameterError: one has no role, another role, or a content that is no text.
    """
    fields.required("messages")
    given = fields.take("messages")
    if type(given) is not list or not 0 < len(given) <= MAX_MESSAGES:
        raise fields.wrong("messages", f"a list of 1 to {MAX_MESSAGES} messages", given)
    return [_message(message, f"messages[{place}]") for place, message in enumerate(given)]


class Tools(NamedTuple):
    """What the template gets, and those of which the model must call one; none where it decides itself."""

    offered: list[dict[str, Any]]
    forced: list[dict[str, Any]]


def read_tools(fields: Fields) -> Tools:
    """`tools` and `tool_choice`.

    Raises:
        ParameterError: a tool is no function with a name, or a choice of one that there is not.
    """
    tools = fields.take("tools", [])
    if type(tools) is not list or len(tools) > MAX_TOOLS:
        raise fields.wrong("tools", f"a list of at most {MAX_TOOLS} tools", tools)
    for place, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        good = isinstance(function, dict) and isinstance(function.get("name"), str) and tool.get("type") == "function"
        if not good:
            expected = '{"type": "function", "function": {"name": ..., "parameters": {...}}}'
            raise _wrong(f"tools[{place}]", expected, tool)
    choice = fields.take("tool_choice", "auto")
    parallel = fields.flag("parallel_tool_calls", True)
    if choice in ("none", "auto"):
        if not parallel:
            hint = '"tool_choice": "required" makes one call'
            raise ParameterError("parallel_tool_calls", "the model decides how many calls it makes", hint=hint)
        return Tools([] if choice == "none" else tools, [])
    forced = tools
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        forced = [tool for tool in tools if tool["function"]["name"] == name]
    elif choice != "required":
        forced = []
    if not forced:
        expected = '"none", "auto", "required", or {"type": "function", "function": {"name": one of the tools}}'
        raise _wrong("tool_choice", expected, choice)
    return Tools(tools, forced)


def _message(message: Any, where: str) -> dict[str, Any]:
    if type(message) is not dict:
        raise _wrong(where, '{"role": "user", "content": "..."}', message)
    role = message.get("role")
    if role not in ROLES:
        raise _wrong(f"{where}.role", ", ".join(ROLES), role)
    read = {**message, "content": _content(message.get("content"), f"{where}.content")}
    calls = message.get("tool_calls")
    if calls is not None:
        read["tool_calls"] = _tool_calls(calls, f"{where}.tool_calls")
    elif read["content"] is None:
        raise ParameterError(f"{where}.content", f"'{where}' has no content", expected="a string")
    if read["content"] is None:
        read["content"] = ""
    if role == "developer":  # OpenAI's newer word; templates know the older one
        read["role"] = "system"
    return read


def _content(content: Any, where: str) -> str | None:
    """A text, or the texts of a list of parts."""
    if content is None or isinstance(content, str):
        return content
    expected = 'a string, or a list of {"type": "text", "text": ...}'
    if not isinstance(content, list):
        raise _wrong(where, expected, content)
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            got = quote(part.get("type")) if isinstance(part, dict) else quote(part)
            raise ParameterError(where, f"'{where}' has a part that is no text", expected=expected, got=got)
        texts.append(part["text"])
    return "".join(texts)


def _wrong(where: str, expected: str, value: Any) -> ParameterError:
    return ParameterError(where, f"'{where}' is wrong", expected=expected, got=quote(value))


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Calls of an earlier answer: templates want their arguments as objects, OpenAI's form has them as JSON."""
    if type(calls) is not list or len(calls) > MAX_TOOLS:
        raise _wrong(where, f"a list of at most {MAX_TOOLS} calls", calls)
    read = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            expected = '{"id": ..., "type": "function", "function": {"name": ..., "arguments": "{...}"}}'
            raise ParameterError(where, f"'{where}' has a call that is wrong", expected=expected, got=quote(call))
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = orjson.loads(arguments or "{}")
            except orjson.JSONDecodeError:
                raise _wrong(where, "arguments that are JSON", arguments) from None
        read.append({**call, "function": {**function, "arguments": arguments}})
    return read
