"""What the message of an assistant is made of: pieces as they come, and the whole message."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """The begin of a call of a tool: its place among the calls of the message, and the name of the function."""

    index: int
    name: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The next characters of a call's arguments, which are JSON when the call is complete."""

    index: int
    arguments: str


Piece = str | Reasoning | CallBegin | CallDelta  # a str is text of the answer


@dataclass(slots=True)
class Call:
    """A call of a tool, as far as it is known."""

    id: str
    name: str
    parts: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """Its arguments as JSON."""
        return "".join(self.parts)


class Message:
    """A whole message, made of its pieces. They are joined at the end: a text that grows by each token would be copied
    by each token."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.calls: list[Call] = []  # of tools, in their order

    @property
    def text(self) -> str:
        """The text of the answer; "" without one."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """What the model thought; "" without it."""
        return "".join(self._reasoning)

    def add(self, piece: Piece) -> None:
        """Takes the next piece."""
        if isinstance(piece, str):
            self._text.append(piece)
        elif isinstance(piece, Reasoning):
            self._reasoning.append(piece.text)
        elif isinstance(piece, CallBegin):
            self.calls.append(Call(piece.id, piece.name))
        else:
            self.calls[piece.index].parts.append(piece.arguments)
