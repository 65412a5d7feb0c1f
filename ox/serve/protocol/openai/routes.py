"""The routes of OpenAI's API."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from ox.errors import ServeError
from ox.serve.access.permission import Permission
from ox.serve.protocol.openai.chat import ChatCall, read_chat
from ox.serve.protocol.openai.completions import CompletionCall, read_completion
from ox.serve.protocol.rest.body import json_length, read_json
from ox.serve.protocol.rest.routing import Context, Handler, HandlerResult, PathParameters, Reply, Route
from ox.serve.protocol.rest.routing import Fields as Schemas
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.text_models import TextModel
from ox.serve.protocol.text.text_service import INLINE_BYTES
from ox.serve.transport.http import Exchange

Call = CompletionCall | ChatCall


def model_of(context: Context, exchange: Exchange, fields: Fields) -> TextModel:
    """The model that a request names and its client may use.

    Raises:
        ParameterError: there is no such name in it, or no such model (404).
        ServeError: the client's key may not use it (403).
    """
    name = fields.text("model")
    if not name:
        raise ParameterError("model", "Missing required parameter: 'model'", code="missing_required_parameter")
    context.text.client(exchange).check("infer", name)
    try:
        return context.text.find(name)
    except ServeError as error:
        code = "model_not_found" if error.status == 404 else None
        more = {"expected": error.expected, "got": error.got, "hint": error.hint}
        raise ParameterError("model", error.what, code=code, status=error.status, **more) from None


def _texts(read: Callable[[Fields, TextModel], Call]) -> Handler:
    """A handler that answers with texts."""

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
        json_length({}, len(exchange.body), context.limits)  # is it too large
        fields = Fields(read_json(exchange, context.limits))
        model = model_of(context, exchange, fields)
        if len(exchange.body) > INLINE_BYTES:
            return later(context, exchange, partial(read, fields, model))
        start(context, exchange, read(fields, model))
        return None

    async def later(context: Context, exchange: Exchange, prepare: Callable[[], Call]) -> None:
        call = await context.text.in_thread(exchange, prepare)
        if call is not None:
            start(context, exchange, call)

    def start(context: Context, exchange: Exchange, call: Call) -> None:
        answer = call.answer(exchange, context.text.client(exchange))
        answer.start(context.text, call.requests(), call.options.choices)

    return handle


def _model_document(model: TextModel) -> dict[str, Any]:
    return {
        "id": model.name, "object": "model", "created": model.created, "owned_by": "ox",
        "max_model_len": model.engine.context_length,
    }  # fmt: skip


def _models(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    client = context.text.client(exchange)
    models = {model.name: model for model in reversed(context.text.models()) if client.may("read", model.name)}
    data = [_model_document(model) for model in reversed(models.values())]
    return Reply(orjson.dumps({"object": "list", "data": data}))


def _model(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    try:
        return Reply(orjson.dumps(_model_document(context.text.find(names["model"]))))
    except ServeError as error:
        raise ParameterError("model", error.what, code="model_not_found", status=404, expected=error.expected) from None


# ---- JSON schemas of fields

SAMPLING: Schemas = {
    "model": {"type": "string"},
    "max_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "n": {"type": "integer", "minimum": 1},
    "stop": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "seed": {"type": "integer"},
    "stream": {"type": "boolean", "description": "answers with server-sent events"},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "logit_bias": {"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
    "response_format": {"type": "object"},
}
COMPLETION: Schemas = {
    "prompt": {
        "oneOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": {"type": "integer"}},
            {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        ]
    },
    "echo": {"type": "boolean"},
    "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    **SAMPLING,
}
CHAT: Schemas = {
    "messages": {"type": "array", "items": {"type": "object"}},
    "tools": {"type": "array", "items": {"type": "object"}},
    "tool_choice": {"enum": ["auto", "none"]},
    "max_completion_tokens": {"type": "integer", "minimum": 1},
    "logprobs": {"type": "boolean"},
    "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    **SAMPLING,
}
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
}
MODELS: Schemas = {
    "object": {"const": "list"},
    "data": {"type": "array", "items": {"type": "object", "properties": MODEL}},
}

# The model is in the body: access control lets a key through that may infer, and `model_of` checks for which model.
ANY_MODEL = Permission("infer", "")

TABLE = [
    Route("POST", "/v1/completions", ANY_MODEL, _texts(read_completion), "Continues prompts", COMPLETION, TEXTS),
    Route("POST", "/v1/chat/completions", ANY_MODEL, _texts(read_chat), "The next message of a chat", CHAT, TEXTS),
    Route("GET", "/v1/models", Permission("read", ""), _models, "The models that make texts", reply=MODELS),
    Route("GET", "/v1/models/{model}", Permission("read"), _model, "A model that makes texts", reply=MODEL),
]
