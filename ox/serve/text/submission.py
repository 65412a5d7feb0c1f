"""Texts of requests are encoded before they are queued: short ones at once, others in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from ox.errors import OxError, ServeError
from ox.serve.batching.job import Job
from ox.serve.protocol.v2.document import flag
from ox.serve.repository.thread import in_thread
from ox.serve.text.text_tensors import TOKENS, TextTensors

SHORT = 2048  # characters: about a millisecond
MOST_WAITING = 64  # requests with long texts
TRUNCATE = "truncate"  # the parameter of a request


class TextSubmission:
    """Takes the requests of a model whose inputs are texts.

    Args:
        text: the tensors of the model.
        submit: queues a request with tokens.
    """

    def __init__(self, text: TextTensors, submit: Callable[[Job], None]) -> None:
        self._text, self._submit = text, submit
        self._turn = threading.Lock()  # one long request at a time: encoding takes all cores that it gets
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop keeps only weak references

    @property
    def waiting(self) -> int:
        """Requests whose texts are being encoded."""
        return len(self._tasks)

    def __call__(self, job: Job) -> None:
        """Encodes the texts of a job and queues it. On the event loop.

        Raises:
            ServeError: a text that cannot be encoded, too many requests, or what `submit` raises.
        """
        if TOKENS in job.request.feed:
            self._submit(job)
            return
        truncate = flag(dict(job.request.parameters), TRUNCATE)
        if self._text.characters(job.request.feed) <= SHORT:
            job.request.feed = self._text.encode(job.request.feed, truncate)
            self._submit(job)
            return
        if len(self._tasks) >= MOST_WAITING:
            raise ServeError("the server is busy", status=503, expected=f"at most {MOST_WAITING} long texts wait",
                             got=str(len(self._tasks)), hint="again in a moment")  # fmt: skip
        task = asyncio.get_running_loop().create_task(self._encode(job, truncate))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Waits until the texts of all requests are encoded."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _encode(self, job: Job, truncate: bool) -> None:
        def encode() -> None:
            with self._turn:
                if not job.abandoned:
                    job.request.feed = self._text.encode(job.request.feed, truncate)

        try:
            await in_thread(encode, "ox-tokenizer")
            if not job.abandoned:
                self._submit(job)
        except OxError as error:
            self._fail(job, error)
        except Exception as error:
            self._fail(job, ServeError("the texts could not be encoded", status=500, got=str(error)[:200]))

    def _fail(self, job: Job, error: OxError) -> None:
        job.error = error
        if not job.abandoned:
            job.done()
