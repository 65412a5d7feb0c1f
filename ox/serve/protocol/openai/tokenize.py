"""/tokenize and /detokenize: tokens of a text and back, in vLLM's form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from ox.serve.protocol.openai.requests import finish, named_model, read_fields
from ox.serve.protocol.rest.routing import Context, HandlerResult, PathParameters, Reply
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.repository.model import Model
from ox.serve.repository.thread import in_thread
from ox.serve.text.submission import SHORT
from ox.serve.text.tokenizer import Tokenizer
from ox.serve.transport.http import Exchange


def tokenize(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
    """The tokens of a text, without a limit.

    Raises:
        ServeError: a wrong request.
    """
    fields = read_fields(context, exchange)
    tokenizer, longest = _tokenizer(context, exchange, fields)
    fields.required("prompt")
    prompt = fields.text("prompt")
    special = fields.flag("add_special_tokens", True)
    named = fields.flag("return_token_strs")
    finish(context, exchange, fields)

    def answer() -> dict[str, Any]:
        ids = tokenizer.encode(prompt, special)
        strings = [tokenizer.raw.id_to_token(each) for each in ids] if named else None
        return {"count": len(ids), "max_model_len": longest, "tokens": ids, "token_strs": strings}

    return _reply(answer, len(prompt))


def detokenize(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
    """The text of tokens.

    Raises:
        ServeError: a wrong request.
    """
    fields = read_fields(context, exchange)
    tokenizer, _ = _tokenizer(context, exchange, fields)
    fields.required("tokens")
    tokens = fields.wholes("tokens", context.limits.json, tokenizer.largest_id + 1)
    finish(context, exchange, fields)
    return _reply(lambda: {"prompt": tokenizer.decode(tokens, special=True)}, len(tokens))


def _tokenizer(context: Context, exchange: Exchange, fields: Fields) -> tuple[Tokenizer, int]:
    """The tokenizer of the model that a request names, and the most tokens that the model takes."""
    model: Model = named_model(context, exchange, fields, context.service.repository.find)
    if model.text_tensors is not None:
        return model.text_tensors.tokenizer, model.text_tensors.tokenizer.max_length
    for decoder in context.text.models():
        if (decoder.name, decoder.version) == (model.name, model.version):
            return decoder.tokenizer, decoder.engine.context_length
    raise ParameterError("model", f"'{model.name}' has no tokenizer")


def _reply(answer: Callable[[], dict[str, Any]], size: int) -> HandlerResult:
    """At once if there is little to do, else from a thread."""
    return Reply(orjson.dumps(answer())) if size <= SHORT else _reply_later(answer)


async def _reply_later(answer: Callable[[], dict[str, Any]]) -> Reply:
    return Reply(await in_thread(lambda: orjson.dumps(answer()), "ox-tokenizer"))
