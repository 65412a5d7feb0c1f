"""vLLM's /tokenize, /detokenize and /tokenizer_info: tokens of a text or a conversation, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from ox.serve.access.client import Client
from ox.serve.protocol.openai.requests import described_model, finish, named_model, only_model, read_fields
from ox.serve.protocol.rest.routing import Context, HandlerResult, PathParameters, Reply
from ox.serve.protocol.text.chat_template import SPECIAL
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.messages import read_messages, read_tools
from ox.serve.protocol.text.object_keys import remark_unknown_keys
from ox.serve.protocol.text.parameters import parameters_in
from ox.serve.protocol.text.prompt import read_template_variables
from ox.serve.repository.model import Model
from ox.serve.repository.thread import in_thread
from ox.serve.text.submission import SHORT
from ox.serve.text.tokenizer import Tokenizer
from ox.serve.transport.http import Exchange


def tokenize(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
    """The tokens of a text, or of the prompt of a conversation; without a limit.

    Raises:
        ServeError: a wrong request, or a model without a chat template.
    """
    fields = read_fields(context, exchange)
    model = _model(context, exchange, fields)
    chat = "messages" in fields
    prompt = _read_messages(fields, model) if chat else _read_prompt(fields)
    special = fields.flag("add_special_tokens", not chat)  # a template writes them itself
    named = fields.flag("return_token_strs")
    finish(context, exchange, fields)
    tokenizer, longest = _tokenizer(model)

    def answer() -> dict[str, Any]:
        ids = tokenizer.encode(prompt(), special)
        strings = [tokenizer.raw.id_to_token(each) for each in ids] if named else None
        return {"count": len(ids), "max_model_len": longest, "tokens": ids, "token_strs": strings}

    return _reply(answer, SHORT + 1 if chat else len(exchange.body))


def _read_prompt(fields: Fields) -> Callable[[], str]:
    fields.required("prompt")
    prompt = fields.text("prompt")
    return lambda: prompt


def _read_messages(fields: Fields, model: Model) -> Callable[[], str]:
    """What renders the prompt of a conversation, with the fields that chats have."""
    if model.text is None or model.text.template is None:
        raise ParameterError("messages", f"model '{model.name}' has no chat template", hint="'prompt'")
    if "prompt" in fields:
        raise ParameterError("prompt", "the request has both a prompt and messages", expected="one of them")
    remark_unknown_keys(fields, "chat", model.text.template)
    messages, tools = read_messages(fields), read_tools(fields)
    refuse = parameters_in("chat")["chat_template"].read
    if refuse is not None:
        refuse(fields, model.text)
    flags = ("add_generation_prompt", "continue_final_message")
    values = {name: fields.flag(name) for name in flags if name in fields}
    variables = read_template_variables(fields, model.text, values)
    return partial(model.text.template.render, messages, tools.offered, variables)


def detokenize(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
    """The text of tokens.

    Raises:
        ServeError: a wrong request.
    """
    fields = read_fields(context, exchange)
    tokenizer, _ = _tokenizer(_model(context, exchange, fields))
    fields.required("tokens")
    tokens = fields.wholes("tokens", context.limits.json, tokenizer.largest_id + 1)
    finish(context, exchange, fields)
    return _reply(lambda: {"prompt": tokenizer.decode(tokens, special=True)}, len(tokens))


def tokenizer_info(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """The special tokens and the chat template of a model: that of `?model=NAME`, or the only one with tokens.

    Raises:
        ServeError: there is no such model, or there are several.
    """
    model = described_model(context, exchange, _fits(context, context.text.client(exchange), "read"), "tokens")
    _tokenizer(model)  # an error where it has none
    template = None if model.text is None else model.text.template
    known: Mapping[str, str] = {} if template is None else template.special
    source = None if template is None else template.source
    special = {name: known.get(name) or None for name in SPECIAL}
    return Reply(orjson.dumps({"tokenizer_class": "ox", **special, "chat_template": source}))


def _fits(context: Context, client: Client, action: str) -> Callable[[Model], bool]:
    """Whether a model's tokens can be meant: a decoder with a tokenizer; where there is none, one that reads texts."""
    decoders = [each for each in context.text.models() if client.may(action, each.name)]
    return _decodes if decoders else _reads


def _decodes(model: Model) -> bool:
    return model.text is not None and model.text.engine.tokenizer is not None


def _reads(model: Model) -> bool:
    return model.text_tensors is not None


def _model(context: Context, exchange: Exchange, fields: Fields) -> Model:
    """The model that a request names, or the only one whose tokens can be meant."""
    find = context.service.repository.find
    if "model" in fields:
        return named_model(context, exchange, fields, find)
    client = context.text.client(exchange)
    return find(only_model(context, client, "infer", _fits(context, client, "infer"), "tokens"))


def _tokenizer(model: Model) -> tuple[Tokenizer, int]:
    """The tokenizer of a model, and the most tokens that it takes."""
    if model.text_tensors is not None:
        return model.text_tensors.tokenizer, model.text_tensors.tokenizer.max_length
    if model.text is None:
        raise ParameterError("model", f"'{model.name}' has no tokenizer")
    return model.text.tokenizer, model.text.engine.context_length


def _reply(answer: Callable[[], dict[str, Any]], size: int) -> HandlerResult:
    """At once if there is little to do, else from a thread."""
    return Reply(orjson.dumps(answer())) if size <= SHORT else _reply_later(answer)


async def _reply_later(answer: Callable[[], dict[str, Any]]) -> Reply:
    return Reply(await in_thread(lambda: orjson.dumps(answer()), "ox-tokenizer"))
