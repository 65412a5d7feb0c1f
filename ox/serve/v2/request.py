"""What an inference request asks, whichever way it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ox.graph.contract import Array


class Wanted(NamedTuple):
    """An output that the client asks for: its place among the model's outputs, and whether as raw bytes."""

    place: int
    binary: bool


@dataclass(slots=True)
class Request:
    """What a request asks: arrays by input name, all with `rows` rows; requests of equal `key` may share a batch."""

    id: str | None
    feed: dict[str, Array]
    rows: int
    key: tuple[Any, ...]
    outputs: Sequence[Wanted]
