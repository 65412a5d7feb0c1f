"""Work that would hold up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], name: str, unwanted: Callable[[T], None] | None = None) -> T:
    """The result of `call`, run in its own thread; `unwanted` gets it if it is no longer needed.

    A daemon's thread, unlike an executor's: what hangs in a file system does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def give(value: T) -> None:
        if not future.done():
            future.set_result(value)
        elif unwanted is not None:  # the waiting task was cancelled
            unwanted(value)

    def fail(error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    def work() -> None:
        nonlocal call
        try:
            try:
                value = call()
            finally:
                del call  # else this thread may be the last to hold, and free, what the task lets go of
        except BaseException as error:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(fail, error)
            return
        try:
            loop.call_soon_threadsafe(give, value)
        except RuntimeError:
            if unwanted is not None:
                unwanted(value)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future
