"""`torch.autograd.Variable`: a tensor, as older scripts say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ox.tensor import Tensor


class _Kind(type):
    """`isinstance(x, Variable)` is true of every tensor."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return hasattr(thing, "node")

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        return data.detach().requires_grad_(requires_grad) if requires_grad else data.detach()


class Variable(metaclass=_Kind):
    """``Variable(x)`` is x outside the graph, which may require a gradient. `torch.autograd.Variable`."""
