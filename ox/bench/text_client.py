"""A client that has texts generated, and notes when their tokens come."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, cast

import orjson

from ox.bench.answer import OK, Reply
from ox.bench.completions import CompletionValidator
from ox.bench.event_stream import StreamReader, usage_of
from ox.bench.http1 import HttpClient
from ox.bench.text_figures import TextRecorder

if TYPE_CHECKING:
    from ox.bench.pool import Pool


class TextClient(HttpClient):
    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.validator = cast(CompletionValidator, pool.judge)
        self.recorder = cast(TextRecorder, pool.recorder)

    def send(self, request: bytes) -> None:
        self.reader = StreamReader()
        self.times: list[float] = []
        self.usage: tuple[int, int] | None = None
        self.done, self.problem = False, ""
        self.transport.write(self.validator.marked(request))

    def data_received(self, data: bytes) -> None:
        if not self.busy:
            self._unsolicited_response(data)
            return
        try:
            for event in self.reader.feed(data):
                self._read(event, perf_counter())
        except ValueError as error:
            self.fail("wrong: not HTTP", str(error))
            return
        if self.reader.ended:
            self._end()

    def _read(self, event: bytes, now: float) -> None:
        if event == b"[DONE]":
            self.done = True
            return
        try:
            document = orjson.loads(event)
            choices = document.get("choices", ())
            if any(choice.get("text") for choice in choices):
                self.times.append(now)
        except (ValueError, AttributeError, TypeError):
            self.problem = self.problem or "wrong: unreadable event"
            return
        if "error" in document:
            self.problem = self.problem or f"error: {document['error']!r:.80}"
        self.usage = usage_of([document]) or self.usage

    def _end(self) -> None:
        head = self.reader.head
        assert head is not None
        if head.close:  # the answer counts; the next request needs another connection
            self.lost = True
            self.transport.abort()
        if head.status != OK:
            self.answered(Reply(head.status, bytes(self.reader.body)))
        elif self.problem or not self.done or not self.times:
            failure = self.problem or ("wrong: no text" if self.done else "wrong: no end of the events")
            self.answered(Reply(OK, b"", failure=failure))
        else:
            self.recorder.completed(self.meant, self.times, self.usage)
            self.right()
        if head.close:
            self.pool.lost(self)
