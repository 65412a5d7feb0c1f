"""The messages and tools of a chat, checked, in the form in which templates take them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ox.errors import ServeError
from ox.serve.generation.json_schema import check_size
from ox.serve.protocol.text.fields import Fields, ParameterError, string_in, wrong
from ox.serve.protocol.text.json_call import JsonValue
from ox.serve.protocol.v2.document import quote

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 4096
MAX_TOOLS = 128
_NAME = re.compile(r"[\w.:/\-]{1,128}")
_CHOICES = """"none", "auto", "required", or one of the tools: {"type": "function", "function": {"name": ...}}, \
{"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [{"type": "function", ...}]}}"""


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
    """The functions that the model may call.

    Attributes:
        offered: what the template gets.
        schemas: of the arguments of those that may be called, by their names.
        places: of these schemas in the request, for errors.
        strict: the names of those whose arguments are held to the schema.
        required: whether the model must call one.
        most: how many calls there may be; None for any number.
    """

    offered: list[dict[str, Any]]
    schemas: dict[str, dict[str, Any]]
    places: dict[str, str]
    strict: frozenset[str]
    required: bool
    most: int | None


def read_tools(fields: Fields) -> Tools:
    """`tools`, `tool_choice` and `parallel_tool_calls`.

    Raises:
        ParameterError: a tool is not a function with a name, two have the same one, or the choice is of one that there
            is not.
    """
    given = fields.take("tools", [])
    if type(given) is not list or len(given) > MAX_TOOLS:
        got = f"a list of {len(given)}" if type(given) is list else quote(given)
        raise ParameterError(
            fields.shown("tools"), "'tools' is wrong", expected=f"a list of at most {MAX_TOOLS} tools", got=got
        )
    tools, places = dict[str, dict[str, Any]](), dict[str, str]()
    for index, tool in enumerate(given):
        where = f"tools[{index}].function"
        place = fields.shown(f"{where}.parameters")
        name = _check_tool(tool, f"tools[{index}]", place)
        if name in tools:
            raise ParameterError(f"{where}.name", f"'{where}.name' has the same name as another tool",
                                 expected="a name for each", got=quote(name))  # fmt: skip
        tools[name], places[name] = tool, f"function '{name}', {place}"
    most = None if fields.flag("parallel_tool_calls", True) else 1
    mode, names = _choice(fields.take("tool_choice", "auto"), list(tools))
    offered = {} if mode == "none" else {name: tools[name] for name in names}
    if mode == "function":
        offered, most = tools, 1
    functions = {name: tools[name]["function"] for name in names if mode != "none"}
    schemas = {name: _of_object(function.get("parameters") or {}) for name, function in functions.items()}
    strict = frozenset(name for name, function in functions.items() if function.get("strict") is True)
    return Tools([*offered.values()], schemas, places, strict, mode in ("required", "function"), most)


def _check_tool(tool: Any, where: str, place: str) -> str:
    """The name of a tool's function; `place` is that of its schema in the client's request."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type", "function") != "function":
        raise wrong(where, '{"type": "function", "function": {"name": ..., "parameters": {...}}}', tool)
    name, schema = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise wrong(f"{where}.function.name", "1 to 128 letters, digits, '_', '-', '.', ':' or '/'", name)
    if not isinstance(schema, dict | None):
        raise wrong(f"{where}.function.parameters", "a JSON schema, as an object", schema)
    try:
        check_size(schema, place)
    except ServeError as error:
        raise ParameterError(f"{where}.function.parameters", error.what, where=place, expected=error.expected,
                             got=error.got, hint=error.hint) from None  # fmt: skip
    if not isinstance(function.get("strict"), bool | None):
        raise wrong(f"{where}.function.strict", "true or false", function["strict"])
    return name


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of arguments, which are an object also where the schema does not say so."""
    return schema if {"type", "$ref", "anyOf", "oneOf", "allOf"} & set(schema) else {"type": "object", **schema}


def _choice(choice: Any, names: list[str]) -> tuple[str, list[str]]:
    """The mode of a `tool_choice`, "none", "auto", "required" or "function", and the functions that may be called."""
    if choice in ("none", "auto") or (choice == "required" and names):
        return choice, names
    kind = choice.get("type") if isinstance(choice, dict) else None
    if choice == "required":
        raise wrong("tool_choice", "functions in 'tools', of which one is called", choice)
    if kind == "function" and isinstance(name := _function_name(choice), str):
        if name in names:
            return "function", [name]
        raise wrong("tool_choice", "the name of a function in 'tools'", name)
    if kind == "allowed_tools":
        allowed = choice.get("allowed_tools", choice)
        mode, tools = (allowed.get("mode", "auto"), allowed.get("tools")) if isinstance(allowed, dict) else (None, None)
        chosen = [_function_name(tool) for tool in tools] if isinstance(tools, list) else []
        if mode in ("auto", "required") and chosen and all(name in names for name in chosen):
            return mode, [name for name in names if name in chosen]
        if missing := [name for name in chosen if isinstance(name, str) and name not in names]:
            raise wrong("tool_choice", "names of functions in 'tools'", missing[0])
    raise wrong("tool_choice", _CHOICES, choice)


def _function_name(document: Any) -> Any:
    """The name in `{"type": "function", "function": {"name": ...}}`, or as OpenAI's Responses have it."""
    if not isinstance(document, dict):
        return None
    function = document.get("function")
    return function.get("name") if isinstance(function, dict) else document.get("name")


def _message(message: Any, where: str) -> dict[str, Any]:
    if type(message) is not dict:
        raise wrong(where, '{"role": "user", "content": "..."}', message)
    role = message.get("role")
    if role not in ROLES:
        raise wrong(f"{where}.role", ", ".join(ROLES), role)
    read = {name: value for name, value in message.items() if value is not None}
    content, calls = _content(message.get("content"), f"{where}.content", role), read.pop("tool_calls", None)
    if calls:
        read["tool_calls"] = _tool_calls(calls, f"{where}.tool_calls")
    if role == "assistant":
        content = _text(message, "refusal", where) if content is None else content
        reasoning = _text(message, "reasoning_content", where) or _text(message, "reasoning", where)
        if reasoning is not None:
            read["reasoning_content"] = reasoning
    elif content is None and role != "tool":
        raise ParameterError(f"{where}.content", f"'{where}' has no content", expected="a string")
    read["content"] = content or ""
    if role == "developer":  # OpenAI's newer word; templates know the older one
        read["role"] = "system"
    return read


def _text(message: dict[str, Any], name: str, where: str) -> str | None:
    return None if message.get(name) is None else string_in(message, name, where)


def joined(texts: Iterable[str], role: str) -> str:
    """The text of a message of several parts, each on lines of its own. Those of the assistant are pieces of one text
    that the model has written.

    >>> joined(["a", "b"], "user")
    'a\\nb'
    """
    return ("" if role == "assistant" else "\n").join(texts)


def _content(content: Any, where: str, role: str) -> str | None:
    """A text, or the texts of a list of parts."""
    if content is None or isinstance(content, str):
        return content
    expected = 'a string, or a list of {"type": "text", "text": ...}'
    if not isinstance(content, list):
        raise wrong(where, expected, content)
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get(kind) if kind in ("text", "refusal") else None
        if not isinstance(text, str):
            got = quote(kind) if isinstance(part, dict) else quote(part)
            raise ParameterError(where, f"'{where}' has a part that is no text", expected=expected, got=got)
        texts.append(text)
    return joined(texts, role)


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Calls of an earlier answer: templates want their arguments as objects, OpenAI's form has them as JSON."""
    if type(calls) is not list or len(calls) > MAX_TOOLS:
        raise wrong(where, f"a list of at most {MAX_TOOLS} calls", calls)
    read = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            expected = '{"id": ..., "type": "function", "function": {"name": ..., "arguments": "{...}"}}'
            raise ParameterError(where, f"'{where}' has a call that is wrong", expected=expected, got=quote(call))
        read.append({**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}})
    return read


def _arguments(arguments: Any) -> Any:
    """An object where it is one; else what the model has written, which may be broken JSON."""
    if isinstance(arguments, str):
        try:
            document = json.loads(arguments or "{}")
            if "\\u" in arguments and isinstance(document, dict):  # half of a surrogate pair cannot be tokenized
                document = json.loads(JsonValue().add(arguments.lstrip(), 0)[0])
        except (ValueError, RecursionError):
            return arguments
        return document if isinstance(document, dict) else arguments
    return {} if arguments is None else arguments
