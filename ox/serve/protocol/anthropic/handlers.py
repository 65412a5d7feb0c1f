"""The handlers of /v1/messages, and the schemas of what they take and answer."""

from __future__ import annotations

from functools import partial

import orjson

from ox.serve.protocol.anthropic.answer import message_answer
from ox.serve.protocol.anthropic.request import read_count, read_message
from ox.serve.protocol.openai.handlers import texts
from ox.serve.protocol.openai.requests import named_model, read_fields
from ox.serve.protocol.rest.routing import Context, HandlerResult, PathParameters
from ox.serve.protocol.rest.routing import Fields as Schemas
from ox.serve.protocol.text.chat_request import ChatCall
from ox.serve.protocol.text.parameters import schemas_in
from ox.serve.transport.http import Exchange

messages = texts(read_message, message_answer)


def count_tokens(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
    """How many tokens the prompt of a request has.

    Raises:
        ServeError: a wrong request.
    """
    fields = read_fields(context, exchange)
    model = named_model(context, exchange, fields, context.text.find)

    def reply(call: ChatCall) -> None:
        exchange.on_error = None
        exchange.reply(200, orjson.dumps({"input_tokens": len(call.prompt)}))

    return context.text.begin(exchange, model, partial(read_count, fields, model), reply)


# ---- JSON schemas of fields

REQUEST: Schemas = schemas_in("messages")
COUNT: Schemas = {name: schema for name, schema in REQUEST.items() if name not in ("max_tokens", "stream")}
MESSAGE: Schemas = {
    "id": {"type": "string"},
    "type": {"const": "message"},
    "role": {"const": "assistant"},
    "model": {"type": "string"},
    "content": {"type": "array", "items": {"type": "object"}},
    "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
    "stop_sequence": {"type": ["string", "null"]},
    "usage": {"type": "object"},
}
TOKENS: Schemas = {"input_tokens": {"type": "integer"}}
