"""What an inference request asks, whichever way it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ox.graph.contract import Array
from ox.serve.v2.memory import Window

NONE: Mapping[str, Any] = MappingProxyType({})  # the parameters of nearly every request


class Wanted(NamedTuple):
    """An output that the client asks for."""

    place: int  # among the model's outputs
    binary: bool  # as raw bytes rather than JSON
    classes: int = 0  # only the highest so many, as strings
    window: Window | None = None  # where in shared memory it goes
    batched: bool = True  # the classes are those of each row, rather than of the whole output

    @property
    def plain(self) -> bool:
        """It is answered as the model gave it, in the answer itself."""
        return not self.classes and self.window is None


class Request:
    """What a request asks: arrays by input name, all with `rows` rows; requests of equal `key` may share a batch.

    `parameters` are those of the whole request, checked by `ox.serve.v2.parameters`; `form` is for whoever read the
    request and will write its answer.
    """

    __slots__ = ("feed", "form", "id", "key", "outputs", "parameters", "rows")

    def __init__(
        self,
        id: str | None,
        feed: dict[str, Array],
        rows: int,
        key: tuple[Any, ...],
        outputs: Sequence[Wanted],
        parameters: Mapping[str, Any] = NONE,
        form: Any = None,
    ) -> None:
        self.id, self.feed, self.rows, self.key, self.outputs = id, feed, rows, key, outputs
        self.parameters, self.form = parameters, form
