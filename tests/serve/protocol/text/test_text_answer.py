"""What is written in a thread after the last token, and clients that leave meanwhile."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rows import rows
from waiting import give_way

from ox.errors import OxError
from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.text.text_answer import StreamedAnswer, TextAnswer
from ox.serve.protocol.text.text_job import TokenCounts


class Answer(StreamedAnswer):
    """A stream, or a whole answer where `whole` is true."""

    def __init__(self, whole: bool, begun: bool) -> None:
        self.sent: list[Any] = []
        exchange: Any = SimpleNamespace(
            reply=lambda status, body: self.sent.append(body), send_error=lambda error: self.sent.append(error.status)
        )
        model: Any = None
        client: Any = None
        super().__init__(exchange, model, client)
        self.job: Any = SimpleNamespace(ended=True)  # all tokens have come
        stream: Any = SimpleNamespace(
            begun=begun, send=self.sent.append, end=lambda: self.sent.append("end"), close=lambda: None
        )
        self.stream = stream
        if whole:
            self.send_error = lambda error: TextAnswer.send_error(self, error)  # type: ignore[method-assign]

    def add(self, index: int, event: TokenEvent) -> None: ...

    def finish(self, usage: TokenCounts) -> None: ...

    def error_event(self, error: OxError) -> bytes:
        return b"error"


@rows(
    ("whole", "begun", "fails", "sent"),
    [
        (True, False, False, [b"body"]),
        (True, False, True, [500]),
        (False, False, True, [500]),
        (False, True, True, [b"error", "end"]),
    ],
)
def test_writing_in_a_thread(
    whole: bool, begun: bool, fails: bool, sent: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def body(leaves: bool) -> list[Any]:
        answer, started, go = Answer(whole, begun), threading.Event(), threading.Event()

        def write() -> bytes:
            started.set()
            go.wait()
            if fails:
                raise MemoryError
            return b"body"

        answer.reply(write, takes_long=True)
        await asyncio.to_thread(started.wait)
        if leaves:
            answer.leave()
        go.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        await give_way(3)
        return answer.sent

    caplog.clear()
    assert asyncio.run(body(leaves=False)) == sent
    assert ("an answer could not be written" in caplog.text) == fails
    assert asyncio.run(body(leaves=True)) == []  # the exchange is closed
