"""/tokenize and /detokenize: tokens of a text and back, in vLLM's form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from ox.errors import OxError, ServeError
from ox.serve.generation.tokenizer import Tokenizer
from ox.serve.protocol.openai.text_errors import send_error
from ox.serve.protocol.openai.text_pending import read_fields
from ox.serve.protocol.rest.routing import Context
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.repository.model import Model
from ox.serve.repository.thread import in_thread
from ox.serve.text.submission import SHORT
from ox.serve.transport.http import Exchange

TASKS: set[asyncio.Task[None]] = set()  # the event loop keeps only weak references


def tokenize(context: Context, exchange: Exchange) -> None:
    """The tokens of a text, without a limit.

    Raises:
        ServeError: a wrong request.
    """
    fields = read_fields(exchange, context.limits)
    tokenizer, longest = _tokenizer(context, fields)
    prompt = fields.text("prompt")
    special = fields.flag("add_special_tokens", True)
    names = fields.flag("return_token_strs")
    fields.finish()

    def answer() -> dict[str, Any]:
        ids = tokenizer.encode(prompt, special)
        strings = [tokenizer.raw.id_to_token(each) for each in ids] if names else None
        return {"count": len(ids), "max_model_len": longest, "tokens": ids, "token_strs": strings}

    _reply(exchange, answer, len(prompt))


def detokenize(context: Context, exchange: Exchange) -> None:
    """The text of tokens.

    Raises:
        ServeError: a wrong request.
    """
    fields = read_fields(exchange, context.limits)
    tokenizer, _ = _tokenizer(context, fields)
    tokens = fields.wholes("tokens", context.limits.json, tokenizer.largest_id + 1)
    fields.finish()
    _reply(exchange, lambda: {"prompt": tokenizer.decode(tokens, special=True)}, len(tokens))


def _tokenizer(context: Context, fields: Fields) -> tuple[Tokenizer, int]:
    """The tokenizer of the model that a request names, and the most tokens that the model takes. The only model with a
    tokenizer need not be named."""
    name = fields.text("model")
    repository = context.service.repository
    found = [repository.find(name)] if name else [model for model in repository.models() if model.text is not None]
    if len(found) != 1:
        raise ParameterError("model", "the request names no model", expected='"model": "NAME"')
    model: Model = found[0]
    if model.text is None:
        raise ParameterError("model", f"'{name[:100]}' has no tokenizer")
    return model.text.tokenizer, model.text.tokenizer.max_length


def _reply(exchange: Exchange, answer: Callable[[], dict[str, Any]], size: int) -> None:
    """Replies at once if there is little to do, else from a thread."""
    if size <= SHORT:
        exchange.reply(200, orjson.dumps(answer()))
        return
    task = asyncio.get_running_loop().create_task(_reply_later(exchange, answer))
    TASKS.add(task)
    task.add_done_callback(TASKS.discard)


async def _reply_later(exchange: Exchange, answer: Callable[[], dict[str, Any]]) -> None:
    try:
        body = await in_thread(lambda: orjson.dumps(answer()), "ox-tokenizer")
    except OxError as error:
        send_error(exchange, error)
    except Exception as error:
        send_error(exchange, ServeError("the text could not be encoded", status=500, got=str(error)[:200]))
    else:
        exchange.reply(200, body)
