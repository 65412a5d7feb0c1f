"""`reshape` and `format` of a configuration's inputs and outputs: what clients see, and what the model has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ox.errors import LoadError
from ox.graph.contract import Dim, TensorInfo
from ox.serve.runtime.reshape import Reshape, Reshapes, Shape, segments

if TYPE_CHECKING:
    from ox.serve.repository.setup import TensorConfig

NO_FORMAT = "FORMAT_NONE"
IMAGE_DIMS = 3


def reshape_of(entry: Any, who: str, where: str) -> Shape | None:
    """The shape that the model has in place of `dims`, of a ModelInput or ModelOutput; None for the same.

    Raises:
        LoadError: it does not hold the same elements.
    """
    if not entry.HasField("reshape"):
        return None
    dims, reshape = tuple(entry.dims), tuple(entry.reshape.shape)
    got = f"dims {list(dims)}, reshape {list(reshape)}"
    if not dims or any(dim < 1 and dim != -1 for dim in (*dims, *reshape)):
        expected = "dims and reshape.shape of sizes from 1 on, or -1 where a size varies"
        raise LoadError(f"{who} has a wrong reshape", where=where, expected=expected, got=got)
    if segments(dims) != segments(reshape):
        expected = "as many elements in dims and in reshape.shape, in all and between the sizes that vary (-1)"
        raise LoadError(f"{who} cannot be reshaped", where=where, expected=expected, got=got)
    return reshape


def format_of(entry: Any, who: str, where: str) -> str:
    """The layout of a ModelInput's image; it only changes the metadata for clients.

    Raises:
        LoadError: it is no image.
    """
    name = str(entry.DESCRIPTOR.fields_by_name["format"].enum_type.values_by_number[entry.format].name)
    if name != NO_FORMAT and len(entry.dims) != IMAGE_DIMS:
        expected = f"{IMAGE_DIMS} dims for {name}"
        raise LoadError(f"{who} is no image", where=where, expected=expected, got=f"dims {list(entry.dims)}")
    return name


def client_dims(declared: TensorConfig, info: TensorInfo) -> tuple[Dim, ...]:
    """The dimensions of the model's tensor as clients see it; those that vary keep their names."""
    if declared.reshape is None or declared.dims is None:
        return info.dims
    varying = iter([size for said, size in zip(declared.reshape, info.dims, strict=True) if said == -1])
    return tuple(next(varying) if dim == -1 else dim for dim in declared.dims)


def reshapes_of(inputs: Sequence[TensorConfig], outputs: Sequence[TensorConfig]) -> Reshapes:
    """From the client's shapes to the model's for inputs, and back for outputs."""
    return Reshapes(
        {name: Reshape(name, dims, reshape) for name, dims, reshape in _reshaped(inputs)},
        {name: Reshape(name, reshape, dims) for name, dims, reshape in _reshaped(outputs)},
    )


def _reshaped(declared: Sequence[TensorConfig]) -> list[tuple[str, Shape, Shape]]:
    return [
        (entry.name, entry.dims, entry.reshape)
        for entry in declared
        if entry.reshape is not None and entry.dims is not None
    ]
