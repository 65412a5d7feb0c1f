"""An output as a request wants it: whole, as its highest classes, or put into shared memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from ox.graph.contract import Array, TensorInfo, to_bytes
from ox.serve.v2.classification import classify
from ox.serve.v2.request import Wanted


class Output(NamedTuple):
    """What an answer says of one output. Without an array its bytes are in shared memory, where `parameters` says."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    array: Array | None
    parameters: dict[str, Any]


def prepare(wanted: Wanted, info: TensorInfo, array: Array) -> Output:
    """Does with an output of the model what the request wants.

    Raises:
        ServeError: it cannot be classified, or does not fit into its place in shared memory.
    """
    if wanted.classes:
        strings = classify(array, wanted.classes, info, wanted.batched)
        return Output(info.name, "BYTES", strings.shape, strings, {})
    if wanted.window is None:
        return Output(info.name, info.dtype, array.shape, array, {})
    data = to_bytes(array)
    wanted.window.write(data, info.name)
    return Output(info.name, info.dtype, array.shape, None, wanted.window.parameters(len(data)))
