"""The items of a conversation in the form of responses, as the messages of a chat."""

from __future__ import annotations

from typing import Any

from ox.serve.protocol.text.fields import ParameterError, string_in, wrong
from ox.serve.protocol.text.messages import MAX_MESSAGES, joined
from ox.serve.protocol.v2.document import quote

Item = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant")
TEXTS = ("input_text", "output_text", "text")
KINDS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")
PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def read_items(value: Any, key: str) -> list[Item]:
    """The parameter `input` as items, checked, each with an id.

    Args:
        value: a string, or a list of items.
        key: of the response, a part of the ids.

    Raises:
        ParameterError: an item is wrong, or of a kind that is not supported.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if type(value) is not list or not len(value) <= MAX_MESSAGES:
        raise wrong("input", f"a string, or a list of at most {MAX_MESSAGES} items", value)
    items = []
    for index, item in enumerate(value):
        where = f"input[{index}]"
        kind = item.get("type") or ("message" if "role" in item else None) if isinstance(item, dict) else None
        if kind not in KINDS:
            if not isinstance(kind, str):
                raise wrong(where, 'an item, {"type": "message", "role": "user", "content": "..."}', item)
            raise ParameterError(
                f"{where}.type", f"items of type {quote(kind)} are not supported", code="unsupported_parameter",
                expected=", ".join(KINDS),
            )  # fmt: skip
        read = _READERS[kind](item, where)
        if kind != "item_reference":
            given = item.get("id")
            read["id"] = given if isinstance(given, str) and given else f"{PREFIXES[kind]}_{key}_in{index}"
        items.append({"type": kind, **read})
    return items


def messages_of(items: list[Item]) -> list[dict[str, Any]]:
    """The messages of a chat. Calls and reasoning become parts of the assistant's message that they belong to."""
    messages: list[dict[str, Any]] = []
    reasoning = ""

    def assistant() -> dict[str, Any]:
        """The assistant's message that an item is a part of."""
        nonlocal reasoning
        if not messages or messages[-1]["role"] != "assistant" or reasoning:
            messages.append({"role": "assistant", "content": None})
        if reasoning:
            messages[-1]["reasoning_content"], reasoning = reasoning, ""
        return messages[-1]

    for item in items:
        kind = item["type"]
        if kind == "reasoning":
            reasoning += "".join(part["text"] for part in item["content"] or item["summary"])
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            assistant().setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": _text(item["output"], "tool")})
        elif item["role"] == "assistant" and (reasoning or not messages or messages[-1]["role"] != "assistant"):
            assistant()["content"] = _text(item["content"], "assistant")
        else:
            messages.append({"role": item["role"], "content": _text(item["content"], item["role"])})
    if reasoning:
        assistant()["content"] = ""
    return messages


def _text(content: Any, role: str) -> str:
    """The text of a content that was checked."""
    if isinstance(content, str):
        return content
    return joined((part["refusal" if part["type"] == "refusal" else "text"] for part in content), role)


def _message(item: Item, where: str) -> Item:
    role = item.get("role")
    if role not in ROLES:
        raise wrong(f"{where}.role", ", ".join(ROLES), role)
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {"role": role, "content": _parts(content, f"{where}.content"), "status": "completed"}


def _parts(content: Any, where: str) -> list[Item]:
    """A list of parts, all of them texts."""
    if not isinstance(content, list):
        raise wrong(where, 'a string, or a list of {"type": "input_text", "text": ...}', content)
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" else "text") if kind in (*TEXTS, "refusal") else None
        if not isinstance(text, str):
            raise ParameterError(
                f"{where}[{index}]", f"'{where}[{index}]' is not a text", code="unsupported_parameter",
                expected='{"type": "input_text", "text": ...}', got=quote(kind if kind is not None else part),
            )  # fmt: skip
    return content


def _function_call(item: Item, where: str) -> Item:
    names = ("call_id", "name", "arguments")
    return {**{name: string_in(item, name, where) for name in names}, "status": "completed"}


def _function_call_output(item: Item, where: str) -> Item:
    output = item.get("output")
    if not isinstance(output, str):
        output = _parts(output, f"{where}.output")
    return {"call_id": string_in(item, "call_id", where), "output": output, "status": "completed"}


def _reasoning(item: Item, where: str) -> Item:
    """Encrypted reasoning, which other servers make, is dropped: only they can read it."""
    read = {}
    for name in ("summary", "content"):
        parts = item.get(name) or []
        if not isinstance(parts, list) or not all(
            isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts
        ):
            raise wrong(f"{where}.{name}", 'a list of {"type": "...", "text": "..."}', parts)
        read[name] = parts
    return read


def _item_reference(item: Item, where: str) -> Item:
    return {"id": string_in(item, "id", where)}


_READERS = {
    "message": _message, "function_call": _function_call, "function_call_output": _function_call_output,
    "reasoning": _reasoning, "item_reference": _item_reference,
}  # fmt: skip
