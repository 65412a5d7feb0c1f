"""Ollama's requests for texts, translated into those of OpenAI's chats and completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ox.serve.generation.request import MOST_LOGPROBS, GenerationRequest
from ox.serve.protocol.openai.completions import CompletionCall, read_completion
from ox.serve.protocol.openai.requests import named_model
from ox.serve.protocol.rest.routing import Context
from ox.serve.protocol.text.chat_request import ChatCall
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.message_reader import MessageReader
from ox.serve.protocol.text.object_keys import remark_unknown_keys
from ox.serve.protocol.text.parameters import MAX_TOKENS, names_in
from ox.serve.protocol.text.prompt import thinking_variables
from ox.serve.protocol.text.sampling import TextOptions
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.translated_chat import parameters_left, read_translated
from ox.serve.protocol.v2.document import quote
from ox.serve.transport.http import Exchange

LATEST = ":latest"  # Ollama's tag of a name without one
OPTIONS = "options."
NAMES: Mapping[str, str] = {
    **names_in("ollama"), "chat_template_kwargs": "think", "reasoning_effort": "think",
    "max_completion_tokens": "options.num_predict",
}  # fmt: skip
# Chats' names of the options, by Ollama's.
CHAT_NAMES = {theirs.removeprefix(OPTIONS): ours for ours, theirs in names_in("ollama").items() if OPTIONS in theirs}
# How Ollama runs a model, and ways of sampling that this server does not have.
WITHOUT_EFFECT = (
    "num_ctx", "num_batch", "num_gpu", "num_thread", "num_keep", "main_gpu", "use_mmap", "use_mlock", "low_vram",
    "f16_kv", "logits_all", "vocab_only", "numa", "embedding_only", "repeat_last_n", "penalize_newline", "tfs_z",
    "typical_p", "mirostat", "mirostat_eta", "mirostat_tau", "draft_num_predict",
)  # fmt: skip
Read = Callable[[Fields, TextModel], "OllamaCall"]


@dataclass(frozen=True)
class OllamaCall:
    """A request that was read.

    Attributes:
        call: the same as a request of OpenAI's.
        chat: whether the answer is a message; else it is a text.
    """

    call: ChatCall | CompletionCall
    chat: bool

    @property
    def options(self) -> TextOptions:
        return self.call.options

    @property
    def model(self) -> TextModel:
        return self.call.model

    @property
    def stream(self) -> bool:
        return self.call.stream

    def requests(self, client: str) -> list[GenerationRequest]:
        """The one request for the engine."""
        return self.call.requests(client)

    def reader(self) -> MessageReader:
        """Divides the answer into its pieces."""
        return self.call.reader() if isinstance(self.call, ChatCall) else MessageReader()


def find_model(
    context: Context, exchange: Exchange, fields: Fields, find: Callable[[str], Any], action: str = "infer"
) -> Any:
    """The model that a request names; `tiny:latest` is `tiny`. Raises as `named_model`."""
    name = fields.text("model") or fields.text("name")
    return named_model(context, exchange, Fields({"model": name.removesuffix(LATEST)}), find, action)


def read_chat_request(fields: Fields, model: TextModel) -> OllamaCall:
    """Reads a request for a message, except for its model.

    Raises:
        ParameterError: a parameter is wrong or refused.
        ServeError: what `read_translated` raises.
    """
    remark_unknown_keys(fields, "ollama", model.template)
    messages = fields.take("messages", [])
    if type(messages) is not list:
        raise fields.wrong("messages", "a list of messages", messages)
    messages = [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]
    chat = {"messages": messages, "tools": fields.take("tools"), **_common(fields, model)}
    most = chat.pop("max_tokens", None)
    call = read_translated("ollama", chat, fields.rest(), NAMES, model, fields.remarks)
    return _limited(call, call.prompt, most, True)


def read_generate_request(fields: Fields, model: TextModel) -> OllamaCall:
    """Reads a request for a text, except for its model: of a chat with one message, or with `raw` of the prompt alone.

    Raises:
        ParameterError: a parameter is wrong or refused.
        ServeError: what `read_translated` raises.
    """
    fields.only("suffix", ("",), "this model makes only what follows a prompt")
    fields.only("template", ("",), "a template is a program, and comes with the model", hint="'raw': true")
    fields.only("context", ([],), "conversations are not kept as tokens", hint="a chat with its earlier messages")
    fields.only("images", ([],), "models of texts alone are served")
    prompt, system, raw = fields.text("prompt"), fields.text("system"), fields.flag("raw")
    if raw and fields.take("think") is not None:
        fields.remarks.add_unused("think")
    common = _common(fields, model)
    most = common.pop("max_tokens", None)
    if raw:
        top = common.pop("top_logprobs", None)
        if common.pop("logprobs", False):
            common["logprobs"] = top or 0
        left = parameters_left("ollama", fields.rest(), NAMES, fields.remarks)
        given = Fields({**left, **common, "prompt": prompt}, names=NAMES, remarks=fields.remarks)
        completion = read_completion(given, model)
        return _limited(completion, completion.prompts[0], most, False)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    chat = {"messages": messages, **common}
    call = read_translated("ollama", chat, fields.rest(), NAMES, model, fields.remarks)
    return _limited(call, call.prompt, most, False)


def _limited(call: ChatCall | CompletionCall, prompt: Sequence[int], most: int | None, chat: bool) -> OllamaCall:
    """With so many tokens at most, or without a number what the context has room for; that is the most in any case."""
    if most is not None:
        most = min(most, call.model.engine.context_length - len(prompt))
    return OllamaCall(replace(call, options=replace(call.options, max_tokens=most)), chat)


def read_ignored(fields: Fields) -> None:
    """Parameters that say how Ollama runs a model."""
    for name in ("truncate", "shift", "_debug_render_only"):
        fields.flag(name)
    keep_alive = fields.take("keep_alive", 0)
    if isinstance(keep_alive, bool) or not isinstance(keep_alive, str | int | float):
        raise fields.wrong("keep_alive", 'seconds, or a duration as in "5m"', keep_alive)


def _common(fields: Fields, model: TextModel) -> dict[str, Any]:
    """What both kinds of requests have, as parameters of a chat."""
    read_ignored(fields)
    chat = {"stream": fields.flag("stream", True), **_options(fields), **_format(fields), **_think(fields, model)}
    top = fields.whole("top_logprobs", 0, MOST_LOGPROBS)
    return {**chat, "logprobs": True, "top_logprobs": top} if fields.flag("logprobs") else chat


def _options(fields: Fields) -> dict[str, Any]:
    inner = fields.inside("options")
    if inner is None:
        return {}
    most = inner.whole("num_predict", -MAX_TOKENS, MAX_TOKENS)
    chat = {ours: inner.take(theirs) for theirs, ours in CHAT_NAMES.items() if theirs in inner}
    if most is not None and most > 0:  # else until the text ends, or the context is full
        chat["max_tokens"] = most
    seed = chat.get("seed")
    if type(seed) is int and seed == -1:  # another one each time
        del chat["seed"]
    if type(chat.get("repetition_penalty")) in (int, float) and chat["repetition_penalty"] == 0:
        chat["repetition_penalty"] = 1  # Ollama takes 0 as no penalty, too
    for name in WITHOUT_EFFECT:
        if name in inner:
            inner.take(name)
            fields.remarks.add_unused(OPTIONS + name)
    inner.finish(CHAT_NAMES)
    return chat


def _format(fields: Fields) -> dict[str, Any]:
    form = fields.take("format", "")
    if form == "":
        return {}
    if form == "json":
        return {"response_format": {"type": "json_object"}}
    if not isinstance(form, dict):
        raise fields.wrong("format", '"json", or a JSON schema as an object', form)
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "format", "schema": form}}}


def _think(fields: Fields, model: TextModel) -> dict[str, Any]:
    think = fields.take("think")
    if think is None:
        return {}
    if not isinstance(think, bool) and think not in ("low", "medium", "high"):
        raise fields.wrong("think", 'true, false, "low", "medium" or "high"', think)
    effort = think if isinstance(think, str) else None
    return thinking_variables(fields, "think", bool(think), model, effort)


def _message(message: Any, where: str) -> Any:
    """A message in OpenAI's form, which the reader of chats checks."""
    if not isinstance(message, dict):
        return message
    if message.get("images"):
        raise ParameterError(f"{where}.images", f"'{where}.images' is not supported", code="unsupported_parameter",
                             got=quote(message["images"]), expected="texts")  # fmt: skip
    read = {name: value for name, value in message.items() if name not in ("images", "thinking", "tool_name")}
    if message.get("thinking"):
        read["reasoning_content"] = message["thinking"]
    if message.get("tool_name"):
        read["name"] = message["tool_name"]
    return read
