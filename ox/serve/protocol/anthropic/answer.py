"""What writes a message of Anthropic's API: whole, or as a stream of events."""

from __future__ import annotations

import secrets
from typing import Any

import orjson

from ox.errors import OxError
from ox.serve.access.client import Client
from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.anthropic.errors import error_body
from ox.serve.protocol.text.call_arguments import arguments_object
from ox.serve.protocol.text.chat_request import ChatCall
from ox.serve.protocol.text.message_parts import CallBegin, CallDelta, Piece, Reasoning
from ox.serve.protocol.text.text_answer import StreamedAnswer, TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.transport.http import Exchange

Event = dict[str, Any]
REASONS = {"stop": "end_turn", "length": "max_tokens", "cancelled": "end_turn", "tool_calls": "tool_use"}


def message_answer(call: ChatCall, exchange: Exchange, client: Client) -> TextAnswer:
    """What writes the answer of a request."""
    return (StreamedMessage if call.stream else WholeMessage)(call, exchange, client)


class Progress:
    """A message while it is made."""

    def __init__(self, call: ChatCall) -> None:
        (self._reader,) = call.readers()
        self._call, self._blocks = call, list[dict[str, Any]]()
        self._parts: list[str] = []  # of the last block; joined at its end, because a text that grows is copied
        self._open, self._id = False, f"msg_{secrets.token_hex(12)}"
        self._reason: str | None = None
        self._stop_sequence: str | None = None

    def add(self, event: TokenEvent) -> list[Event]:
        """The events of the next token."""
        events = [each for piece in self._reader.add(event) for each in self._piece(piece)]
        reason = self._reader.finish_reason
        if reason is not None:
            if reason == "stop" and isinstance(event.stopped_by, str):
                self._reason, self._stop_sequence = "stop_sequence", event.stopped_by
            else:
                self._reason = REASONS[reason]
            events += self._end()
        return events

    def document(self, usage: dict[str, int]) -> dict[str, Any]:
        """The message; its last block is empty until it ends."""
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._call.model.name,
            "content": self._blocks, "stop_reason": self._reason, "stop_sequence": self._stop_sequence, "usage": usage,
        }  # fmt: skip

    def start(self) -> Event:
        """The first event of a stream."""
        usage = {"input_tokens": len(self._call.prompt), "output_tokens": 0}
        return {"type": "message_start", "message": {**self.document(usage), "content": []}}

    def delta(self, usage: dict[str, int]) -> Event:
        """The event of the end of the message."""
        reasons = {"stop_reason": self._reason, "stop_sequence": self._stop_sequence}
        return {"type": "message_delta", "delta": reasons, "usage": usage}

    def _piece(self, piece: Piece) -> list[Event]:
        if isinstance(piece, str):
            return self._grow("text", piece)
        if isinstance(piece, Reasoning):
            return self._grow("thinking", piece.text)
        if isinstance(piece, CallBegin):
            return self._begin({"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}})
        assert isinstance(piece, CallDelta)
        if not piece.arguments:
            return []
        self._parts.append(piece.arguments)
        return [self._delta({"type": "input_json_delta", "partial_json": piece.arguments})]

    def _grow(self, kind: str, text: str) -> list[Event]:
        """More of a text or of thinking, in a block of its own if the last one is another."""
        events = []
        if not self._open or self._blocks[-1]["type"] != kind:
            signature = {"signature": ""} if kind == "thinking" else {}
            events = self._begin({"type": kind, kind: "", **signature})
        self._parts.append(text)
        return [*events, self._delta({"type": f"{kind}_delta", kind: text})]

    def _begin(self, block: dict[str, Any]) -> list[Event]:
        events = self._end()
        self._open, self._parts = True, []
        self._blocks.append({**block})
        return [*events, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block}]

    def _delta(self, delta: dict[str, str]) -> Event:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}

    def _end(self) -> list[Event]:
        if not self._open:
            return []
        self._open, block, text = False, self._blocks[-1], "".join(self._parts)
        if block["type"] == "tool_use":
            block["input"] = arguments_object(text) or {}  # of a call that was cut off nothing is certain
        else:
            block[block["type"]] = text
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]


class WholeMessage(TextAnswer):
    """The message alone."""

    def __init__(self, call: ChatCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._progress = Progress(call)

    def add(self, index: int, event: TokenEvent) -> None:
        self._progress.add(event)

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        self.exchange.reply(200, orjson.dumps(self._progress.document(usage_document(usage))))


class StreamedMessage(StreamedAnswer):
    """The message as events."""

    def __init__(self, call: ChatCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._progress, self._begun = Progress(call), False

    def add(self, index: int, event: TokenEvent) -> None:
        events: list[Event] = []
        if not self._begun:
            self._begun = True
            events = [self._progress.start(), {"type": "ping"}]
        events += self._progress.add(event)
        if events:
            self.stream.send(b"".join(map(encoded, events)))

    def finish(self, usage: TokenCounts) -> None:
        delta = self._progress.delta(usage_document(usage))
        self.stream.send(encoded(delta) + encoded({"type": "message_stop"}))
        super().finish(usage)

    def error_event(self, error: OxError) -> bytes:
        return b"event: error\ndata: %b\n\n" % error_body(error)


def encoded(event: Event) -> bytes:
    """An event of a stream."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def usage_document(counts: TokenCounts) -> dict[str, int]:
    """Anthropic's `usage`, where cached tokens are counted apart."""
    return {
        "input_tokens": counts.prompt - counts.cached, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached, "output_tokens": counts.completion,
    }  # fmt: skip
