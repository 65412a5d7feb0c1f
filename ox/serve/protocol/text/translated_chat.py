"""Requests of other dialects, translated into OpenAI's chat: errors name the parameters that the client sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.serve.protocol.text.chat_request import ChatCall, read_chat_fields
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.parameters import parameters_in
from ox.serve.protocol.text.remarks import Remarks
from ox.serve.protocol.text.text_model import TextModel


def read_translated(
    dialect: str,
    translated: Mapping[str, Any],
    left: Mapping[str, Any],
    names: Mapping[str, str],
    model: TextModel,
    remarks: Remarks,
    counting: bool = False,
) -> ChatCall:
    """Reads a request that another dialect was translated into.

    Args:
        dialect: the client's, by its name in the declaration of parameters.
        translated: fields of a chat.
        left: parameters that are not translated.
        names: the client's names of what chats call otherwise.
        remarks: collects what is said of parameters without an effect.
        counting: as of `read_chat_fields`.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown, by its name in the client's request.
        ServeError: what `read_chat_fields` raises.
    """
    own = parameters_left(dialect, left, names, remarks)
    return read_chat_fields(Fields({**own, **translated}, names=names, remarks=remarks), model, counting, dialect)


def parameters_left(
    dialect: str, left: Mapping[str, Any], names: Mapping[str, str], remarks: Remarks
) -> dict[str, Any]:
    """What is left of a request, without the parameters that other dialects have and this one lacks: they are unknown
    here. Raises nothing; the arguments are as of `read_translated`."""
    declared, others = parameters_in(dialect), {**parameters_in("completions"), **parameters_in("chat")}
    own = {}
    for name, value in left.items():
        parameter = declared.get(name)
        if name in others and (parameter is None or parameter.names[dialect] != name):
            theirs = names.get(name)
            remarks.add_unknown(name, None if theirs == name else theirs)
        else:
            own[name] = value
    return own
