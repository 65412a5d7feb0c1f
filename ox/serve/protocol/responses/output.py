"""The output items of a response, made piece by piece, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.serve.protocol.responses.input_items import PREFIXES, Item
from ox.serve.protocol.text.message_parts import CallBegin, CallDelta, Piece, Reasoning

Event = dict[str, Any]  # without its sequence_number


class Output:
    """The items of one response; each piece may begin, continue or end one.

    Args:
        key: of the response, a part of the ids.

    """

    def __init__(self, key: str) -> None:
        self._key, self._items = key, list[Item]()
        self._open = False  # the last item has not ended
        self._parts: list[str] = []  # its text; joined at its end, because a text that grows is copied each time

    @property
    def items(self) -> list[Item]:
        """Those that have begun."""
        self._join()
        return self._items

    def add(self, piece: Piece, logprobs: Sequence[Any] = ()) -> list[Event]:
        """The events of the next piece; `logprobs` of its tokens, if it is a text."""
        if isinstance(piece, str):
            return self._text(piece, logprobs)
        if isinstance(piece, Reasoning):
            events = self._ensure("reasoning", {"summary": [], "content": []}, "reasoning_text")
            self._parts.append(piece.text)
            return [*events, self._event("reasoning_text.delta", content_index=0, delta=piece.text)]
        if isinstance(piece, CallBegin):
            call = {"call_id": piece.id, "name": piece.name, "arguments": ""}
            return [*self.end("completed"), *self._begin("function_call", call)]
        assert isinstance(piece, CallDelta)
        self._parts.append(piece.arguments)
        return [self._event("function_call_arguments.delta", delta=piece.arguments)] if piece.arguments else []

    def end(self, status: str) -> list[Event]:
        """The events of the end of the last item, which is completed or incomplete."""
        if not self._open:
            return []
        self._join()
        self._open, item = False, self._items[-1]
        item["status"] = status
        if item["type"] == "function_call":
            arguments = {"arguments": item["arguments"], "name": item["name"]}
            events = [self._event("function_call_arguments.done", **arguments)]
        else:
            part = item["content"][0]
            more = {"logprobs": part["logprobs"]} if part["type"] == "output_text" else {}
            events = [
                self._event(f"{part['type']}.done", content_index=0, text=part["text"], **more),
                self._event("content_part.done", content_index=0, part=part),
            ]
        return [*events, {"type": "response.output_item.done", "output_index": self._index, "item": item}]

    def _join(self) -> None:
        """Writes the text of the last item into it."""
        if self._open:
            item = self._items[-1]
            owner, name = (item, "arguments") if item["type"] == "function_call" else (item["content"][0], "text")
            owner[name] = "".join(self._parts)

    @property
    def _index(self) -> int:
        return len(self._items) - 1

    def _text(self, text: str, logprobs: Sequence[Any]) -> list[Event]:
        events = self._ensure("message", {"role": "assistant", "content": []}, "output_text")
        self._parts.append(text)
        self._items[-1]["content"][0]["logprobs"] += logprobs
        delta = self._event("output_text.delta", content_index=0, delta=text, logprobs=list(logprobs))
        return [*events, delta]

    def _ensure(self, kind: str, fields: Item, part_kind: str) -> list[Event]:
        """Begins an item with one part, unless the last item is one of this kind."""
        if self._open and self._items[-1]["type"] == kind:
            return []
        part: Item = {"type": part_kind, "text": ""}
        if part_kind == "output_text":
            part |= {"annotations": [], "logprobs": []}
        events = [*self.end("completed"), *self._begin(kind, fields)]
        self._items[-1]["content"] = [part]
        return [*events, self._event("content_part.added", content_index=0, part={**part})]

    def _begin(self, kind: str, fields: Item) -> list[Event]:
        identifier = f"{PREFIXES[kind]}_{self._key}_{len(self._items)}"
        self._items.append({"id": identifier, "type": kind, "status": "in_progress", **fields})
        self._open, self._parts = True, []
        return [{"type": "response.output_item.added", "output_index": self._index, "item": {**self._items[-1]}}]

    def _event(self, kind: str, **fields: Any) -> Event:
        """An event about the last item."""
        return {
            "type": f"response.{kind}", "item_id": self._items[-1]["id"], "output_index": self._index, **fields
        }  # fmt: skip
