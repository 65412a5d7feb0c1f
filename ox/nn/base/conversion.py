"""Another element type, another device: all parameters and buffers of a module at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np

from ox.core.device import device as Device
from ox.core.memory_format import check_ignored_format
from ox.core.mode import switch_mode
from ox.dtypes import DType, bfloat16, float16, float32, float64, is_floating
from ox.errors import ArgumentError
from ox.functions import zeros_like
from ox.nn.base.module_tree import Tree
from ox.sparse.tensor import SparseTensor
from ox.tensors.methods.operators import move_arguments
from ox.tensors.tensor import Tensor

Self = TypeVar("Self", bound="Moving")


class Moving(Tree):
    """Mixed into Module."""

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Give every parameter, gradient and buffer the memory of what `fn` makes of it, by their own `_apply` in the
        modules below; the tensors stay the same objects, so optimizers keep theirs."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with switch_mode(grad=False):
            for name, buffer in self._buffers.items():
                if isinstance(buffer, SparseTensor):
                    self._buffers[name] = buffer._with(fn(buffer._values()))
            for tensor in [*self._parameters.values(), *self._buffers.values()]:
                if isinstance(tensor, SparseTensor):
                    continue
                if tensor is not None and (moved := fn(tensor)) is not tensor:
                    tensor._shared_version()[0] += 1  # a backward that needs the old memory is an error
                    tensor.array = moved.array
                    if tensor.grad is not None:
                        tensor.grad = fn(tensor.grad)
        return self

    @overload
    def to(self: Self, *args: Any) -> Self: ...
    @overload
    def to(
        self: Self,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        tensor: Tensor | None = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Self: ...

    def to(
        self: Self,
        *args: Any,
        dtype: Any = None,
        device: Any = None,
        tensor: Tensor | None = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Self:
        """Another floating type for floating tensors, another device for all, or both, in place."""
        check_ignored_format(memory_format, "parameters")
        device, dtype, *_ = move_arguments(args, device, dtype, tensor)
        device = None if device is None else Device(f"cuda:{device}" if isinstance(device, int) else device)
        if dtype is not None and not is_floating(np.dtype(dtype)):
            raise ArgumentError(
                "a module can only take a floating type",
                expected="float16, bfloat16, float32 or float64",
                got=str(dtype),
            )

        def move(x: Tensor) -> Tensor:
            wanted = dtype if is_floating(x.array.dtype) else None
            same = (wanted is None or x.array.dtype == wanted) and (device is None or x.device == device)
            return x if same else x.to(dtype=wanted, device=device)

        return self._apply(move)

    def type(self: Self, dst_type: DType) -> Self:
        """Another element type for all parameters and buffers, whole numbers too."""
        return self._apply(lambda x: x.to(dtype=dst_type))

    def to_empty(self: Self, *, device: str | None, recurse: bool = True) -> Self:
        """Memory on another device, with no values worth keeping: here zeros."""
        return self._apply(lambda x: zeros_like(x).to(device=device), recurse)

    def float(self: Self) -> Self:
        return self.to(dtype=float32)

    def double(self: Self) -> Self:
        return self.to(dtype=float64)

    def half(self: Self) -> Self:
        return self.to(dtype=float16)

    def bfloat16(self: Self) -> Self:
        return self.to(dtype=bfloat16)

    def cpu(self: Self) -> Self:
        return self.to(device="cpu")

    def cuda(self: Self, device: int | str | None = None) -> Self:
        return self.to(device="cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)
