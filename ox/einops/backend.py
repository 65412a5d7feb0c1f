"""What einops asks of a library, answered with ox's operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from einops._backends import AbstractBackend

from ox import functions as F
from ox.core.mode import MODE
from ox.functions.creation import arange, from_numpy
from ox.tensors.tensor import Tensor


class OxBackend(AbstractBackend):  # type: ignore[misc]
    """Shapes go out as lists under a recording: einops keeps what it worked out for a tuple and uses it again, and the
    sizes of one recording are not those of the next."""

    framework_name = "ox"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Any:
        made = from_numpy(np.ascontiguousarray(x))
        return made.requires_grad_() if self.is_float_type(made) else made

    def to_numpy(self, x: Tensor) -> Any:
        return x.detach().cpu().numpy()

    def arange(self, start: int, stop: int) -> Any:
        return arange(start, stop)

    def shape(self, x: Tensor) -> Any:
        return tuple(x.shape) if MODE.get().recording is None else list(x.shape)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Any:
        return x.reshape(*shape)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Any:
        return x.permute(*axes)

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Any:
        if operation in ("any", "all", "prod"):  # one dimension at a time
            for axis in sorted(axes, reverse=True):
                x = getattr(x, operation)(dim=axis)
            return x
        return getattr(x, {"min": "amin", "max": "amax"}.get(operation, operation))(dim=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Any:
        return F.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Any:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Any:
        sizes: list[int] = [-1] * n_axes
        for position, length in pos2len.items():
            x, sizes[position] = x.unsqueeze(position), length
        return x.expand(*sizes)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Any:
        return x.repeat(*repeats)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Any:
        return F.cat(list(tensors), axis)

    def is_float_type(self, x: Tensor) -> Any:
        return x.is_floating_point()

    def layers(self) -> Any:
        from ox.einops import layers

        return layers

    def einsum(self, pattern: str, *x: Tensor) -> Any:
        return F.einsum(pattern, *x)
