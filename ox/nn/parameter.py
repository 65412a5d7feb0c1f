"""Tensors that a Module notices when they are assigned to it."""

from __future__ import annotations

from typing import Any

from ox.devices import cuda_state
from ox.functions.creation import as_array
from ox.tensors.storages import share_as
from ox.tensors.tensor import Tensor

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that is trained: assigned to a Module it joins `parameters()`. `torch.nn.Parameter`.

    Args:
        data: a tensor or array, whose memory is shared, or anything that `ox.tensor` takes.
        requires_grad: whether `backward` fills `.grad`; integer data needs False.
    """

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        self.array = as_array(data, None)
        if requires_grad:
            self.requires_grad = True

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        self._refuse_under_recording("copy")
        copy = Parameter(cuda_state.copy(self.array), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


class Buffer(Tensor):
    """A tensor that is state but not trained: running statistics, tables. `torch.nn.Buffer`.

    Args:
        data: a tensor or array, whose memory is shared.
        persistent: whether `state_dict` holds it.
    """

    persistent: bool

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        self.array = as_array(data, None)
        self.persistent = persistent

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        self._refuse_under_recording("copy")
        copy = Buffer(cuda_state.copy(self.array), persistent=self.persistent)
        memo[id(self)] = copy
        share_as(memo, self, copy)
        return copy


def __getattr__(name: str) -> Any:
    if name in ("UninitializedBuffer", "UninitializedParameter"):  # PyTorch has them in this file
        from ox.nn.base import uninitialized

        return getattr(uninitialized, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
