"""One remembered call: what backward needs to know of it, and nothing more."""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING, Any

from ox.errors import GradientError
from ox.where import users_line

if TYPE_CHECKING:
    from ox.ops.gradient import Keep
    from ox.ops.operator import Operator
    from ox.tensor import Tensor

sequence = count()


class Leaf:
    """The end of a path: a tensor whose `requires_grad` was set, and whose `.grad` collects what arrives.

    Holds the tensor weakly, for the tensor holds the leaf.
    """

    __slots__ = ("__weakref__", "hooks", "sequence", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)
        self.sequence = -1
        self.hooks: list[Any] = []


class Node:
    """One call of a differentiable operator; PyTorch's `grad_fn`.

    `inputs` and `ports` say, for each input that is tracked, which node made it and as which output.
    `saved` holds what the gradient rules named, with the version that each tensor had then.
    `outputs`, set only for an operator with a variadic output, is how many there are.
    """

    op: Operator
    keep: Keep
    attributes: dict[str, Any]
    inputs: list[Node | Leaf]
    ports: list[int]
    saved: Any  # None once a backward has let go of it
    sequence: int
    hooks: list[Any] | None = None
    outputs = 1

    @property
    def name(self) -> str:
        return f"{self.op.name}Backward"

    @property
    def next_functions(self) -> tuple[tuple[Node | Leaf, int], ...]:
        """The nodes that made the tracked inputs, with output numbers; `torch.autograd.graph.Node.next_functions`."""
        return tuple(zip(self.inputs, self.ports, strict=True))

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def released_error(self) -> GradientError:
        return GradientError(
            f"backward ran a second time through {self.op.name}, whose saved tensors were already freed",
            where=users_line() or None,
            expected="one backward for each forward",
            got="a second backward through the same graph",
            hint="the first backward(retain_graph=True), or run the forward again",
        )
