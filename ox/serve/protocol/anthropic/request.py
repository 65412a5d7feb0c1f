"""The request for a message, translated into one for the next message of a chat."""

from __future__ import annotations

from typing import Any

from ox.serve.protocol.anthropic.blocks import messages_of
from ox.serve.protocol.text.chat_request import ChatCall
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.object_keys import remark_unknown_keys
from ox.serve.protocol.text.parameters import MAX_TOKENS
from ox.serve.protocol.text.prompt import thinking_variables
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.translated_chat import read_translated
from ox.serve.protocol.v2.document import quote

# The client's names of what the chat calls otherwise.
NAMES = {
    "stop": "stop_sequences", "response_format": "output_config.format", "reasoning_effort": "output_config.effort",
    "chat_template_kwargs": "thinking", "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "tools[].function.parameters": "tools[].input_schema", "tools[].function": "tools[]",
    "max_completion_tokens": "max_tokens", "continue_final_message": "messages", "add_generation_prompt": "messages",
}  # fmt: skip
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
EXPECTED_CHOICE = '{"type": "auto"}, {"type": "any"}, {"type": "none"} or {"type": "tool", "name": ...}'
THINKING = {"enabled": True, "adaptive": True, "disabled": False}


def read_message(fields: Fields, model: TextModel) -> ChatCall:
    """Reads a request, except for its model.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown.
        ServeError: what `read_translated` raises.
    """
    fields.required("max_tokens")
    return _read(fields, model, {"max_tokens": fields.whole("max_tokens", 1, MAX_TOKENS)})


def read_count(fields: Fields, model: TextModel) -> ChatCall:
    """Reads a request whose tokens are counted: the same without `max_tokens`. Raises as `read_message`."""
    return _read(fields, model, {}, counting=True)


def _read(fields: Fields, model: TextModel, chat: dict[str, Any], counting: bool = False) -> ChatCall:
    for name in ("container", "mcp_servers"):
        fields.only(name, ([],), "it belongs to Anthropic's service", hint="tools of the client")
    if fields.object("context_management"):  # it saves tokens, where the conversation is long
        fields.remarks.add_unused("context_management")
    remark_unknown_keys(fields, "messages")
    fields.required("messages")
    messages = messages_of(fields.take("messages"), fields.take("system"))
    chat |= {
        "messages": messages, "stop": fields.take("stop_sequences"), **_tools(fields), **_thinking(fields, model),
        **_output(fields),
    }  # fmt: skip
    if messages[-1]["role"] == "assistant":  # the answer continues the client's begin of it
        chat |= {"continue_final_message": True, "add_generation_prompt": False}
    return read_translated("messages", chat, fields.rest(), NAMES, model, fields.remarks, counting)


def _tools(fields: Fields) -> dict[str, Any]:
    """`tools` and `tool_choice`."""
    given, choice = fields.take("tools", []), fields.object("tool_choice")
    if type(given) is not list:
        raise fields.wrong("tools", "a list of tools", given)
    tools = []
    for index, tool in enumerate(given):
        where = f"tools[{index}]"
        kind = tool.get("type", "custom") if isinstance(tool, dict) else None
        if kind != "custom":
            raise ParameterError(
                f"{where}.type", f"tools of type {quote(kind)} are not supported", code="unsupported_parameter",
                expected='{"name": ..., "input_schema": {...}}',
            )  # fmt: skip
        if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), dict):
            expected = '{"name": ..., "input_schema": {...}}'
            raise ParameterError(where, f"'{where}' is wrong", expected=expected, got=quote(tool))
        function = {name: tool[name] for name in ("name", "description", "strict") if tool.get(name) is not None}
        tools.append({"type": "function", "function": {**function, "parameters": tool["input_schema"]}})
    if not tools and choice is None:
        return {}
    kind = "auto" if choice is None else choice.get("type")
    wanted: Any = CHOICES.get(kind) if isinstance(kind, str) else None
    if kind == "tool" and choice is not None:
        wanted = {"type": "function", "function": {"name": choice.get("name")}}
    if wanted is None:
        raise fields.wrong("tool_choice", EXPECTED_CHOICE, choice)
    parallel = choice is None or choice.get("disable_parallel_tool_use") is not True
    return {"tools": tools, "tool_choice": wanted, "parallel_tool_calls": parallel}


def _thinking(fields: Fields, model: TextModel) -> dict[str, Any]:
    """`thinking`, which chat templates may know as `enable_thinking`; how long it may be is not limited."""
    thinking = fields.object("thinking")
    if thinking is None:
        return {}
    kind = thinking.get("type")
    if not isinstance(kind, str) or kind not in THINKING:
        expected = '{"type": "enabled", "budget_tokens": ...} or {"type": "disabled"}'
        raise fields.wrong("thinking", expected, thinking)
    return thinking_variables(fields, "thinking", THINKING[kind], model)


def _output(fields: Fields) -> dict[str, Any]:
    """`output_config`, or the older `output_format`."""
    config = Fields(fields.object("output_config") or {}, "output_config.")
    effort, form, older = config.take("effort"), config.object("format"), fields.object("output_format")
    form = older if form is None else form
    chat = {} if effort is None else {"reasoning_effort": effort}
    if form is None:
        return chat
    if form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise config.wrong("format", '{"type": "json_schema", "schema": {...}}', form)
    schema = {"name": "output", "schema": form["schema"], "strict": True}
    return {**chat, "response_format": {"type": "json_schema", "json_schema": schema}}
