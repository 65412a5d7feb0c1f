"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

from ox.core.mode import switch_mode
from ox.errors import DTypeError, ShapeError
from ox.functions import cat
from ox.tensors.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements in one dimension, parameter after parameter. `torch.nn.utils.parameters_to_vector`."""
    params = list(parameters)
    for p in params:
        if not isinstance(p, Tensor):
            raise DTypeError("parameters_to_vector takes tensors", got=type(p).__name__)
    return cat([p.reshape(-1) for p in params])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector back into the parameters. `torch.nn.utils.vector_to_parameters`.

    Raises:
        ShapeError: another number of elements; nothing was changed.
    """
    params = list(parameters)
    wanted = sum(p.array.size for p in params)
    if vec.static_shape != (wanted,):
        raise ShapeError(
            "the vector does not fit the parameters", expected=f"[{wanted}]", got=str(list(vec.static_shape))
        )
    start = 0
    with switch_mode(grad=False):
        for p in params:
            p.assign(vec[start : start + p.array.size].reshape(*p.static_shape), "vector_to_parameters")
            start += p.array.size
