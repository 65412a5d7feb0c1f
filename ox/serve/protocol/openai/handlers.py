"""The handlers of OpenAI's API, and the schemas of what they take and answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import orjson

from ox.errors import ServeError
from ox.serve.access.client import Client
from ox.serve.protocol.openai.completions import CompletionCall
from ox.serve.protocol.openai.embeddings import KINDS as EMBEDDING_KINDS
from ox.serve.protocol.openai.requests import named_model, read_fields
from ox.serve.protocol.openai.rerank import KINDS as RERANK_KINDS
from ox.serve.protocol.rest.routing import Context, Handler, HandlerResult, PathParameters, Reply
from ox.serve.protocol.rest.routing import Fields as Schemas
from ox.serve.protocol.text.chat_request import ChatCall
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.parameters import schemas_in
from ox.serve.protocol.text.text_answer import TextAnswer
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.v2.document import timestamp
from ox.serve.repository.model import Model
from ox.serve.transport.http import Exchange

C = TypeVar("C", CompletionCall, ChatCall)


def texts(read: Callable[[Fields, TextModel], C], answer: Callable[[C, Exchange, Client], TextAnswer]) -> Handler:
    """A handler that answers with texts.

    Args:
        read: reads the fields of a request.
        answer: makes what writes the answer.
    """

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
        fields = read_fields(context, exchange)
        wanted = named_model(context, exchange, fields, context.text.find)
        return context.text.begin(exchange, wanted, partial(read, fields, wanted), partial(start, context, exchange))

    def start(context: Context, exchange: Exchange, call: C) -> None:
        client = context.text.client(exchange)
        answer(call, exchange, client).start(context.text, call.requests(client.name), call.options.choices)

    return handle


def models(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """The models that the client may read and that answer one of the routes here: they make texts, vectors of texts, or
    scores of documents."""
    client = context.text.client(exchange)
    found = {each.name: each for each in reversed(context.service.repository.models()) if client.may("read", each.name)}
    documents = (_model_document(each) for each in reversed(found.values()))
    data = [each for each in documents if each is not None]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    pages = {"has_more": False, "first_id": first, "last_id": last}  # Anthropic's
    return Reply(orjson.dumps({"object": "list", "data": data, **pages}))


def model(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """One of these models."""
    try:
        found = context.service.repository.find(names["model"])
    except ServeError as error:
        raise ParameterError("model", error.what, code="model_not_found", status=404, expected=error.expected) from None
    document = _model_document(found)
    if document is None:
        what = f"model '{found.name}' makes neither texts nor vectors or scores of texts"
        raise ParameterError("model", what, code="model_not_found", status=404, hint="inference with tensors")
    return Reply(orjson.dumps(document))


def _model_document(model: Model) -> dict[str, Any] | None:
    """OpenAI's and Anthropic's description of a model; None if it answers none of the routes here."""
    longest = None
    if model.text is not None:
        longest = model.text.engine.context_length
    elif model.text_tensors is not None and model.text_tensors.kind in (*EMBEDDING_KINDS, *RERANK_KINDS):
        longest = model.text_tensors.tokenizer.max_length
    if longest is None:
        return None
    created = int(model.stages.start_s)
    return {
        "id": model.name, "object": "model", "created": created, "owned_by": "ox", "max_model_len": longest,
        "type": "model", "display_name": model.name, "created_at": timestamp(created),
    }  # fmt: skip


# ---- JSON schemas of fields

COMPLETION: Schemas = schemas_in("completions")
CHAT: Schemas = schemas_in("chat")
USAGE: Schemas = {name: {"type": "integer"} for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
TEXTS: Schemas = {
    "id": {"type": "string"},
    "object": {"type": "string"},
    "created": {"type": "integer"},
    "model": {"type": "string"},
    "choices": {"type": "array", "items": {"type": "object"}},
    "usage": {"type": "object", "properties": USAGE},
}
MODEL: Schemas = {
    "id": {"type": "string"},
    "object": {"const": "model"},
    "created": {"type": "integer"},
    "owned_by": {"type": "string"},
    "max_model_len": {"type": "integer"},
    "type": {"const": "model"},
    "display_name": {"type": "string"},
    "created_at": {"type": "string", "format": "date-time"},
}
MODELS: Schemas = {
    "object": {"const": "list"},
    "data": {"type": "array", "items": {"type": "object", "properties": MODEL}},
    "has_more": {"const": False},
    "first_id": {"type": ["string", "null"]},
    "last_id": {"type": ["string", "null"]},
}
