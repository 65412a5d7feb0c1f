"""A request whose texts a model reads, and its answer in JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

from ox.errors import OxError, ServeError
from ox.graph.contract import Array
from ox.serve.protocol.openai.requests import named_model, only_model
from ox.serve.protocol.rest.routing import Context
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.text_service import count_errors
from ox.serve.protocol.v2.pending import Pending
from ox.serve.protocol.v2.request import NO_PARAMETERS, Request, RequestedOutput
from ox.serve.repository.model import Model
from ox.serve.response_memory import Body
from ox.serve.runtime.instance import Feed
from ox.serve.text.submission import TRUNCATE
from ox.serve.text.text_tensors import TOKENS, TextTensors
from ox.serve.transport.http import Exchange

Answer = Callable[[Array, int], object]  # from the rows of a run and the number of tokens, what becomes JSON


class TextPending(Pending[Exchange, Body]):
    """The request of an exchange."""

    __slots__ = ()

    def encode(self) -> Body:
        return self.write(self.request, self.outputs)

    def send(self, answer: Body) -> None:
        self.client.reply(200, answer)

    def send_error(self, error: OxError) -> None:
        self.client.send_error(error)

    def send_internal_error(self) -> None:
        self.client.send_internal_error()


def text_model(
    context: Context, exchange: Exchange, fields: Fields, kinds: Sequence[str], purpose: str
) -> tuple[Model, TextTensors]:
    """The model that a request names, with its tensors, which must be one of these kinds; without a name, the only
    model of these kinds, as in vLLM and TEI. Later errors of the request count as failed requests of the model.

    Args:
        kinds: `TextTensors.kind` of the models that will do.
        purpose: what for, in errors.

    Raises:
        ParameterError: there is none (404), there are several, or the one named is of another kind.
        ServeError: the client's key may not use it (403).
    """
    if "model" not in fields:
        name = only_model(context, context.text.client(exchange), "infer", lambda each: is_kind(each, kinds), purpose)
        model = context.service.repository.find(name)
    else:
        model = named_model(context, exchange, fields, context.service.repository.find)
    text = model.text_tensors
    if text is None or text.kind not in kinds:
        got = "a model that makes no vectors or scores of texts" if text is None else text.kind
        raise ParameterError("model", f"'{model.name}' is not for {purpose}", expected=" or ".join(kinds), got=got)
    count_errors(exchange, model.stages)
    return model, text


def is_kind(model: Model, kinds: Sequence[str]) -> bool:
    """Whether a model reads texts, and is one of these kinds (`TextTensors.kind`)."""
    return model.text_tensors is not None and model.text_tensors.kind in kinds


def submit(
    context: Context, exchange: Exchange, model: Model, feed: Feed, truncate: bool, answer: Answer
) -> TextPending:
    """Runs texts, and replies with the answer.

    Raises:
        ServeError: too many texts, or what `Pending.submit` raises.
    """
    rows, limits = len(next(iter(feed.values()))), context.limits
    if rows > limits.rows:
        raise ServeError(f"{rows} texts in one request", status=413, expected=f"at most {limits.rows} (--limit rows)")

    client = context.text.client(exchange)
    reserved = client.reserve(1, model.clock.now())  # how many there are is known when the texts are encoded

    def write(request: Request, outputs: Sequence[Array]) -> Body:
        tokens = sum(row.shape[1] for row in request.feed[TOKENS])
        client.settle(reserved, tokens)
        body = orjson.dumps(answer(outputs[0], tokens), option=orjson.OPT_SERIALIZE_NUMPY)
        if len(body) > limits.reply:
            raise ServeError(
                "the response is too large", status=413, expected=f"at most {limits.reply} bytes (--limit reply)",
                got=str(len(body)), hint="fewer texts",
            )  # fmt: skip
        return body

    parameters = {TRUNCATE: True} if truncate else NO_PARAMETERS
    request = Request(None, feed, rows, (), [RequestedOutput(0, True)], parameters)
    pending = TextPending(request, model, write, exchange, exchange.received_at, exchange.headers)
    exchange.on_error = None  # the job counts
    pending.submit()
    exchange.on_cancel = pending.abandon
    return pending
