"""Work beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
from waiting import give_way

from ox.serve.repository.thread import in_thread


def test_results_and_errors() -> None:
    async def main() -> None:
        assert await in_thread(lambda: threading.current_thread().name, "there") == "there"
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0, "there")

    asyncio.run(main())


def test_nobody_waits() -> None:
    """Neither a cancelled caller nor a closed loop troubles the thread."""
    go = threading.Event()

    async def main() -> None:
        task = asyncio.ensure_future(in_thread(lambda: go.wait(120), "cancelled"))
        other = asyncio.ensure_future(in_thread(lambda: go.wait(120), "left"))
        await give_way()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other.cancel()

    asyncio.run(main())
    threads = [thread for thread in threading.enumerate() if thread.name in ("cancelled", "left")]
    assert len(threads) == 2 and all(thread.daemon for thread in threads)
    go.set()
    for thread in threads:
        thread.join()
