"""A thread that makes all calls of its owner."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

Call = tuple[Callable[[], Any], SimpleQueue[tuple[Any, BaseException | None]]]


class OwnThread:
    """Makes calls one after the other, in a thread that lives as long as its owner."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        Thread(target=_work, args=(self._calls,), name=name, daemon=True).start()
        weakref.finalize(self, self._calls.put, None)

    def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns there; raises what it raises."""
        reply: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._calls.put((function, reply))
        result, error = reply.get()
        if error is not None:
            raise error
        return result


def _work(calls: SimpleQueue[Call | None]) -> None:
    while (call := calls.get()) is not None:
        function, reply = call
        try:
            reply.put((function(), None))
        except BaseException as error:  # for the caller to raise
            reply.put((None, error))
        del call, function, reply  # what they hold goes before the next one comes
