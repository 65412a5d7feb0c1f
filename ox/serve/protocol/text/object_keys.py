"""The keys of the objects inside of requests, such as messages, parts of contents and tools; for each dialect.

A key that is not declared here counts as an unknown parameter. Declared are those that are read, and those that clients
send with earlier answers, such as `annotations`, which have no effect here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ox.serve.protocol.text.chat_template import ChatTemplate
from ox.serve.protocol.text.fields import Fields


class Keys(NamedTuple):
    """The keys of an object.

    Attributes:
        read: those that may have an effect.
        known: these, and those that are taken without a remark.
        inside: the keys of the objects, or lists of objects, under some of them.
    """

    read: tuple[str, ...]
    known: frozenset[str]
    inside: Mapping[str, Keys]


def _keys(read: str, quiet: str = "", **inside: Keys) -> Keys:
    names = (*read.split(), *inside)
    return Keys(names, frozenset([*names, *quiet.split()]), inside)


_PART = _keys(
    "type text refusal", "annotations citations logprobs parsed id index extras cache_control prompt_cache_breakpoint"
)
_CALL = _keys(
    "id type", "index cache_control extra_content provider_specific_fields thought_signature",
    function=_keys("name arguments", "parsed_arguments index description provider_specific_fields"),
)  # fmt: skip
_ANSWER = (  # of an earlier answer, or of other servers
    "audio function_call annotations citations reasoning_details reasoning_signature thinking_blocks parsed phase "
    "prefix weight id index type status model created metadata cache_control prompt_cache_breakpoint "
    "provider_specific_fields"
)
_READ = "role name tool_call_id refusal reasoning_content reasoning"
_MESSAGE = _keys(_READ, f"{_ANSWER} images thinking tool_name", content=_PART, tool_calls=_CALL)
_OF_OLLAMA = _keys(f"{_READ} tool_name thinking images", _ANSWER, content=_PART, tool_calls=_CALL)
_SAID = "allowed_callers async cache_control defer_loading input_examples output_schema return"  # of functions
_TOOL = _keys("type", "cache_control defer_loading allowed_callers",
              function=_keys("name description parameters strict", _SAID))  # fmt: skip
_SCHEMA = _keys("schema strict", "name description")
_FORMAT = _keys("type schema", json_schema=_SCHEMA)
_CHOICE = _keys(
    "type", function=_keys("name"), allowed_tools=_keys("mode", tools=_keys("type", function=_keys("name")))
)
_ITEM = _keys(
    "type role id call_id name arguments",
    "status phase parsed_arguments namespace caller async async_ encrypted_content created_by agent metadata "
    "provider_data provider_specific_fields",
    content=_PART, output=_PART, summary=_PART,
)  # fmt: skip
_BLOCK = ("type text thinking data id name input tool_use_id title context source",
          "signature citations cache_control caller toolset_name is_error index")  # fmt: skip
_BLOCKS = _keys(*_BLOCK, content=_keys(*_BLOCK))

OBJECT_KEYS: Mapping[str, Mapping[str, Keys]] = {
    "completions": {"response_format": _FORMAT},
    "chat": {"messages": _MESSAGE, "tools": _TOOL, "tool_choice": _CHOICE, "response_format": _FORMAT},
    "ollama": {"messages": _OF_OLLAMA, "tools": _TOOL},
    "responses": {
        "input": _ITEM,
        "tools": _keys("type name description parameters strict", _SAID),
        "tool_choice": _keys("type name mode", tools=_keys("type name")),
        "text": _keys("verbosity", format=_keys("type schema strict", "name description")),
        "reasoning": _keys("effort", "summary generate_summary"),
    },
    "messages": {
        "messages": _keys("role", "id type model stop_reason stop_sequence stop_details usage container diagnostics "
                          "context_management cache_control", content=_BLOCKS),
        "system": _BLOCKS,
        "tools": _keys("type name description input_schema strict", f"{_SAID} eager_input_streaming"),
        "tool_choice": _keys("type name disable_parallel_tool_use"),
        "thinking": _keys("type", "budget_tokens display"),
        "output_config": _keys("effort", format=_keys("type schema", "name")),
        "output_format": _keys("type schema", "name"),
    },
}  # fmt: skip


def remark_unknown_keys(fields: Fields, dialect: str, template: ChatTemplate | None = None) -> None:
    """Remarks the unknown keys of a request's objects, each one once; null counts as absent.

    Args:
        fields: the request, before it is read.
        dialect: its dialect.
        template: gets the messages as they are, so that each name in it is the name of a key that may have an effect.
    """
    for name, keys in OBJECT_KEYS[dialect].items():
        _remark(fields, fields.peek(name), keys, name, set() if template is None else set(template.names))


def _remark(fields: Fields, value: Any, keys: Keys, place: str, seen: set[str]) -> None:
    for index, each in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(each, dict):
            continue
        where = f"{place}[{index}]" if isinstance(value, list) else place
        for name in each:
            if name not in keys.known and name not in seen and each[name] is not None:
                seen.add(name)
                fields.remark_unknown(name, where, keys.read)
        for name, inner in keys.inside.items():
            if name in each:
                _remark(fields, each[name], inner, f"{where}.{name}", seen)
