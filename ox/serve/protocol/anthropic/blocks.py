"""The messages of Anthropic's API, which are made of blocks, as the messages of a chat."""

from __future__ import annotations

from typing import Any

from ox.serve.protocol.text.fields import ParameterError, string_in, wrong
from ox.serve.protocol.text.messages import MAX_MESSAGES, joined
from ox.serve.protocol.v2.document import quote

Message = dict[str, Any]
TEXTS = ("text", "document", "search_result")
# Kinds of blocks, by the role of their message.
KINDS = {
    "user": (*TEXTS, "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
}


def messages_of(value: Any, system: Any) -> list[Message]:
    """The messages of a chat.

    Args:
        value: the parameter `messages`.
        system: the parameter `system`; None without it.

    Raises:
        ParameterError: a message is wrong, or has a block that is not supported.
    """
    if type(value) is not list or not 0 < len(value) <= MAX_MESSAGES:
        raise wrong("messages", f"a list of 1 to {MAX_MESSAGES} messages", value)
    messages: list[Message] = []
    if system is not None:
        messages.append({"role": "system", "content": _text(system, "system")})
    for index, message in enumerate(value):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise wrong(where, '{"role": "user", "content": "..."}', message)
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or role not in KINDS:
            raise wrong(f"{where}.role", ", ".join(KINDS), role)
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = _blocks(content, f"{where}.content", KINDS[role])
        messages += (_assistant if role == "assistant" else _others)(blocks, f"{where}.content", role)
    return messages


def _others(blocks: list[dict[str, Any]], where: str, role: str) -> list[Message]:
    """Messages of the user or the system. Results of tools are messages of their own."""
    messages: list[Message] = []
    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        if block["type"] == "tool_result":
            content = block.get("content")
            text = "" if content is None else _text(content, f"{place}.content", TEXTS)
            messages.append({"role": "tool", "tool_call_id": string_in(block, "tool_use_id", place), "content": text})
        elif messages and messages[-1]["role"] == role:
            messages[-1]["content"] = joined([messages[-1]["content"], _block_text(block, place)], role)
        else:
            messages.append({"role": role, "content": _block_text(block, place)})
    return messages or [{"role": role, "content": ""}]


def _assistant(blocks: list[dict[str, Any]], where: str, role: str) -> list[Message]:
    """One message; thinking that is redacted is dropped, because only the server that made it can read it."""
    text, thinking, calls = "", "", []
    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        if block["type"] == "text":
            text += string_in(block, "text", place)
        elif block["type"] == "thinking":
            thinking += string_in(block, "thinking", place)
        elif block["type"] == "tool_use":
            arguments = block.get("input")
            if not isinstance(arguments, dict):
                raise wrong(f"{place}.input", "an object", arguments)
            function = {"name": string_in(block, "name", place), "arguments": arguments}
            calls.append({"id": string_in(block, "id", place), "type": "function", "function": function})
    message: Message = {"role": role, "content": text}
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message |= {"content": text or None, "tool_calls": calls}
    return [message]


def _blocks(content: Any, where: str, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    """A list of blocks of these kinds."""
    if not isinstance(content, list):
        raise wrong(where, "a string, or a list of blocks", content)
    for index, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in kinds:
            if not isinstance(kind, str):
                raise wrong(f"{where}[{index}]", '{"type": "text", "text": ...}', block)
            raise ParameterError(
                f"{where}[{index}].type", f"'{where}[{index}]': blocks of type {quote(kind)} are not supported here",
                expected=", ".join(kinds), code="unsupported_parameter",
            )  # fmt: skip
    return content


def _text(content: Any, where: str, kinds: tuple[str, ...] = ("text",)) -> str:
    """A text, or the texts of blocks, each on lines of its own."""
    if isinstance(content, str):
        return content
    blocks = _blocks(content, where, kinds)
    return "\n".join(_block_text(block, f"{where}[{index}]") for index, block in enumerate(blocks))


def _block_text(block: dict[str, Any], where: str) -> str:
    """The text of a block. That of a document or a search result begins with its title, and ends with an empty line."""
    if block["type"] == "text":
        return string_in(block, "text", where)
    if block["type"] == "search_result":
        names, text = ("title", "source"), _text(block.get("content"), f"{where}.content")
    else:
        names, text = ("title", "context"), _document(block.get("source"), f"{where}.source")
    head = [string_in(block, name, where) for name in names if block.get(name) is not None]
    return "\n".join([*head, text, ""])


def _document(source: Any, where: str) -> str:
    """The text of a document, which is in the request."""
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "text":
        return string_in(source, "data", where)
    if kind == "content":
        return _text(source.get("content"), f"{where}.content")
    what = f"'{where}': documents of type {quote(kind)} are not supported"
    raise ParameterError(f"{where}.type", what, expected="text, content", code="unsupported_parameter")
