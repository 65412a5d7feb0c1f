"""What an executable is called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.graph.ir import Value


def check_inputs(inputs: list[Value], arrays: Sequence[Any]) -> None:
    """Compare arrays with the inputs that were recorded.

    Raises:
        ArgumentError: another number of arrays.
        DTypeError: an array of another element type.
        ShapeError: another shape.
    """
    if len(arrays) != len(inputs):
        raise ArgumentError(
            "another number of arrays than the graph has inputs", expected=str(len(inputs)), got=str(len(arrays))
        )
    for value, array in zip(inputs, arrays, strict=True):
        if value.dtype is not None and array.dtype != value.dtype:
            raise DTypeError(
                f"input '{value.name}' has another element type than was recorded",
                expected=str(value.dtype),
                got=str(array.dtype),
            )
        if value.shape is not None and array.shape != value.shape:
            raise ShapeError(
                f"input '{value.name}' has another shape than was recorded",
                expected=str(list(value.shape)),
                got=str(list(array.shape)),
            )
