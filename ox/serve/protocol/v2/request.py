"""An inference request, independent of its transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ox.graph.contract import Array
from ox.serve.protocol.v2.shared_memory import RegionSlice

NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})  # the parameters of most requests


class RequestedOutput(NamedTuple):
    """An output that the client requests."""

    position: int  # index among the model's outputs
    binary: bool  # as raw bytes instead of JSON
    classes: int = 0  # the number of highest classes as strings; 0 for the tensor itself
    region_slice: RegionSlice | None = None  # its place in shared memory
    batched: bool = True  # classes of each row, not of the whole output

    @property
    def plain(self) -> bool:
        """The response contains the tensor itself, without classification or shared memory."""
        return not self.classes and self.region_slice is None


class Request:
    """A parsed request: arrays by input name, all with `rows` rows; requests with equal `key` can share a batch.

    `parameters` are those of the request, checked by `ox.serve.protocol.v2.parameters`. `writer_state` is what the
    reader of the request passes to the writer of the response.
    """

    __slots__ = ("feed", "id", "key", "outputs", "parameters", "rows", "writer_state")

    def __init__(
        self,
        id: str | None,
        feed: dict[str, Array],
        rows: int,
        key: tuple[Any, ...],
        outputs: Sequence[RequestedOutput],
        parameters: Mapping[str, Any] = NO_PARAMETERS,
        writer_state: Any = None,
    ) -> None:
        self.id, self.feed, self.rows, self.key, self.outputs = id, feed, rows, key, outputs
        self.parameters, self.writer_state = parameters, writer_state
