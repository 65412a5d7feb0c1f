"""What writes a response: whole, or as a stream of events."""

from __future__ import annotations

from typing import Any

import orjson

from ox.errors import OxError
from ox.serve.access.client import Client
from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.openai.errors import error_document
from ox.serve.protocol.openai.token_texts import TokenTexts
from ox.serve.protocol.responses.output import Event, Output
from ox.serve.protocol.responses.request import ResponseCall
from ox.serve.protocol.text.response_store import StoredResponse
from ox.serve.protocol.text.text_answer import StreamedAnswer, TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts
from ox.serve.transport.http import Exchange


def response_answer(call: ResponseCall, exchange: Exchange, client: Client) -> TextAnswer:
    """What writes the answer of a request."""
    return (StreamedResponse if call.chat.stream else WholeResponse)(call, exchange, client)


class Progress:
    """A response while it is made.

    Args:
        call: the request.
    """

    def __init__(self, call: ResponseCall) -> None:
        self._call, self._model = call, call.chat.model
        (self._reader,) = call.chat.readers()
        self._output = Output(call.key)
        self._texts = None if call.options.logprobs is None else TokenTexts(self._model.tokenizer)
        self._logprobs: list[Any] = []  # of tokens whose text has not come
        self._created = int(self._model.clock.calendar())

    def add(self, event: TokenEvent) -> list[Event]:
        """The events of the next token."""
        if self._texts is not None and event.logprob is not None:
            self._logprobs.append(self._texts.chat(event))
        events = []
        for piece in self._reader.add(event):
            logprobs, self._logprobs = self._logprobs, []
            events += self._output.add(piece, logprobs)
        if event.finish_reason is not None:
            events += self._output.end(self._status)
        return events

    @property
    def _status(self) -> str:
        incomplete = self._reader.broken or self._reader.finish_reason in ("length", "cancelled")
        return "incomplete" if incomplete else "completed"

    def document(self, usage: TokenCounts | None = None, error: OxError | None = None) -> dict[str, Any]:
        """The response object: at its end with its usage or its error, before in progress."""
        status, completed, incomplete = "in_progress", None, None
        if error is not None:
            status = "failed"
            self._output.end("incomplete")
        elif usage is not None:
            status = self._status
            if status == "completed":
                completed = int(self._model.clock.calendar())
            elif self._reader.finish_reason != "stop":  # a call that a stop string has cut has no reason of OpenAI's
                incomplete = {"reason": "max_output_tokens"}
        return {
            "id": f"resp_{self._call.key}", "object": "response", "created_at": self._created, "status": status,
            "completed_at": completed, "error": None if error is None else failure(error),
            "incomplete_details": incomplete, **self._call.document, "output": self._output.items,
            "usage": None if usage is None else self._usage(usage),
        }  # fmt: skip

    @property
    def stores(self) -> bool:
        """Whether the response is to be stored."""
        return self._call.store is not None

    def _usage(self, counts: TokenCounts) -> dict[str, Any]:
        return {
            "input_tokens": counts.prompt, "input_tokens_details": {"cached_tokens": counts.cached},
            "output_tokens": counts.completion,
            "output_tokens_details": {"reasoning_tokens": self._reader.reasoning_tokens},
            "total_tokens": counts.prompt + counts.completion,
        }  # fmt: skip

    def finish(self, usage: TokenCounts) -> dict[str, Any]:
        """The whole response, which is stored; that may take long."""
        document, call = self.document(usage), self._call
        if call.store is not None:
            stored = StoredResponse(orjson.dumps(document), call.input, call.context)
            if not call.store.put(document["id"], call.owner, stored):
                document["store"] = False
        return document


class WholeResponse(TextAnswer):
    """The response object alone."""

    def __init__(self, call: ResponseCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.chat.model, client)
        self._progress = Progress(call)

    def add(self, index: int, event: TokenEvent) -> None:
        self._progress.add(event)

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        self.reply(lambda: orjson.dumps(self._progress.finish(usage)), takes_long=self._progress.stores)


class StreamedResponse(StreamedAnswer):
    """The response as events, numbered from 0 on."""

    def __init__(self, call: ResponseCall, exchange: Exchange, client: Client) -> None:
        super().__init__(exchange, call.chat.model, client)
        self._progress, self._number = Progress(call), 0

    def add(self, index: int, event: TokenEvent) -> None:
        begun = self._begin()  # it shows the response without the items of this token
        encoded = begun + self._encoded(self._progress.add(event))
        if encoded:
            self.stream.send(encoded)

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        if self._progress.stores:
            self.in_thread(lambda: self._progress.finish(usage), self._end)
        else:
            self._end(self._progress.finish(usage))

    def _end(self, document: dict[str, Any]) -> None:
        self.stream.send(self._encoded([{"type": f"response.{document['status']}", "response": document}]))
        self.stream.end()

    def error_event(self, error: OxError) -> bytes:
        begun = self._begin()  # clients need these events, also where only comments were sent
        failed = {"type": "response.failed", "response": self._progress.document(error=error)}
        fields = error_document(error)["error"]
        fields = {"code": fields["code"] or fields["type"], "message": fields["message"], "param": fields["param"]}
        return begun + self._encoded([failed, {"type": "error", **fields}])

    def _begin(self) -> bytes:
        """The first events; nothing if they were sent."""
        if self._number:
            return b""
        document = self._progress.document()
        return self._encoded(
            [{"type": f"response.{kind}", "response": document} for kind in ("created", "in_progress")]
        )

    def _encoded(self, events: list[Event]) -> bytes:
        encoded = []
        for event in events:
            data = orjson.dumps({**event, "sequence_number": self._number})
            encoded.append(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), data))
            self._number += 1
        return b"".join(encoded)


def failure(error: OxError) -> dict[str, str]:
    """The field `error` of a response that failed."""
    fields = error_document(error)["error"]
    return {"code": "rate_limit_exceeded" if fields["code"] == "rate_limit_exceeded" else "server_error",
            "message": fields["message"]}  # fmt: skip
