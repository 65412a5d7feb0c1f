"""Requests of other dialects, translated into OpenAI's chat: errors name the parameters that the client sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.serve.protocol.text.chat_request import ChatCall, read_chat
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.remarks import Remarks
from ox.serve.protocol.text.text_model import TextModel


def read_translated(
    document: Mapping[str, Any], names: Mapping[str, str], model: TextModel, remarks: Remarks
) -> ChatCall:
    """Reads the fields of a chat that another dialect was translated into.

    Args:
        document: the fields.
        names: the client's names by those of the document, where they differ.
        remarks: collects what is said of parameters without an effect.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown, by its name in the client's request.
        ServeError: what `read_chat` raises.
    """
    fields = Fields(document, names=names, remarks=remarks)
    try:
        return read_chat(fields, model)
    except ParameterError as error:
        raise fields.renamed(error) from None
