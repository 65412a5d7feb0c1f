"""Triton's extension for texts over HTTP: /v2/models/NAME/generate and /generate_stream."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson

from ox.errors import OxError
from ox.serve.access.client import Client
from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.rest.body import read_limited_json
from ox.serve.protocol.rest.routing import Context, Fields, Handler, HandlerResult, PathParameters
from ox.serve.protocol.text.generate import GenerateCall, read_generate
from ox.serve.protocol.text.parameters import schemas_in
from ox.serve.protocol.text.text_answer import StreamedAnswer, TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.protocol.text.text_service import count_errors
from ox.serve.transport.http import Exchange
from ox.serve.transport.http.listener_state import v2_error_body

SCHEMAS = schemas_in("generate")
PARAMETERS = {name: schema for name, schema in SCHEMAS.items() if name not in ("text_input", "stream")}
REQUEST: Fields = {
    **SCHEMAS,
    "id": {"type": "string"},
    "parameters": {"type": "object", "properties": PARAMETERS},
    "sampling_parameters": {"type": "string", "description": "the same as JSON"},
    "exclude_input_in_output": {"const": True},
    "stream": {"type": "boolean", "description": "for clients that send it; the route decides"},
}
REPLY: Fields = {
    "id": {"type": "string"},
    "model_name": {"type": "string"},
    "model_version": {"type": "string"},
    "text_output": {"type": "string"},
}


def generate(streamed: bool) -> Handler:
    """A handler that answers with one document, or with one for each piece of text."""

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
        model = context.text.find(names["model"], names.get("version", ""))
        count_errors(exchange, model.stages)
        document = read_limited_json(exchange, context.limits)
        read = partial(read_generate, document, model)
        return context.text.begin(exchange, model, read, partial(start, context, exchange))

    def start(context: Context, exchange: Exchange, call: GenerateCall) -> None:
        client = context.text.client(exchange)
        answer = StreamedText(call, exchange, client) if streamed else WholeText(call, exchange, client)
        answer.start(context.text, call.requests(client.name), 1)

    return handle


def _head(call: GenerateCall) -> dict[str, Any]:
    names = {"model_name": call.model.name, "model_version": call.model.version}
    return {"id": call.id, **names} if call.id else names


class WholeText(TextAnswer):
    """The text in one JSON document."""

    def __init__(self, call: GenerateCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._call = call
        self._parts: list[str] = []

    def add(self, index: int, event: TokenEvent) -> None:
        self._parts.append(event.text)

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        self.exchange.reply(200, orjson.dumps({**_head(self._call), "text_output": "".join(self._parts)}))


class StreamedText(StreamedAnswer):
    """An event for each piece of text. The stream ends without a mark, as Triton's does."""

    def __init__(self, call: GenerateCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._before = b"data: " + orjson.dumps(_head(call))[:-1] + b',"text_output":'
        self._said = False

    def add(self, index: int, event: TokenEvent) -> None:
        if event.text or (event.finish_reason is not None and not self._said):
            self._said = True
            self.stream.send(b"%b%b}\n\n" % (self._before, orjson.dumps(event.text)))

    def error_event(self, error: OxError) -> bytes:
        return b"data: " + v2_error_body(error) + b"\n\n"
