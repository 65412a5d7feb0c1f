"""POST /v1/completions: texts that continue prompts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ox.serve.access.client import Client
from ox.serve.generation.request import GenerationRequest, TokenEvent
from ox.serve.protocol.openai.choice_stream import ChoiceStream
from ox.serve.protocol.openai.token_texts import TokenTexts
from ox.serve.protocol.openai.usage import usage_document
from ox.serve.protocol.text.chat_request import read_ignored
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.sampling import (
    MAX_CHOICES,
    MAX_TOKENS,
    TextOptions,
    read_logprobs,
    read_options,
    with_format,
)
from ox.serve.protocol.text.stream_options import StreamOptions, read_stream_options
from ox.serve.protocol.text.text_answer import TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.transport.http import Exchange

DEFAULT_TOKENS = 16  # OpenAI's


@dataclass(frozen=True)
class CompletionCall:
    """A request that was read: its prompts as tokens, and what is said of their texts."""

    model: TextModel
    prompts: Sequence[Sequence[int]]
    options: TextOptions
    echo: tuple[str, ...]  # the prompts as texts, where they are repeated; else ""
    stream: bool
    stream_options: StreamOptions

    def requests(self, client: str) -> list[GenerationRequest]:
        """All texts of a prompt, then those of the next one."""
        return [request for prompt in self.prompts for request in self.options.requests(prompt, client)]


def read_completion(fields: Fields, model: TextModel) -> CompletionCall:
    """Reads a request, except for its model.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown.
    """
    fields.only("best_of", (1,), hint="'n' texts, of which the client takes the best")
    fields.only("suffix", ("",), "this model makes only what follows a prompt")
    read_ignored(fields)
    logprobs = read_logprobs(fields, "logprobs")
    max_tokens = fields.whole("max_tokens", 1, MAX_TOKENS)
    options = replace(with_format(read_options(fields, model, max_tokens), fields), logprobs=logprobs)
    echo = fields.flag("echo")
    if echo and logprobs is not None:
        raise ParameterError("echo", "'echo' and 'logprobs' contradict each other here",
                             hint="log-probabilities of the text alone, without 'echo'")  # fmt: skip
    stream, stream_options = read_stream_options(fields)
    texts, prompts = _prompts(fields, model, options)
    fields.finish()
    if len(prompts) * options.choices > MAX_CHOICES:
        raise ParameterError("n", "too many texts in one request", expected=f"at most {MAX_CHOICES}",
                             got=f"{options.choices} for each of {len(prompts)} prompts")  # fmt: skip
    options = options.with_default(DEFAULT_TOKENS)
    repeated = texts if echo else [""] * len(prompts)
    return CompletionCall(model, prompts, options, tuple(repeated), stream, stream_options)


def _prompts(fields: Fields, model: TextModel, options: TextOptions) -> tuple[list[str], list[Sequence[int]]]:
    """The prompts as texts and as tokens: a string, tokens, or a list of either."""
    fields.required("prompt")
    given = fields.take("prompt")
    expected = "a string, a list of strings, token ids, or a list of lists of them"
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise fields.wrong("prompt", expected, given)
    if isinstance(listed[0], int):
        listed = [listed]
    if len(listed) > MAX_CHOICES:
        raise fields.wrong("prompt", f"at most {MAX_CHOICES} prompts", given)
    texts: list[str] = []
    prompts: list[Sequence[int]] = []
    for each in listed:
        if isinstance(each, str):
            prompts.append(model.encode(each))
            options.check_length(prompts[-1], model, "prompt")
            texts.append(each)
        elif isinstance(each, list) and each:
            options.check_length(each, model, "prompt")
            _check_tokens(each, model.engine.vocab_size, fields)
            prompts.append(each)
            texts.append("" if model.engine.tokenizer is None else model.tokenizer.decode(each))
        else:
            raise fields.wrong("prompt", expected, each)
    return texts, prompts


def _check_tokens(tokens: list[Any], vocab_size: int, fields: Fields) -> None:
    for token in tokens:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise fields.wrong("prompt", f"token ids from 0 to {vocab_size - 1}", token)


class _Choice:
    """One text of a whole answer."""

    __slots__ = ("events", "finish_reason", "parts")

    def __init__(self, begin: str) -> None:
        self.parts = [begin]
        self.events: list[TokenEvent] = []
        self.finish_reason = ""


def _head(call: CompletionCall) -> dict[str, Any]:
    return {
        "id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(call.model.clock.calendar()),
        "model": call.model.name,
    }  # fmt: skip


def completion_answer(call: CompletionCall, exchange: Exchange, client: Client) -> TextAnswer:
    """What writes the answer of a request."""
    return (StreamedCompletion if call.stream else WholeCompletion)(call, exchange, client)


class WholeCompletion(TextAnswer):
    """All texts at once, in one JSON document."""

    def __init__(self, call: CompletionCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._call = call
        self._choices = [_Choice(begin) for begin in call.echo for _ in range(call.options.choices)]
        self._texts = None if call.options.logprobs is None else TokenTexts(call.model.tokenizer)

    def add(self, index: int, event: TokenEvent) -> None:
        choice = self._choices[index]
        if event.text:
            choice.parts.append(event.text)
        if event.logprob is not None:
            choice.events.append(event)
        if event.finish_reason is not None:
            choice.finish_reason = event.finish_reason

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        texts = self._texts
        choices = [
            {
                "index": index, "text": "".join(choice.parts),
                "logprobs": None if texts is None else texts.completion(choice.events, 0)[0],
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(self._choices)
        ]  # fmt: skip
        document = {**_head(self._call), "choices": choices, "usage": usage_document(usage)}
        self.exchange.reply(200, orjson.dumps(document))


class StreamedCompletion(ChoiceStream):
    """An event for each piece of text; the JSON around the texts is made once."""

    def __init__(self, call: CompletionCall, exchange: Exchange, client: Client) -> None:
        count = len(call.prompts) * call.options.choices
        super().__init__(
            call.model, exchange, client, head=_head(call), part=b"text", count=count, options=call.options,
            stream_options=call.stream_options,
        )  # fmt: skip
        self._offsets = [0] * count
        self._echoes = [begin for begin in call.echo for _ in range(call.options.choices)]

    def add(self, index: int, event: TokenEvent) -> None:
        text = event.text
        if self._echoes[index]:
            text, self._echoes[index] = self._echoes[index] + text, ""
        if self.texts is None and event.finish_reason is None:
            if text:
                self.stream.send(self.before[index] + orjson.dumps(text) + self.after)
            return
        logprobs = b"null"
        if self.texts is not None and event.logprob is not None:
            found, self._offsets[index] = self.texts.completion([event], self._offsets[index])
            logprobs = orjson.dumps(found)
        reason = orjson.dumps(event.finish_reason)
        rest = b',"logprobs":%b,"finish_reason":%b%b' % (logprobs, reason, self.end)
        self.stream.send(self.before[index] + orjson.dumps(text) + rest)
