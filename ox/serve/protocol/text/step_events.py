"""The way of tokens from an engine's thread to the event loop: one wake-up for all events of a step."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

from ox.errors import OxError
from ox.serve.generation.request import TokenEvent

log = logging.getLogger("ox.serve")


class Receiver(Protocol):
    """What events are for; used on the event loop."""

    def receive(self, index: int, event: TokenEvent | OxError) -> None:
        """An event of the text of this index."""

    def flush(self) -> None:
        """Called after all events that came together."""


class StepEvents:
    """Hands events over to their receivers on the event loop. `post` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Receiver, int, TokenEvent | OxError]] = deque()
        self._woken = False

    def post(self, receiver: Receiver, index: int, event: TokenEvent | OxError) -> None:
        self._waiting.append((receiver, index, event))
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has ended before the engine
                self._waiting.clear()

    def _deliver(self) -> None:
        self._woken = False  # first: an event that comes from here on wakes the loop again
        receivers: dict[Receiver, None] = {}
        waiting = self._waiting
        for _ in range(len(waiting)):  # what comes meanwhile has its own turn of the loop
            receiver, index, event = waiting.popleft()
            receiver.receive(index, event)
            receivers[receiver] = None
        for receiver in receivers:
            receiver.flush()
        if waiting and not self._woken:
            self._woken = True
            self._loop.call_soon(self._deliver)
