"""The tokens of one text as the pieces of an assistant's message."""

from __future__ import annotations

from typing import Literal

from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.text.message_parts import CallBegin, CallDelta, Piece
from ox.serve.protocol.text.tool_calls import ToolCall, ToolCallParser

FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]


class MessageReader:
    """Divides one text into pieces, while it comes.

    Args:
        parser: finds calls of tools; None where they stay a part of the text.

    Attributes:
        finish_reason: why the message ended; None before its end.
    """

    def __init__(self, parser: ToolCallParser | None) -> None:
        self._parser, self._calls = parser, 0
        self.finish_reason: FinishReason | None = None

    def add(self, event: TokenEvent) -> list[Piece]:
        """What is known after one more event; texts are not empty."""
        pieces: list[Piece] = [event.text] if event.text else []
        if self._parser is not None:
            found = self._parser.add(event.text) if event.text else []
            if event.finish_reason is not None:
                found += self._parser.finish()
            pieces = [piece for each in found for piece in self._pieces(each)]
        if event.finish_reason is not None:
            called = self._calls and event.finish_reason == "stop"
            self.finish_reason = "tool_calls" if called else event.finish_reason
        return pieces

    def _pieces(self, found: str | ToolCall) -> list[Piece]:
        if isinstance(found, str):
            return [found]
        index, self._calls = self._calls, self._calls + 1
        return [CallBegin(index, found.name), CallDelta(index, found.arguments)]
