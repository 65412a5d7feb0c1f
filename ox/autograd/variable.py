"""`torch.autograd.Variable`: a tensor; deprecated in PyTorch."""

from __future__ import annotations

from typing import Any

from ox.core.tensor import TensorBase, is_tensor


class _Kind(type):
    """`isinstance(x, Variable)` is true of every tensor."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return is_tensor(thing)

    def __call__(cls, data: TensorBase, requires_grad: bool = False, volatile: bool = False) -> TensorBase:
        return data.detach().requires_grad_(requires_grad) if requires_grad else data.detach()


class Variable(metaclass=_Kind):
    """``Variable(x)`` is x outside the graph, which may require a gradient. `torch.autograd.Variable`."""
