"""Prepares an output as requested: the tensor itself, its highest classes, or written to shared memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from ox.graph.contract import Array, TensorInfo, to_bytes
from ox.serve.protocol.v2.classification import classify
from ox.serve.protocol.v2.request import RequestedOutput


class Output(NamedTuple):
    """One output of a response. Without an array, its bytes are in shared memory as `parameters` describes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    array: Array | None
    parameters: dict[str, Any]


def prepare(wanted: RequestedOutput, info: TensorInfo, array: Array) -> Output:
    """Prepares an output of the model as requested.

    Raises:
        ServeError: it cannot be classified, or does not fit into the shared memory.
    """
    if wanted.classes:
        strings = classify(array, wanted.classes, info, wanted.batched)
        return Output(info.name, "BYTES", strings.shape, strings, {})
    if wanted.region_slice is None:
        return Output(info.name, info.dtype, array.shape, array, {})
    data = to_bytes(array)
    wanted.region_slice.write(data, info.name)
    return Output(info.name, info.dtype, array.shape, None, wanted.region_slice.parameters(len(data)))
