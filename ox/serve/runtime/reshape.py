"""Tensors that clients see in another shape than the model: the same elements, `reshape` in a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ox.errors import ServeError
from ox.graph.contract import Array, Sample
from ox.serve.runtime.instance import Feed, Instance

Shape = tuple[int, ...]


def segments(dims: Shape) -> list[int]:
    """The elements before, between and after the sizes that vary (-1): [2, 4, -1, 6] has 8 and 6."""
    counts = [1]
    for dim in dims:
        if dim == -1:
            counts.append(1)
        else:
            counts[-1] *= dim
    return counts


class Reshape:
    """The reshape of one tensor; both shapes have the same `segments`, -1 is a variable size.

    Args:
        name: the tensor's, for errors.
        before, after: the dimensions, with the batch where there is one.
    """

    def __init__(self, name: str, before: Shape, after: Shape) -> None:
        self.name, self._before, self._after = name, before, after
        self._varying = [axis for axis, dim in enumerate(before) if dim == -1]
        self._targets = [axis for axis, dim in enumerate(after) if dim == -1]

    def inverse(self) -> Reshape:
        """The way back."""
        return Reshape(self.name, self._after, self._before)

    def __call__(self, array: Array) -> Array:
        """A view of the array, or a copy where its elements do not lie in order.

        Raises:
            ServeError: it does not have the shape of the configuration (500).
        """
        shape = array.shape
        if len(shape) != len(self._before) or any(
            dim not in (-1, size) for dim, size in zip(self._before, shape, strict=True)
        ):
            what = f"'{self.name}' has another shape than in the configuration of the model"
            raise ServeError(what, status=500, expected=str(list(self._before)), got=str(list(shape)))
        target = list(self._after)
        for axis, source in zip(self._targets, self._varying, strict=True):
            target[axis] = shape[source]
        return array.reshape(target)


class Reshapes(NamedTuple):
    """Those of a model, by name: of inputs from the client's shape to the model's, of outputs back."""

    inputs: Mapping[str, Reshape]
    outputs: Mapping[str, Reshape]

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)

    def sample(self, golden: Sample) -> Sample:
        """A golden sample as clients see it."""
        back = {name: reshape.inverse() for name, reshape in self.inputs.items()}
        return Sample(_each(back, golden.inputs), _each(self.outputs, golden.outputs))


def _each(reshapes: Mapping[str, Reshape], arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: reshapes[name](array) if name in reshapes else array for name, array in arrays.items()}


class Reshaped:
    """An instance that takes and gives what clients see.

    Args:
        instance: takes and gives what the model has.
        reshapes: those of the model.
        names: the model's outputs, in order.
    """

    def __init__(self, instance: Instance, reshapes: Reshapes, names: Sequence[str]) -> None:
        self._instance, self._inputs = instance, reshapes.inputs
        self._outputs = [(names.index(name), reshape) for name, reshape in reshapes.outputs.items()]
        self.control = instance.control

    @property
    def gathered_at(self) -> float:
        return self._instance.gathered_at

    @gathered_at.setter
    def gathered_at(self, when: float) -> None:
        self._instance.gathered_at = when

    def __call__(self, feeds: Sequence[Feed], control: Any = None) -> list[Array]:
        outputs = self._instance([_each(self._inputs, feed) for feed in feeds], control)
        for place, reshape in self._outputs:
            outputs[place] = reshape(outputs[place])
        return outputs
