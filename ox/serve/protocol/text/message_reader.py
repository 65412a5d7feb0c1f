"""The tokens of one text as the pieces of an assistant's message."""

from __future__ import annotations

from typing import Literal

from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.text.message_parts import Piece, Reasoning
from ox.serve.protocol.text.reasoning import ReasoningParser
from ox.serve.protocol.text.tool_calls import ToolCallParser

FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]


class MessageReader:
    """Divides one text into pieces, while it comes.

    Args:
        tools: finds calls of tools; None where they stay a part of the text.
        reasoning: finds what the model thinks before it answers; None where that is a part of the text, too.

    Attributes:
        finish_reason: why the message ended; None before its end. "tool_calls" only where all calls are whole.
        reasoning_tokens: how many the model has written until the end of its reasoning.
        broken: whether a call has arguments that are not a JSON object, such as one that the end of the text has cut.
    """

    def __init__(self, tools: ToolCallParser | None = None, reasoning: ReasoningParser | None = None) -> None:
        self._tools, self._reasoning = tools, reasoning
        self._plain = tools is None and reasoning is None
        self.finish_reason: FinishReason | None = None
        self.broken = False
        self._tokens = self.reasoning_tokens = 0

    def add(self, event: TokenEvent) -> list[Piece]:
        """What is known after one more event; texts are not empty."""
        ended = event.finish_reason is not None
        if self._plain:
            pieces: list[Piece] = [event.text] if event.text else []
        else:
            pieces = self._pieces(event.text, event.finish_reason)
            self._tokens += event.token is not None
            if any(isinstance(piece, Reasoning) for piece in pieces):
                self.reasoning_tokens = self._tokens
        if ended:
            tools = self._tools
            called = tools is not None and tools.called and not tools.broken and event.finish_reason == "stop"
            self.finish_reason = "tool_calls" if called else event.finish_reason
            self.broken = tools is not None and tools.broken
        return pieces

    def completes(self, text: str) -> bool:
        """Whether the message has all the calls that it may have, after more text."""
        self._pieces(text)
        return self._tools is not None and self._tools.complete

    def _pieces(self, text: str, ended: str | None = None) -> list[Piece]:
        found: list[str | Reasoning] = [text] if text else []
        if self._reasoning is not None:
            found = self._reasoning.add(text)
            if ended:
                found += self._reasoning.finish()
        if self._tools is None:
            return [*found]
        pieces = list[Piece]()
        for each in found:
            pieces += self._tools.add(each) if isinstance(each, str) else [each]
        if ended:
            pieces += self._tools.finish(cut=ended != "stop")
        return pieces
