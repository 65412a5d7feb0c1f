"""How models write calls of tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Arguments = Literal["arguments", "parameters"]


@dataclass(frozen=True)
class ToolFormat:
    """The format of a family of models.

    Attributes:
        name: what settings call it.
        begins: marks, one of which stands before a call.
        end: the mark after it; "" for none.
        bare: whether a text that begins with an object of JSON may be a call, without a mark.
        key: the name of the arguments in a call.
        named: whether the name of the function stands before its arguments, outside of JSON: `name[ARGS]{...}`.
        listed: whether calls stand in a list.
        xml: whether calls are XML.
        marks: all marks, which must be seen where they are special tokens.
        id_length: of the ids of calls, where the templates of the models ask for one.
    """

    name: str
    begins: tuple[str, ...] = ()
    end: str = ""
    bare: bool = False
    key: Arguments = "arguments"
    named: bool = False
    listed: bool = False
    xml: bool = False
    marks: tuple[str, ...] = ()
    id_length: int | None = None


HERMES = ToolFormat("hermes", ("<tool_call>",), "</tool_call>", marks=("<tool_call>", "</tool_call>"))
LLAMA3 = ToolFormat("llama3", ("<|python_tag|>",), bare=True, key="parameters", marks=("<|python_tag|>",))
QWEN3_CODER = ToolFormat(
    "qwen3_coder", ("<tool_call>", "<function="), "</tool_call>", xml=True, marks=("<tool_call>", "</tool_call>")
)
MISTRAL = ToolFormat(
    "mistral", ("[TOOL_CALLS]",), listed=True, marks=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"), id_length=9
)
MISTRAL_NAMED = ToolFormat("mistral", MISTRAL.begins, named=True, marks=MISTRAL.marks, id_length=9)
PHI = ToolFormat(
    "phi", ("functools", "<|tool_call|>"), "<|/tool_call|>", listed=True, marks=("<|tool_call|>", "<|/tool_call|>")
)
BARE = ToolFormat("json", bare=True)  # of models whose format is not known, where a call is required

_NAMED = {each.name: each for each in (HERMES, LLAMA3, QWEN3_CODER, MISTRAL, PHI)}


def find_format(source: str) -> ToolFormat | None:
    """How a model writes calls, by the source of its chat template; None if that is not known."""
    if "<arg_key>" in source:  # of GLM, which marks calls as Hermes does
        return None
    if "<function=" in source and "<parameter=" in source:
        return QWEN3_CODER
    if "<tool_call>" in source:
        return HERMES
    if "[TOOL_CALLS]" in source:
        return MISTRAL_NAMED if "[ARGS]" in source else MISTRAL
    if "<|python_tag|>" in source or '{"name": function name, "parameters"' in source:
        return LLAMA3
    if "functools[" in source or "<|tool_call|>" in source or "<|/tool|>" in source:
        return PHI
    return None


def named_format(name: str, source: str) -> ToolFormat:
    """The format that the setting `tool_parser` names; of several variants, that of the chat template."""
    found = find_format(source)
    return found if found is not None and found.name == name else _NAMED[name]
