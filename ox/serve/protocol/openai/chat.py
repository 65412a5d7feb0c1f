"""POST /v1/chat/completions: the next message of a conversation, in OpenAI's form."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import orjson

from ox.serve.access.client import Client
from ox.serve.generation.request import TokenEvent, TokenLogprob
from ox.serve.protocol.openai.choice_stream import ChoiceStream
from ox.serve.protocol.openai.token_texts import TokenTexts
from ox.serve.protocol.openai.usage import usage_document
from ox.serve.protocol.text.chat_request import ChatCall
from ox.serve.protocol.text.message_parts import CallBegin, Message, Piece, Reasoning
from ox.serve.protocol.text.message_reader import MessageReader
from ox.serve.protocol.text.text_answer import TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.transport.http import Exchange


def chat_answer(call: ChatCall, exchange: Exchange, client: Client) -> TextAnswer:
    """What writes the answer of a request."""
    return (StreamedChat if call.stream else WholeChat)(call, exchange, client)


def _head(call: ChatCall, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(call.model.clock.calendar()),
        "model": call.model.name,
    }  # fmt: skip


class WholeChat(TextAnswer):
    """All answers at once, in one JSON document."""

    def __init__(self, call: ChatCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._call, self._readers = call, call.readers()
        self._messages = [Message() for _ in self._readers]
        self._events: list[list[TokenEvent]] = [[] for _ in self._readers]
        self._prompt: Sequence[TokenLogprob] = ()

    def add(self, index: int, event: TokenEvent) -> None:
        for piece in self._readers[index].add(event):
            self._messages[index].add(piece)
        if event.logprob is not None:
            self._events[index].append(event)
        if event.prompt_logprobs is not None:
            self._prompt = event.prompt_logprobs

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        head, most = _head(self._call, "chat.completion"), self._call.options.others.get("prompt_logprobs")

        def write() -> bytes:
            choices = [self._choice(index) for index in range(len(self._readers))]
            document = {**head, "choices": choices, "usage": usage_document(usage, _reasoning(self._readers))}
            if most is not None:
                texts = TokenTexts(self.model.tokenizer, self._call.token_ids)
                document["prompt_logprobs"] = texts.prompt(self._prompt, most)
            return orjson.dumps(document)

        self.reply(write, takes_long=most is not None or self._call.options.logprobs is not None)

    def _choice(self, index: int) -> dict[str, Any]:
        message = self._messages[index]
        document: dict[str, Any] = {"role": "assistant", "content": message.text, "refusal": None}
        if message.reasoning:
            document["reasoning_content"] = message.reasoning
        if message.calls:
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.calls
            ]
            document |= {"content": message.text or None, "tool_calls": calls}
        logprobs = None
        if self._call.options.logprobs is not None:
            texts = TokenTexts(self.model.tokenizer, self._call.token_ids)
            logprobs = {"content": [texts.chat(event) for event in self._events[index]], "refusal": None}
        reason = self._readers[index].finish_reason
        return {"index": index, "message": document, "logprobs": logprobs, "finish_reason": reason}


class StreamedChat(ChoiceStream):
    """An event for each piece of text; the JSON around the texts is made once."""

    def __init__(self, call: ChatCall, exchange: Exchange, client: Client) -> None:
        count = call.options.choices
        super().__init__(
            call.model, exchange, client, head=_head(call, "chat.completion.chunk"), part=b"delta", count=count,
            options=call.options, stream_options=call.stream_options, token_ids=call.token_ids,
        )  # fmt: skip
        self._readers = call.readers()
        self._begun = [False] * count

    def usage(self, counts: TokenCounts) -> dict[str, Any]:
        return usage_document(counts, _reasoning(self._readers))

    def add(self, index: int, event: TokenEvent) -> None:
        self.count_usage()
        before, events = self.before[index], list[bytes]()
        if not self._begun[index]:
            self._begun[index] = True
            events.append(before + b'{"role":"assistant","content":"","refusal":null}' + self.after)
        reader = self._readers[index]
        pieces = reader.add(event)
        after = text_after = b"}" + self.after
        if self.texts is not None and event.logprob is not None:
            logprobs = orjson.dumps({"content": [self.texts.chat(event)], "refusal": None})
            after = b'},"logprobs":%b,"finish_reason":null%b' % (logprobs, self.end)
            pieces = pieces or [""]
        for piece in pieces:
            if isinstance(piece, str):
                events.append(b'%b{"content":%b%b' % (before, orjson.dumps(piece), after))
            else:
                events.append(before + orjson.dumps(_delta(piece)) + after[1:])
            after = text_after
        if event.finish_reason is not None:
            reason = orjson.dumps(reader.finish_reason)
            events.append(b'%b{},"logprobs":null,"finish_reason":%b%b' % (before, reason, self.end))
        if events:
            self.stream.send(b"".join(events))


def _reasoning(readers: Sequence[MessageReader]) -> int:
    return sum(reader.reasoning_tokens for reader in readers)


def _delta(piece: Piece) -> dict[str, Any]:
    """A piece of a message that is no text."""
    if isinstance(piece, Reasoning):
        return {"reasoning_content": piece.text}
    assert not isinstance(piece, str)
    if isinstance(piece, CallBegin):
        more = {"id": piece.id, "type": "function", "function": {"name": piece.name, "arguments": ""}}
    else:
        more = {"function": {"arguments": piece.arguments}}
    return {"tool_calls": [{"index": piece.index, **more}]}
