"""What writes Ollama's answers: one JSON document, or a stream with a document on each line."""

from __future__ import annotations

from typing import Any

import orjson

from ox.errors import OxError
from ox.serve.access.client import Client
from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.ollama.request import OllamaCall
from ox.serve.protocol.openai.token_texts import TokenTexts
from ox.serve.protocol.text.call_arguments import arguments_object
from ox.serve.protocol.text.message_parts import Call, CallBegin, CallDelta, Message, Piece, Reasoning
from ox.serve.protocol.text.text_answer import StreamedAnswer, TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.v2.document import timestamp
from ox.serve.transport.http import Exchange
from ox.serve.transport.http.listener_state import v2_error_body

CONTENT_TYPE = b"application/x-ndjson"
REASONS = {"stop": "stop", "tool_calls": "stop", "length": "length", "cancelled": "stop"}


def ollama_answer(call: OllamaCall, exchange: Exchange, client: Client) -> TextAnswer:
    """What writes the answer of a request."""
    return (StreamedLines if call.stream else WholeDocument)(call, exchange, client)


def head(model: TextModel) -> dict[str, Any]:
    """What all documents of texts begin with."""
    return {"model": model.name, "created_at": timestamp(model.clock.calendar())}


class Progress:
    """A text or a message while it is made."""

    def __init__(self, call: OllamaCall, exchange: Exchange) -> None:
        self._call, self._reader, self._now = call, call.reader(), call.model.clock.now
        self._received_at, self._first_at = exchange.received_at, 0.0
        self._texts = None if call.options.logprobs is None else TokenTexts(call.model.tokenizer)

    def add(self, event: TokenEvent) -> tuple[list[Piece], list[Any]]:
        """The pieces of the next token, and its log-probabilities."""
        self._first_at = self._first_at or self._now()
        wanted = self._texts is not None and event.logprob is not None
        return self._reader.add(event), [self._texts.chat(event)] if wanted and self._texts is not None else []

    def document(self, text: str, thinking: str, calls: list[Call], logprobs: list[Any]) -> dict[str, Any]:
        """A part of an answer, or the whole."""
        more: dict[str, Any] = {"thinking": thinking} if thinking else {}
        if self._call.chat:
            found = [(call.name, arguments_object(call.arguments)) for call in calls]
            # a call that was cut off is left out: the client would run it
            functions = [{"name": name, "arguments": arguments} for name, arguments in found if arguments is not None]
            if functions:
                more["tool_calls"] = [{"function": function} for function in functions]
            document: dict[str, Any] = {"message": {"role": "assistant", "content": text, **more}}
        else:
            document = {"response": text, **more}
        return {**head(self._call.model), **document, "done": False, **({"logprobs": logprobs} if logprobs else {})}

    def end(self, usage: TokenCounts) -> dict[str, Any]:
        """What the last document has beside: the reason of the end, times in nanoseconds, and numbers of tokens."""
        now, reason = self._now(), self._reader.finish_reason
        first = self._first_at or now
        return {
            "done": True, "done_reason": "stop" if reason is None else REASONS[reason],
            "total_duration": _nanoseconds(now - self._received_at), "load_duration": 0,
            "prompt_eval_count": usage.prompt, "prompt_eval_duration": _nanoseconds(first - self._received_at),
            "eval_count": usage.completion, "eval_duration": _nanoseconds(now - first),
        }  # fmt: skip


class WholeDocument(TextAnswer):
    """The answer in one JSON document."""

    def __init__(self, call: OllamaCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._progress, self._message = Progress(call, exchange), Message()
        self._logprobs: list[Any] = []

    def add(self, index: int, event: TokenEvent) -> None:
        pieces, logprobs = self._progress.add(event)
        for piece in pieces:
            self._message.add(piece)
        self._logprobs += logprobs

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        message = self._message
        document = self._progress.document(message.text, message.reasoning, message.calls, self._logprobs)
        self.exchange.reply(200, orjson.dumps(document | self._progress.end(usage)))


class StreamedLines(StreamedAnswer):
    """A line for each piece. A call is on one line, when it is complete."""

    content_type, heartbeat = CONTENT_TYPE, b" "  # a blank before a document changes nothing

    def __init__(self, call: OllamaCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.model, client)
        self._progress = Progress(call, exchange)
        self._called: Call | None = None

    def add(self, index: int, event: TokenEvent) -> None:
        pieces, logprobs = self._progress.add(event)
        documents = []
        for piece in pieces or ([""] if logprobs else []):
            if isinstance(piece, CallDelta):
                assert self._called is not None
                self._called.parts.append(piece.arguments)
                continue
            documents += self._call_document()
            if isinstance(piece, CallBegin):
                self._called = Call(piece.id, piece.name)
            else:
                thinking = piece.text if isinstance(piece, Reasoning) else ""
                documents.append(self._progress.document("" if thinking else str(piece), thinking, [], logprobs))
                logprobs = []
        if event.finish_reason is not None:
            documents += self._call_document()
        if documents:
            self.stream.send(b"".join(orjson.dumps(document) + b"\n" for document in documents))

    def _call_document(self) -> list[dict[str, Any]]:
        """The call that has ended, if there is one."""
        called, self._called = self._called, None
        if called is None or arguments_object(called.arguments) is None:
            return []
        return [self._progress.document("", "", [called], [])]

    def finish(self, usage: TokenCounts) -> None:
        document = self._progress.document("", "", [], []) | self._progress.end(usage)
        self.stream.send(orjson.dumps(document) + b"\n")
        super().finish(usage)

    def error_event(self, error: OxError) -> bytes:
        return v2_error_body(error) + b"\n"


def _nanoseconds(seconds: float) -> int:
    return int(1e9 * seconds)
