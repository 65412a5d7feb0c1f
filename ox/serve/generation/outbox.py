"""What a turn of the engine has to tell: one call into each event loop, however many texts have news."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ox.errors import OxError
from ox.serve.generation.request import TokenEvent
from ox.serve.generation.text import Text

log = logging.getLogger("ox.serve")

Call = tuple[Callable[[Any], None], Any]


class Outbox:
    """Collects events and errors, and hands them on."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.AbstractEventLoop | None, list[Call]] = {}

    def put(self, text: Text, news: TokenEvent | OxError) -> None:
        call = text.on_error if isinstance(news, OxError) else text.on_event
        self._calls.setdefault(text.loop, []).append((call, news))

    def flush(self) -> None:
        """Calls everything: what has no loop, here."""
        calls, self._calls = self._calls, {}
        for loop, batch in calls.items():
            if loop is None:
                _call(batch)
                continue
            try:
                loop.call_soon_threadsafe(_call, batch)
            except RuntimeError:  # the loop has been closed, and nobody waits
                continue


def _call(batch: list[Call]) -> None:
    for call, news in batch:
        try:
            call(news)
        except Exception:
            log.exception("a token could not be handed on")
