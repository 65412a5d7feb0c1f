"""POST /v1/chat/completions: the next message of a conversation."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ox.errors import ServeError
from ox.serve.access.client import Client
from ox.serve.generation.request import Constraint, GenerationRequest, TokenEvent
from ox.serve.protocol.openai.choice_stream import ChoiceStream
from ox.serve.protocol.openai.completions import read_ignored
from ox.serve.protocol.openai.messages import read_messages, read_tools
from ox.serve.protocol.openai.token_texts import TokenTexts
from ox.serve.protocol.openai.usage import StreamOptions, read_stream_options, usage_document
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.sampling import MAX_TOKENS, TextOptions, read_logprobs, read_options, with_format
from ox.serve.protocol.text.text_answer import TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.tool_calls import ToolCall, ToolCallParser, ToolFormat, call_schema
from ox.serve.transport.http import Exchange


@dataclass(frozen=True)
class ChatCall:
    """A request that was read: the conversation as tokens, and what is said of the answer."""

    model: TextModel
    prompt: Sequence[int]
    options: TextOptions
    tool_format: ToolFormat | None  # of the calls in the text; None where they stay a part of it
    stream: bool
    stream_options: StreamOptions

    def requests(self, client: str) -> list[GenerationRequest]:
        """One for each answer."""
        return self.options.requests(self.prompt, client)

    def answer(self, exchange: Exchange, client: Client) -> TextAnswer:
        kind = StreamedChat if self.stream else WholeChat
        return kind(self, exchange, client)

    def parsers(self) -> list[ToolCallParser] | None:
        """For the calls of tools in each answer; None if they stay a part of the text."""
        form = self.tool_format
        if form is None:
            return None
        return [ToolCallParser(form) for _ in range(self.options.choices)]


def read_chat(fields: Fields, model: TextModel) -> ChatCall:
    """Reads a request, except for its model.

    Raises:
        ParameterError: a parameter is wrong, refused or unknown.
        ServeError: the model has no chat template or no tokenizer, or the template refuses the messages.
    """
    read_ignored(fields)
    options = read_options(fields, model, _max_tokens(fields))
    options = replace(with_format(options, fields), logprobs=_logprobs(fields))
    stream, stream_options = read_stream_options(fields)
    messages, tools = read_messages(fields), read_tools(fields)
    if tools.forced:
        if options.constraint is not None:
            raise ParameterError("tool_choice", "'tool_choice' and the form of the text contradict each other")
        options = replace(options, constraint=Constraint("json_schema", call_schema(tools.forced)))
    _refuse_others(fields)
    fields.finish()
    if model.template is None:
        hint = "/v1/completions, or a chat_template.jinja beside the model"
        raise ServeError(f"model '{model.name}' has no chat template", hint=hint)
    # The template writes the special tokens itself.
    prompt = model.encode(model.template.render(messages, tools.offered), special=False)
    options.check_length(prompt, model, "messages")
    form: ToolFormat | None = "forced" if tools.forced else model.tool_format if tools.offered else None
    return ChatCall(model, prompt, options, form, stream, stream_options)


def _refuse_others(fields: Fields) -> None:
    """Parameters of OpenAI that need what this server does not have."""
    fields.only("modalities", (["text"],), "models of texts alone are served")
    fields.only("verbosity", ("medium",), "the prompt says how long an answer should be")
    for name in ("audio", "functions", "function_call", "prediction", "reasoning_effort", "web_search_options"):
        hint = "'tools' and 'tool_choice'" if name.startswith("function") else "a request without it"
        fields.only(name, (), hint=hint)


def _max_tokens(fields: Fields) -> int | None:
    old = fields.whole("max_tokens", 1, MAX_TOKENS)
    new = fields.whole("max_completion_tokens", 1, MAX_TOKENS)
    if old is not None and new is not None and old != new:
        raise ParameterError("max_tokens", "'max_tokens' and 'max_completion_tokens' contradict each other",
                             expected="one of them", got=f"{old} and {new}")  # fmt: skip
    return new if old is None else old


def _logprobs(fields: Fields) -> int | None:
    wanted, top = fields.flag("logprobs"), read_logprobs(fields, "top_logprobs")
    if top is not None and not wanted:
        raise ParameterError("top_logprobs", "'top_logprobs' needs 'logprobs'", hint='"logprobs": true')
    return (top or 0) if wanted else None


def _head(call: ChatCall, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(call.model.clock.calendar()),
        "model": call.model.name,
    }  # fmt: skip


class WholeChat(TextAnswer):
    """All answers at once, in one JSON document."""

    def __init__(self, call: ChatCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._call, count = call, call.options.choices
        self._parts: list[list[str]] = [[] for _ in range(count)]
        self._events: list[list[TokenEvent]] = [[] for _ in range(count)]
        self._reasons = [""] * count

    def add(self, index: int, event: TokenEvent) -> None:
        if event.text:
            self._parts[index].append(event.text)
        if event.logprob is not None:
            self._events[index].append(event)
        if event.finish_reason is not None:
            self._reasons[index] = event.finish_reason

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        choices = [self._choice(index) for index in range(len(self._parts))]
        document = {**_head(self._call, "chat.completion"), "choices": choices, "usage": usage_document(usage)}
        self.exchange.reply(200, orjson.dumps(document))

    def _choice(self, index: int) -> dict[str, Any]:
        content, reason = "".join(self._parts[index]), self._reasons[index]
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        parsers = self._call.parsers()
        if parsers is not None:
            parser = parsers[index]
            found = [*parser.add(content), *parser.finish()]
            calls = [each.document() for each in found if isinstance(each, ToolCall)]
            if calls:
                text = "".join(each for each in found if isinstance(each, str))
                message |= {"content": text or None, "tool_calls": calls}
                reason = "tool_calls" if reason == "stop" else reason
        logprobs = None
        if self._call.options.logprobs is not None:
            texts = TokenTexts(self.model.tokenizer)
            logprobs = {"content": [texts.chat(event) for event in self._events[index]], "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


class StreamedChat(ChoiceStream):
    """An event for each piece of text; the JSON around the texts is made once."""

    def __init__(self, call: ChatCall, exchange: Exchange, client: Client) -> None:
        count = call.options.choices
        super().__init__(
            call.model, exchange, client, head=_head(call, "chat.completion.chunk"), part=b"delta", count=count,
            options=call.options, stream_options=call.stream_options,
        )  # fmt: skip
        self._text_after = b"}" + self.after
        self._parsers = call.parsers()
        self._calls = [0] * count  # of tools, so far
        self._begun = [False] * count

    def add(self, index: int, event: TokenEvent) -> None:
        before, events = self.before[index], list[bytes]()
        if not self._begun[index]:
            self._begun[index] = True
            events.append(before + b'{"role":"assistant","content":"","refusal":null}' + self.after)
        pieces: list[str | ToolCall] = [event.text] if event.text else []
        if self._parsers is not None:
            parser = self._parsers[index]
            pieces = parser.add(event.text) if event.text else []
            if event.finish_reason is not None:
                pieces += parser.finish()
        after = self._text_after
        if self.texts is not None and event.logprob is not None:
            logprobs = orjson.dumps({"content": [self.texts.chat(event)], "refusal": None})
            after = b'},"logprobs":%b,"finish_reason":null%b' % (logprobs, self.end)
            pieces = pieces or [""]
        for piece in pieces:
            if isinstance(piece, str):
                events.append(b'%b{"content":%b%b' % (before, orjson.dumps(piece), after))
            else:
                delta = {"tool_calls": [{"index": self._calls[index], **piece.document()}]}
                self._calls[index] += 1
                events.append(before + orjson.dumps(delta) + after[1:])
            after = self._text_after
        if event.finish_reason is not None:
            reason = "tool_calls" if self._calls[index] and event.finish_reason == "stop" else event.finish_reason
            events.append(b'%b{},"logprobs":null,"finish_reason":%b%b' % (before, orjson.dumps(reason), self.end))
        if events:
            self.stream.send(b"".join(events))
