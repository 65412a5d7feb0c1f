"""A batcher without a server or a model: jobs that note what became of them, instances that are plain functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ox.clock import SYSTEM
from ox.serve.batching.admission import QueueAdmission
from ox.serve.batching.batcher import Batcher
from ox.serve.batching.job import Job
from ox.serve.protocol.v2.request import Request


class Note(Job):
    """A job of some rows; `value` is in its input, `key` its shape."""

    __slots__ = ("answers",)

    def __init__(
        self, rows: int = 1, key: tuple[int, ...] = (1,), value: float = 0.0, parameters: dict[str, Any] | None = None
    ) -> None:
        request = Request(None, {"x": np.full((rows, *key), value, np.float32)}, rows, key, ())
        request.parameters = parameters or {}
        super().__init__(request, SYSTEM.now())
        self.answers = 0

    def done(self) -> None:
        self.answers += 1

    async def settled(self) -> None:
        while not self.answers:
            await asyncio.sleep(0.001)


class Stub:
    """An instance over a function of one array."""

    def __init__(self, run: Callable[[Any, Any], Any]) -> None:
        self.run, self.gathered_at = run, 0.0

    def __call__(self, feeds: Sequence[dict[str, Any]], control: Any) -> list[Any]:
        return [self.run(np.concatenate([feed["x"] for feed in feeds]), control)]

    def control(self) -> Any:
        return SimpleNamespace(terminate=False)


class Workshop:
    """Makes jobs and batchers; `batches` are the rows of each run that came back, in order."""

    Note = Note

    def __init__(self) -> None:
        self.batches: list[int] = []
        self._batchers: list[Batcher] = []

    def batcher(self, *runs: Callable[[Any, Any], Any], **options: Any) -> Batcher:
        """Started, on the running loop; without a function it gives back what it gets."""
        queue = {name: options.pop(name) for name in ("max_queue", "deadline_s", "budget") if name in options}
        batcher = Batcher(
            [Stub(run) for run in runs or [lambda x, _: x]],
            admission=QueueAdmission(**({"max_queue": 100, "deadline_s": 5.0, "clock": SYSTEM} | queue)),
            observe=lambda rows, run_s, gather_s: self.batches.append(rows),
            **({"max_rows": 8, "clock": SYSTEM} | options),
        )
        batcher.start(asyncio.get_running_loop())
        self._batchers.append(batcher)
        return batcher

    def run(self, body: Callable[[], Any]) -> Any:
        """Runs a coroutine function, and closes what it made."""

        async def main() -> Any:
            try:
                return await asyncio.wait_for(body(), 20)
            finally:
                for batcher in self._batchers:
                    batcher.close()

        return asyncio.run(main())


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()
