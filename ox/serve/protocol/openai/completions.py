"""POST /v1/completions: texts that continue prompts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ox.serve.access.client import Client
from ox.serve.generation.request import GenerationRequest, TokenEvent, TokenLogprob
from ox.serve.protocol.openai.choice_stream import ChoiceStream
from ox.serve.protocol.openai.token_texts import Logprobs, TokenTexts
from ox.serve.protocol.openai.usage import usage_document
from ox.serve.protocol.text.fields import Fields, ParameterError, renaming
from ox.serve.protocol.text.object_keys import remark_unknown_keys
from ox.serve.protocol.text.parameters import MAX_CHOICES, parameters_in
from ox.serve.protocol.text.prompt import truncated
from ox.serve.protocol.text.sampling import TextOptions, read_options, with_format
from ox.serve.protocol.text.stream_options import StreamOptions, read_stream_options
from ox.serve.protocol.text.text_answer import TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.transport.http import Exchange

DEFAULT_TOKENS = 16  # OpenAI's
MOST_OF_PROMPTS = 1 << 22  # log-probabilities: some hundred megabytes
MOST_IN_STREAMS = 1 << 13  # written on the event loop: some 30 ms


@dataclass(frozen=True)
class CompletionCall:
    """A request that was read: its prompts as tokens, and what is said of their texts."""

    model: TextModel
    prompts: Sequence[Sequence[int]]
    options: TextOptions
    echo: tuple[str, ...]  # the prompts as texts, where they are repeated; else ""
    stream: bool
    stream_options: StreamOptions
    echo_logprobs: bool = False  # log-probabilities of the prompt stand before those of the text
    prompt_logprobs: int | None = None  # vLLM's: so many at each place of the prompt
    token_ids: bool = False  # tokens of log-probabilities are shown as their ids

    def requests(self, client: str) -> list[GenerationRequest]:
        """All texts of a prompt, then those of the next one."""
        each = self.stream  # where the texts come in any order
        return [request for prompt in self.prompts for request in self.options.requests(prompt, client, each)]


@renaming
def read_completion(fields: Fields, model: TextModel) -> CompletionCall:
    """Reads a request, except for its model.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown.
    """
    remark_unknown_keys(fields, "completions")
    declared = parameters_in("completions")
    options, values = read_options(fields, model, declared)
    options = with_format(options, fields)
    stream, stream_options = read_stream_options(fields)
    echo, shown = values.get("echo", False), options.others.get("prompt_logprobs")
    echo_logprobs = echo and options.logprobs is not None
    if stream and shown is not None:
        raise ParameterError("prompt_logprobs", "'prompt_logprobs' is not for streams", hint='"stream": false')
    if echo_logprobs:
        most = max(options.logprobs or 0, shown or 0)
        options = replace(options, others={**options.others, "prompt_logprobs": most})
    texts, prompts = _prompts(fields, model, options, values)
    fields.finish(declared)
    if len(prompts) * options.choices > MAX_CHOICES:
        raise ParameterError("n", "too many texts in one request", expected=f"at most {MAX_CHOICES}",
                             got=f"{options.choices} for each of {len(prompts)} prompts")  # fmt: skip
    wanted = options.others.get("prompt_logprobs")
    found = 0 if wanted is None else sum(map(len, prompts)) * (1 + wanted) * options.choices
    most = MOST_IN_STREAMS if stream else MOST_OF_PROMPTS
    if found > most:
        name = "prompt_logprobs" if shown is not None else "logprobs"
        what = f"too many log-probabilities of prompts in one {'stream' if stream else 'request'}"
        hint = '"stream": false' if stream else "fewer prompts"
        raise ParameterError(name, what, expected=f"at most {most:,}", got=f"{found:,}", hint=hint)
    options = options.with_default(DEFAULT_TOKENS)
    repeated = texts if echo else [""] * len(prompts)
    return CompletionCall(
        model, prompts, options, tuple(repeated), stream, stream_options, echo_logprobs, shown,
        values.get("return_tokens_as_token_ids", False),
    )  # fmt: skip


def _prompts(
    fields: Fields, model: TextModel, options: TextOptions, values: Mapping[str, Any]
) -> tuple[list[str], list[Sequence[int]]]:
    """The prompts as texts and as tokens: a string, tokens, or a list of either."""
    fields.required("prompt")
    given = fields.take("prompt")
    special, most = values.get("add_special_tokens", True), values.get("truncate_prompt_tokens")
    expected = "a string, a list of strings, token ids, or a list of lists of them"
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise fields.wrong("prompt", expected, given)
    if isinstance(given, list) and isinstance(given[0], int):
        listed = [listed]
    if len(listed) > MAX_CHOICES:
        raise fields.wrong("prompt", f"at most {MAX_CHOICES} prompts", given)
    texts: list[str] = []
    prompts: list[Sequence[int]] = []
    for each in listed:
        if isinstance(each, str):
            tokens: Sequence[int] = model.encode(each, special)
        elif isinstance(each, list) and each:
            tokens = each
        else:
            raise fields.wrong("prompt", expected, each)
        shorter = truncated(tokens, most, model, options.max_tokens)
        options.check_length(shorter, model, "prompt")
        if isinstance(each, list):
            _check_tokens(each, model.engine.vocab_size, fields)
        prompts.append(shorter)
        if isinstance(each, str) and len(shorter) == len(tokens):
            texts.append(each)
        else:
            texts.append("" if model.engine.tokenizer is None else model.tokenizer.decode(shorter))
    return texts, prompts


def _check_tokens(tokens: list[Any], vocab_size: int, fields: Fields) -> None:
    for token in tokens:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise fields.wrong("prompt", f"token ids from 0 to {vocab_size - 1}", token)


class _Choice:
    """One text of a whole answer."""

    __slots__ = ("events", "finish_reason", "parts", "prompt")

    def __init__(self, begin: str) -> None:
        self.parts = [begin]
        self.events: list[TokenEvent] = []
        self.prompt: Sequence[TokenLogprob] = ()
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
        self._texts: TokenTexts | None = None
        self._of_prompt: orjson.Fragment | None = None  # the log-probabilities of the last prompt that was written
        if call.options.logprobs is not None or call.prompt_logprobs is not None:
            self._texts = TokenTexts(call.model.tokenizer, call.token_ids)

    def add(self, index: int, event: TokenEvent) -> None:
        choice = self._choices[index]
        if event.prompt_logprobs is not None:
            choice.prompt = event.prompt_logprobs
        if event.text:
            choice.parts.append(event.text)
        if event.logprob is not None:
            choice.events.append(event)
        if event.finish_reason is not None:
            choice.finish_reason = event.finish_reason

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        head = _head(self._call)

        def write() -> bytes:
            choices = [self._document(index, choice) for index, choice in enumerate(self._choices)]
            return orjson.dumps({**head, "choices": choices, "usage": usage_document(usage)})

        self.reply(write, takes_long=self._texts is not None)

    def _document(self, index: int, choice: _Choice) -> dict[str, Any]:
        call, texts, logprobs = self._call, self._texts, None
        of_prompt = self._choices[index - index % call.options.choices].prompt
        prompt = call.prompts[index // call.options.choices]
        if texts is not None and call.options.logprobs is not None:
            found = Logprobs(texts, call.options.logprobs)
            if call.echo_logprobs:
                found.add_prompt(prompt[0], of_prompt)
            logprobs = found.add(choice.events)
        document = {
            "index": index, "text": "".join(choice.parts), "logprobs": logprobs, "finish_reason": choice.finish_reason
        }  # fmt: skip
        if texts is not None and call.prompt_logprobs is not None:
            if index % call.options.choices == 0:  # the others of its prompt repeat it
                self._of_prompt = orjson.Fragment(orjson.dumps(texts.prompt(of_prompt, call.prompt_logprobs)))
            document["prompt_logprobs"] = self._of_prompt
        return document


class StreamedCompletion(ChoiceStream):
    """An event for each piece of text; the JSON around the texts is made once."""

    def __init__(self, call: CompletionCall, exchange: Exchange, client: Client) -> None:
        count = len(call.prompts) * call.options.choices
        super().__init__(
            call.model, exchange, client, head=_head(call), part=b"text", count=count, options=call.options,
            stream_options=call.stream_options, token_ids=call.token_ids,
        )  # fmt: skip
        self._call, self._shown = call, list[Logprobs | None]([None] * count)
        if self.texts is not None:
            self._shown = [Logprobs(self.texts, call.options.logprobs or 0) for _ in range(count)]
        self._echoes = [begin for begin in call.echo for _ in range(call.options.choices)]

    def add(self, index: int, event: TokenEvent) -> None:
        self.count_usage()
        text, shown, logprobs = event.text, self._shown[index], None
        if self._echoes[index]:
            text, self._echoes[index] = self._echoes[index] + text, ""
        if shown is not None:
            if event.prompt_logprobs is not None and self._call.echo_logprobs:
                shown.add_prompt(self._call.prompts[index // self._call.options.choices][0], event.prompt_logprobs)
                logprobs = shown.add([])
            elif event.logprob is not None:
                logprobs = shown.add([event])
        if logprobs is None and event.finish_reason is None:
            if text:
                self.stream.send(self.before[index] + orjson.dumps(text) + self.after)
            return
        reason = orjson.dumps(event.finish_reason)
        rest = b',"logprobs":%b,"finish_reason":%b%b' % (orjson.dumps(logprobs), reason, self.end)
        self.stream.send(self.before[index] + orjson.dumps(text) + rest)
