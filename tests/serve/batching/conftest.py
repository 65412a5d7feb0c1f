"""A batcher without a server or a model: jobs that note what became of them, instances that are plain functions.

Time passes only where a test moves the workshop's clock, and nothing is polled: threads tell `NEWS` what they do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock
from waiting import give_way

from ox.serve.batching.admission import QueueAdmission
from ox.serve.batching.batcher import Batcher
from ox.serve.batching.job import Job
from ox.serve.protocol.v2.request import Request
from ox.serve.response_memory import ResponseMemory

NEWS = threading.Condition()


async def until(wanted: Callable[[], Any]) -> None:
    """Returns when `wanted()` is true, which is asked whenever something has changed that tells `NEWS`."""

    def wait() -> None:
        with NEWS:
            assert NEWS.wait_for(wanted, 120), "it did not come true"

    await asyncio.to_thread(wait)


class Stop:
    """The control of a run."""

    def __init__(self) -> None:
        self._terminate = False

    @property
    def terminate(self) -> bool:
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        with NEWS:
            self._terminate = value
            NEWS.notify_all()


class Gate:
    """Holds runs until it is set, or until they are ended."""

    def __init__(self) -> None:
        self._open = False

    def set(self) -> None:
        with NEWS:
            self._open = True
            NEWS.notify_all()

    def hold(self, control: Any = None) -> None:
        """Raises RuntimeError if the run is ended."""
        with NEWS:
            assert NEWS.wait_for(lambda: self._open or (control is not None and control.terminate), 120)
        if not self._open:
            raise RuntimeError("terminated")


class Memory(ResponseMemory):
    """Tells `NEWS` of the runs that wait for it."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("waiting_since", "_waiters"):
            with NEWS:
                NEWS.notify_all()


class Note(Job):
    """A job of some rows; `value` is in its input, `key` its shape."""

    __slots__ = ("answered", "answers")

    clock: ManualClock  # of a subclass, by a workshop

    def __init__(
        self, rows: int = 1, key: tuple[int, ...] = (1,), value: float = 0.0, parameters: dict[str, Any] | None = None
    ) -> None:
        request = Request(None, {"x": np.full((rows, *key), value, np.float32)}, rows, key, ())
        request.parameters = parameters or {}
        super().__init__(request, self.clock.now())
        self.answers, self.answered = 0, asyncio.Event()

    def done(self) -> None:
        self.answers += 1
        self.answered.set()

    async def settled(self) -> None:
        await self.answered.wait()


class Stub:
    """An instance over a function of one array."""

    def __init__(self, run: Callable[[Any, Any], Any], workshop: Workshop) -> None:
        self.run, self.workshop, self.gathered_at = run, workshop, 0.0

    def __call__(self, feeds: Sequence[dict[str, Any]], control: Any) -> list[Any]:
        with NEWS:
            self.workshop.runs += 1
            NEWS.notify_all()
        return [self.run(np.concatenate([feed["x"] for feed in feeds]), control)]

    def control(self) -> Stop:
        return Stop()


class Workshop:
    """Makes jobs and batchers; `batches` are the rows of each run that came back, in order, `runs` those that began."""

    Gate, until = Gate, staticmethod(until)

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.Note = type("Note", (Note,), {"__slots__": (), "clock": self.clock})
        self.batches: list[int] = []
        self.runs = 0
        self._batchers: list[Batcher] = []

    def batcher(self, *runs: Callable[[Any, Any], Any], **options: Any) -> Batcher:
        """Started, on the running loop; without a function it gives back what it gets."""
        queue = {name: options.pop(name) for name in ("max_queue", "deadline_s", "budget") if name in options}
        batcher = Batcher(
            [Stub(run, self) for run in runs or [lambda x, _: x]],
            admission=QueueAdmission(**({"max_queue": 100, "deadline_s": 5.0} | queue)),
            observe=lambda rows, run_s, gather_s: self.batches.append(rows),
            **({"max_rows": 8, "clock": self.clock} | options),
        )
        batcher.start(asyncio.get_running_loop())
        self._batchers.append(batcher)
        return batcher

    def memory(self, limit: int) -> Memory:
        return Memory(limit, self.clock)

    async def begun(self, count: int = 1) -> None:
        """Returns when so many runs have begun."""
        await until(lambda: self.runs >= count)

    async def idle(self, batcher: Batcher) -> None:
        """Returns when an instance waits for work again; called before the work is submitted, it is a promise."""
        wait, runs, waits = batcher._ready.wait, self.runs, list[int]()

        def told(timeout: float | None = None) -> bool:
            with NEWS:
                waits.append(self.runs)
                NEWS.notify_all()
            return wait(timeout)

        batcher._ready.wait = told  # type: ignore[method-assign]
        await until(lambda: any(count > runs for count in waits))

    async def finished(self, *batchers: Batcher) -> None:
        """Has the batchers end, and runs what they have left for the loop."""
        for batcher in batchers:
            batcher.finish()
            for thread in batcher._threads:
                await asyncio.to_thread(thread.join, 120)
                assert not thread.is_alive()
        await give_way()

    def run(self, body: Callable[[], Any]) -> Any:
        """Runs a coroutine function, and closes what it made."""

        async def main() -> Any:
            try:
                return await body()
            finally:
                for batcher in self._batchers:
                    batcher.abort()
                    batcher.close()

        return self.clock.run(main())


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()
