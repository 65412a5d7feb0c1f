"""A model that also gives gradients with respect to its inputs: `ox.export.save(..., gradient="x")`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ox.autograd.backward_pass import grad
from ox.autograd.grad_mode import enable_grad
from ox.dtypes import is_floating
from ox.errors import ArgumentError
from ox.export.example_inputs import Example
from ox.graph.record.outputs import named_outputs
from ox.graph.record.structure import leaves, parts_of_example
from ox.tensors.tensor import Tensor


def gradient_of(name: str) -> str:
    """The output that is the gradient with respect to an input."""
    return f"{name}.gradient"


class WithGradient:
    """The outputs of a model, and the gradients of the sum of the first one with respect to some inputs.

    Raises:
        ArgumentError: no such input, or one of integers.
    """

    def __init__(
        self, model: Callable[..., Any], example: Example, names: Sequence[str], outputs: Sequence[str] | None
    ) -> None:
        for name in names:
            if name not in example.arrays:
                raise ArgumentError(
                    f"gradient names '{name}', which is no input", expected=", ".join(example.arrays)
                )  # fmt: skip
            if not is_floating(example.arrays[name].dtype):
                raise ArgumentError(
                    f"there is no gradient with respect to '{name}'", expected="an input of floats",
                    got=str(example.arrays[name].dtype),
                )  # fmt: skip
        self.model, self.example, self.names, self.outputs = model, example, names, outputs

    def __call__(self, *arguments: Any, **named: Any) -> dict[str, Tensor]:
        tensors = [x for _, x in leaves([*arguments, *named.values()], "", parts_of_example)]
        given = dict(zip(self.example.arrays, tensors, strict=True))
        with enable_grad():
            for name in self.names:
                given[name] = given[name].detach().requires_grad_()
            result = named_outputs(self.example.call(self.model, list(given.values())), self.outputs)
            gradients = grad(next(iter(result.values())).sum(), [given[name] for name in self.names])
        made = {name: tensor.detach() for name, tensor in result.items()}
        return made | {gradient_of(n): g.detach() for n, g in zip(self.names, gradients, strict=True)}
