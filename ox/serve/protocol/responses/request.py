"""The request for a response, translated into one for the next message of a chat."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import orjson

from ox.serve.generation.request import GenerationRequest
from ox.serve.protocol.responses.input_items import Item, messages_of, read_items
from ox.serve.protocol.text.chat_request import ChatCall
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.object_keys import remark_unknown_keys
from ox.serve.protocol.text.parameters import MAX_NOTE, MAX_NOTE_KEY, MAX_NOTES, MAX_TOKENS
from ox.serve.protocol.text.response_store import FOUND, ResponseStore
from ox.serve.protocol.text.sampling import TextOptions
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.translated_chat import read_translated
from ox.serve.protocol.v2.document import quote

# The client's names of what the chat calls otherwise.
NAMES = {
    "messages": "input", "max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format", "tools[].function": "tools[]",
    "verbosity": "text.verbosity", "reasoning_effort": "reasoning.effort", "logprobs": "include",
}  # fmt: skip
MAX_LEVELS = 250  # that orjson writes, less those around it
LOGPROBS = "message.output_text.logprobs"
INCLUDED = {LOGPROBS, "reasoning.encrypted_content"}  # clients that send reasoning back get it as plain text
KEY_BYTES = 16  # of the random part of ids, by which alone a response without an owner is found
EXPECTED_FORMAT = '{"type": "json_schema", "name": ..., "schema": {...}}, {"type": "json_object"} or {"type": "text"}'


@dataclass(frozen=True)
class ResponseCall:
    """A request that was read.

    Attributes:
        chat: the same as a request for a chat.
        key: the random part of all ids of the response.
        owner: who may read the response later.
        document: what the response repeats of the request, of which large values are JSON already.
        store: where to put the response; None to forget it.
        input, context: the items of the request, and those of the conversation before them, as JSON.
    """

    chat: ChatCall
    key: str
    owner: str
    document: dict[str, Any]
    store: ResponseStore | None
    input: bytes
    context: bytes

    @property
    def options(self) -> TextOptions:
        return self.chat.options

    def requests(self, client: str) -> list[GenerationRequest]:
        """The one request for the engine."""
        return self.chat.requests(client)


def read_response(
    fields: Fields, model: TextModel, responses: ResponseStore, owner: str, counting: bool = False
) -> ResponseCall:
    """Reads a request, except for its model.

    Args:
        responses: has the earlier responses.
        owner: of those that the client may continue.
        counting: as of `read_chat_fields`.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown, or there is no such earlier response.
        ServeError: what `read_translated` raises.
    """
    key = secrets.token_hex(KEY_BYTES)
    remark_unknown_keys(fields, "responses")
    _refuse(fields)
    truncation = _truncation(fields)
    instructions, previous = fields.text("instructions") or None, fields.text("previous_response_id") or None
    fields.required("input")
    items = read_items(fields.take("input"), key)
    context = [] if previous is None else conversation(responses, previous, owner)
    items = _resolved(items, context, responses, owner)
    messages = messages_of([*context, *items])
    if instructions is not None:
        messages.insert(0, {"role": "system", "content": instructions})
    if not messages:
        raise fields.wrong("input", "an item or more", [])
    store, metadata = fields.flag("store", True), _metadata(fields)
    tools, choice = fields.take("tools", []), fields.take("tool_choice", "auto")
    if type(tools) is not list:
        raise fields.wrong("tools", "a list of tools", tools)
    if not isinstance(choice, dict) and choice not in ("auto", "none", "required"):
        raise fields.wrong("tool_choice", "auto, none, required, or an object", choice)
    text, reasoning = fields.object("text") or {}, fields.object("reasoning") or {}
    include, top = _include(fields), fields.whole("top_logprobs", 0, 20)
    maximum, parallel = fields.whole("max_output_tokens", 1, MAX_TOKENS), fields.flag("parallel_tool_calls", True)
    left = fields.rest()
    chat = {
        "messages": messages, "tools": _chat_tools(tools), "tool_choice": _chat_choice(choice),
        "parallel_tool_calls": parallel, "max_completion_tokens": maximum,
        **_chat_text(text), **_chat_reasoning(reasoning),
    }  # fmt: skip
    if not tools:  # then the choice says nothing
        for name in ("tools", "tool_choice", "parallel_tool_calls"):
            chat.pop(name)
    if top or LOGPROBS in include:
        chat |= {"logprobs": True, "top_logprobs": top or 0}
    call = read_translated("responses", chat, left, NAMES, model, fields.remarks, counting)
    repeated = {"instructions": instructions, "text": {"format": {"type": "text"}, **text}, "tool_choice": choice,
                "tools": tools, "user": left.get("user"), "safety_identifier": left.get("safety_identifier"),
                "prompt_cache_key": left.get("prompt_cache_key")}  # fmt: skip
    written = {name: _written(name, value) for name, value in repeated.items()}
    own, before = _written("input", items), orjson.dumps(context)
    size = len(own) + len(before) + sum(map(len, written.values()))
    if store and responses.enabled and not responses.fits(size):
        fields.remarks.add_unused("store")
    store = store and responses.fits(size)
    document = {
        **{name: orjson.Fragment(value) for name, value in written.items()}, "max_output_tokens": maximum,
        "metadata": metadata, "model": model.name, "parallel_tool_calls": parallel, "previous_response_id": previous,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None}, "store": store,
        "temperature": call.options.sampling.temperature, "top_logprobs": top or 0,
        "top_p": call.options.sampling.top_p, "truncation": truncation, "service_tier": "default",
        "background": False, "max_tool_calls": left.get("max_tool_calls"),
    }  # fmt: skip
    return ResponseCall(call, key, owner, document, responses if store else None, own, before)


def _written(name: str, value: Any) -> bytes:
    """What a response repeats, as JSON. Raises ParameterError if it is nested too deep to be written again."""
    try:
        return orjson.dumps([[[[value]]]])[4:-4]  # as deep as it is written in events
    except TypeError:
        raise ParameterError(name, f"'{name}' is nested too deep", expected=f"at most {MAX_LEVELS} levels") from None


def _metadata(fields: Fields) -> dict[str, str]:
    """The client's notes, in OpenAI's bounds."""
    metadata = fields.object("metadata") or {}
    good = len(metadata) <= MAX_NOTES and all(
        len(key) <= MAX_NOTE_KEY and isinstance(value, str) and len(value) <= MAX_NOTE
        for key, value in metadata.items()
    )
    if not good:
        expected = f"at most {MAX_NOTES} strings of up to {MAX_NOTE} characters, with names of up to {MAX_NOTE_KEY}"
        raise fields.wrong("metadata", expected, metadata)
    return metadata


def conversation(responses: ResponseStore, identifier: str, owner: str) -> list[Item]:
    """All items of the conversation that ended with an earlier response.

    Raises:
        ParameterError: this owner has no such response.
    """
    found = responses.get(identifier, owner)
    if found is None:
        raise ParameterError(
            "previous_response_id", f"Previous response with id {quote(identifier)} not found",
            code="previous_response_not_found",
            expected=FOUND, hint="the whole conversation as 'input'",
        )  # fmt: skip
    output = orjson.loads(found.document)["output"]
    return [*orjson.loads(found.context), *orjson.loads(found.input), *output]


def _resolved(items: list[Item], context: list[Item], responses: ResponseStore, owner: str) -> list[Item]:
    """The items, with those that references name; the ids of items contain that of their response.

    References to items that the context has already add nothing."""
    resolved, known = [], {item.get("id") for item in context}
    for index, item in enumerate(items):
        if item["type"] != "item_reference":
            resolved.append(item)
            continue
        identifier = item["id"]
        if identifier in known:
            continue
        key = identifier.partition("_")[2].partition("_")[0]
        found = responses.get(f"resp_{key}", owner)
        stored = [] if found is None else orjson.loads(found.input) + orjson.loads(found.document)["output"]
        match = next((each for each in stored if each["id"] == identifier), None)
        if match is None:
            what = f"Item with id {quote(identifier)} not found"
            raise ParameterError(f"input[{index}].id", what, status=404, hint="the item itself in place of a reference")
        resolved.append(match)
    return resolved


def _refuse(fields: Fields) -> None:
    """Parameters that need what this server does not have."""
    fields.only("background", (False,), "responses are not made in the background", hint="a stream")
    for name in ("conversation", "prompt"):
        fields.only(name, (), "it is kept by OpenAI's service", hint="'input' and 'previous_response_id'")


def _truncation(fields: Fields) -> str:
    """`truncation` and `context_management`, which are about conversations that are too long; those are errors here."""
    truncation, management = fields.text("truncation", "disabled"), fields.take("context_management", [])
    if truncation not in ("auto", "disabled"):
        raise fields.wrong("truncation", "auto or disabled", truncation)
    if type(management) is not list:
        raise fields.wrong("context_management", "a list of objects", management)
    if truncation == "auto":
        fields.remarks.add_unused("truncation")
    if management:
        fields.remarks.add_unused("context_management")
    return truncation


def _include(fields: Fields) -> list[str]:
    """Most of what can be included belongs to built-in tools and to encrypted reasoning, which are never there."""
    include = fields.take("include", [])
    if type(include) is not list or not all(isinstance(each, str) for each in include):
        raise fields.wrong("include", f'a list of names such as "{LOGPROBS}"', include)
    if set(include) - INCLUDED:
        fields.remarks.add_unused("include")
    return include


def _chat_tools(tools: list[Any]) -> list[Any]:
    """Functions in the form of chats; other kinds of tools are refused by name."""
    read = []
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind != "function":
            raise ParameterError(
                f"{where}.type", f"tools of type {quote(kind)} are not supported", code="unsupported_parameter",
                expected='{"type": "function", "name": ..., "parameters": {...}}',
            )  # fmt: skip
        if not isinstance(tool.get("name"), str):
            expected = "the name of the function, a string"
            raise ParameterError(f"{where}.name", f"'{where}.name' is wrong", expected=expected, got=quote(tool))
        names = ("name", "description", "parameters", "strict")
        function = {name: tool[name] for name in names if tool.get(name) is not None}
        read.append({"type": "function", "function": function})
    return read


def _chat_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        tools = [_named(tool) for tool in tools] if isinstance(tools, list) else tools
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": tools}}
    return _named(choice)


def _named(choice: Any) -> Any:
    """The choice of a function; others are left to the reader of chats, which refuses them."""
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return choice
    return {"type": "function", "function": {"name": choice.get("name")}}


def _chat_text(text: dict[str, Any]) -> dict[str, Any]:
    """`text` as the parameters of a chat."""
    form, verbosity = Fields(text, "text.").object("format"), text.get("verbosity")
    chat: dict[str, Any] = {} if verbosity is None else {"verbosity": verbosity}
    if form is None:
        return chat
    if form.get("type") == "json_schema":
        if not isinstance(form.get("schema"), dict):
            raise ParameterError("text.format.schema", "the schema is missing", expected=EXPECTED_FORMAT)
        form = {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}
    elif form.get("type") not in ("text", "json_object"):
        raise ParameterError("text.format", "'text.format' is wrong", expected=EXPECTED_FORMAT, got=quote(form))
    return {**chat, "response_format": form}


def _chat_reasoning(reasoning: dict[str, Any]) -> dict[str, Any]:
    """`reasoning` as the parameters of a chat. Reasoning is shown whole, so that a summary is never made."""
    effort = reasoning.get("effort")
    return {} if effort is None else {"reasoning_effort": effort}
