"""The prompt of a chat: what the request says of its making beside the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ox.serve.protocol.text.chat_template import SPECIAL
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.text_model import TextModel

MAX_VARIABLES = 64 << 10  # bytes of chat_template_kwargs as JSON
OWN = ("messages", "tools", "chat_template", *SPECIAL)  # what is not the request's to say, or has its own parameter


def read_template_variables(fields: Fields, model: TextModel, values: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the chat template beside messages and tools.

    Args:
        fields: the request.
        model: whose template it is.
        values: what was read before.

    Raises:
        ParameterError: one may not be set, they are too large, or two contradict each other.
    """
    variables: dict[str, Any] = {}
    source = "" if model.template is None else model.template.source
    if "documents" in fields:
        if "documents" not in source:
            fields.only(
                "documents", (), "the model's chat template has no place for them", hint="texts in the messages"
            )
        variables["documents"] = _objects(fields, "documents")
    if "reasoning_effort" in fields:
        variables["reasoning_effort"] = fields.text("reasoning_effort")
        if "reasoning_effort" not in source:
            fields.remarks.add_unused(fields.shown("reasoning_effort"))
    goes_on = values.get("continue_final_message", False)
    begins = values.get("add_generation_prompt", not goes_on)
    if goes_on and begins:
        raise ParameterError("continue_final_message", "the answer cannot both continue a message and begin one",
                             hint='"add_generation_prompt": false')  # fmt: skip
    variables["add_generation_prompt"] = begins
    if goes_on:
        variables["continue_final_message"] = True
    given = fields.object("chat_template_kwargs")
    if given:
        _check_variables(given, fields)
        variables |= given
        for name in given:
            if model.template is not None and name not in model.template.names:
                fields.remarks.add_unused(f"{fields.shown('chat_template_kwargs')}.{name}")
    return variables


def thinking_variables(
    fields: Fields, name: str, wanted: bool, model: TextModel, effort: str | None = None
) -> dict[str, Any]:
    """Whether the model reasons before it answers, as parameters of a chat.

    Args:
        fields: the request, whose parameter `name` says so; it is remarked where it changes nothing.
        name: of this parameter.
        wanted: what it says.
        model: whose template may have the variables `enable_thinking` and `reasoning_effort`.
        effort: how much it reasons, where the request says it.
    """
    names = frozenset[str]() if model.template is None else model.template.names
    chat: dict[str, Any] = {}
    if "enable_thinking" in names:
        chat["chat_template_kwargs"] = {"enable_thinking": wanted}
    if effort is not None and "reasoning_effort" in names:
        chat["reasoning_effort"] = effort
    if not chat and wanted is not (model.reasoning is not None):
        fields.remarks.add_unused(name)
    return chat


def _check_variables(given: Mapping[str, Any], fields: Fields) -> None:
    shown = fields.shown("chat_template_kwargs")
    for name in given:
        if name in OWN or not name.isidentifier() or name.startswith("_"):
            expected = f"names of variables, none of them {', '.join(OWN)}"
            raise ParameterError(f"{shown}.{name[:40]}", f"'{shown}' may not set this variable", expected=expected,
                                 got=name[:40])  # fmt: skip
    size = len(orjson.dumps(given))
    if size > MAX_VARIABLES:
        raise ParameterError(shown, f"'{shown}' is too large", expected=f"at most {MAX_VARIABLES} bytes of JSON",
                             got=str(size))  # fmt: skip


def _objects(fields: Fields, name: str) -> list[dict[str, Any]]:
    value = fields.take(name)
    if type(value) is not list or not all(type(each) is dict for each in value):
        raise fields.wrong(name, "a list of objects", value)
    return value


def truncated(prompt: Sequence[int], most: int | None, model: TextModel, max_tokens: int | None) -> Sequence[int]:
    """The last `most` tokens of a prompt; those that the context has room for beside the text, if it is -1."""
    if most is None:
        return prompt
    if most < 0:
        most = max(1, model.engine.context_length - (1 if max_tokens is None else max_tokens))
    return prompt[-most:] if most else []
