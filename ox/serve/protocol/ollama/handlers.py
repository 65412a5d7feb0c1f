"""The handlers of Ollama's texts and embeddings, and the schemas of what they take and answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import orjson

from ox.graph.contract import Array
from ox.serve.protocol.ollama.answer import head, ollama_answer
from ox.serve.protocol.ollama.request import (
    OPTIONS,
    OllamaCall,
    Read,
    find_model,
    read_chat_request,
    read_generate_request,
    read_ignored,
)
from ox.serve.protocol.openai.embeddings import KINDS, read_dimensions, read_texts
from ox.serve.protocol.openai.requests import finish, read_fields
from ox.serve.protocol.openai.text_pending import submit, text_model
from ox.serve.protocol.openai.text_schemas import TEXTS_OR_TOKENS
from ox.serve.protocol.rest.routing import Context, Handler, HandlerResult, PathParameters, Reply
from ox.serve.protocol.rest.routing import Fields as Schemas
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.parameters import schemas_in
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.text.pooling import normalized
from ox.serve.transport.http import Exchange


def _texts(read: Read, content: str, empty: dict[str, Any]) -> Handler:
    """A handler that answers with a text or a message.

    Args:
        read: reads the fields of a request.
        content: the parameter without which a request only asks whether the model is loaded.
        empty: what the answer to that has beside.
    """

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
        fields = read_fields(context, exchange)
        model: TextModel = find_model(context, exchange, fields, context.text.find)
        if content not in fields or fields.peek(content) in ("", []):
            return Reply(orjson.dumps({**head(model), **empty, "done": True, "done_reason": "load"}))
        return context.text.begin(exchange, model, partial(read, fields, model), partial(start, context, exchange))

    def start(context: Context, exchange: Exchange, call: OllamaCall) -> None:
        client = context.text.client(exchange)
        ollama_answer(call, exchange, client).start(context.text, call.requests(client.name), 1)

    return handle


chat = _texts(read_chat_request, "messages", {"message": {"role": "assistant", "content": ""}})
generate = _texts(read_generate_request, "prompt", {"response": ""})


def embed(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Vectors of texts.

    Raises:
        ServeError: a wrong request, or too much waits.
    """

    def write(vectors: Array, tokens: int) -> dict[str, Any]:
        total = int(1e9 * (context.service.clock.now() - exchange.received_at))
        return {"embeddings": vectors, "total_duration": total, "load_duration": 0, "prompt_eval_count": tokens}

    _embed(context, exchange, "input", write)


def embeddings(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """The vector of one text: the older form. Raises as `embed`."""
    _embed(context, exchange, "prompt", lambda vectors, tokens: {"embedding": vectors[0]})


def _embed(context: Context, exchange: Exchange, name: str, write: Callable[[Array, int], dict[str, Any]]) -> None:
    given = read_fields(context, exchange)
    found = find_model(context, exchange, given, context.service.repository.find)
    fields = Fields({**given.rest(), "model": found.name}, remarks=given.remarks)
    model, text = text_model(context, exchange, fields, KINDS, "embeddings")
    truncate, dimensions = fields.flag("truncate", True), read_dimensions(fields, model)
    feed = read_texts(fields, name, text, truncate)
    read_ignored(fields)
    for option in fields.object("options") or {}:
        fields.remarks.add_unused(OPTIONS + option)
    finish(context, exchange, fields, model.stages)

    def answer(vectors: Array, tokens: int) -> dict[str, Any]:
        if dimensions is not None:
            vectors = normalized(vectors[:, :dimensions])
        return {"model": model.name, **write(np.ascontiguousarray(vectors, np.float32), tokens)}

    submit(context, exchange, model, feed, truncate, answer)


# ---- JSON schemas of fields

_SHARED: Schemas = schemas_in("ollama")
OF_TEXTS = ("prompt", "system", "raw", "suffix")
CHAT: Schemas = {name: schema for name, schema in _SHARED.items() if name not in OF_TEXTS}
GENERATE: Schemas = {name: schema for name, schema in _SHARED.items() if name not in ("messages", "tools")}
_TEXT: Schemas = {
    "model": {"type": "string"},
    "created_at": {"type": "string"},
    "done": {"type": "boolean"},
    "done_reason": {"enum": ["stop", "length", "load"]},
}
MESSAGE: Schemas = {**_TEXT, "message": {"type": "object"}}
RESPONSE: Schemas = {**_TEXT, "response": {"type": "string"}}
_VECTOR = {"type": "array", "items": {"type": "number"}}
EMBED: Schemas = {
    "model": {"type": "string"},
    "input": TEXTS_OR_TOKENS,
    "truncate": {"type": "boolean", "default": True},
    "dimensions": {"type": "integer", "minimum": 1},
}
VECTORS: Schemas = {"model": {"type": "string"}, "embeddings": {"type": "array", "items": _VECTOR}}
PROMPT: Schemas = {"model": {"type": "string"}, "prompt": TEXTS_OR_TOKENS}
VECTOR: Schemas = {"model": {"type": "string"}, "embedding": _VECTOR}
NAME: Schemas = {"model": {"type": "string"}}
MODELS: Schemas = {"models": {"type": "array", "items": {"type": "object"}}}
SHOWN: Schemas = {
    "template": {"type": "string"},
    "details": {"type": "object"},
    "model_info": {"type": "object"},
    "capabilities": {"type": "array", "items": {"type": "string"}},
}
VERSION: Schemas = {"version": {"type": "string"}}
