"""Requests of other dialects, translated into OpenAI's chat: errors name the parameters that the client sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.serve.protocol.text.chat_request import ChatCall, read_chat_fields
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.remarks import Remarks
from ox.serve.protocol.text.text_model import TextModel

OTHERS = {"n": "several requests", "functions": "'tools'"}
UNSHOWN = ("prompt_logprobs", "return_tokens_as_token_ids")  # what answers of other dialects have no room for


def read_translated(
    translated: Mapping[str, Any],
    left: Mapping[str, Any],
    names: Mapping[str, str],
    model: TextModel,
    remarks: Remarks,
    counting: bool = False,
) -> ChatCall:
    """Reads a request that another dialect was translated into.

    Args:
        translated: fields of a chat.
        left: parameters that the dialect does not have; those of chats work, unless they have another name here.
        names: the client's names of what chats call otherwise.
        remarks: collects what is said of parameters without an effect.
        counting: as of `read_chat_fields`.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown, by its name in the client's request.
        ServeError: what `read_chat_fields` raises.
    """
    for name in left:
        theirs = names.get(name, name)
        hint = f"'{theirs}'" if theirs != name else OTHERS.get(name)
        if hint is not None:
            raise ParameterError(name, f"'{name}' is not a parameter of this API", code="unknown_parameter", hint=hint)
    for name in UNSHOWN:
        if name in left:
            remarks.add_unused(name)
    left = {name: value for name, value in left.items() if name not in UNSHOWN}
    return read_chat_fields(Fields({**left, **translated}, names=names, remarks=remarks), model, counting)
