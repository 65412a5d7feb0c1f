"""A model whose random numbers come from an input: `ox.export.save(..., seed="seed")`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ox import ops
from ox.core.constants import scalar
from ox.core.generator import default_generator
from ox.dtypes import onnx_type, uint64
from ox.errors import ArgumentError
from ox.export.example_inputs import Example
from ox.tensors.tensor import Tensor

_SEED = 1_234_567_890  # of the recordings and the proof; too large to be taken for a place or a length


def with_seed(example: Example, name: str) -> Example:
    """The example with one more input, a whole number.

    Raises:
        ArgumentError: the name is not one, or that of another input.
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError("seed is the name of an input", expected="a text, such as 'seed'", got=repr(name))
    if name in example.arrays:
        raise ArgumentError(f"there is an input '{name}' already", hint="another name for the seed")
    added = {name: np.array(_SEED)}
    return replace(
        example,
        arrays={**example.arrays, **added},
        dims={**example.dims, name: ()},
        keywords=None if example.keywords is None else (*example.keywords, name),
        others=tuple({**each, **added} for each in example.others),
    )


class WithSeed:
    """A model of one more argument, the last or the one of that name: it runs as behind ``ox.manual_seed(seed)``."""

    def __init__(self, model: Callable[..., Any], name: str) -> None:
        self.model, self.name = model, name

    def __call__(self, *tensors: Tensor, **named: Tensor) -> Any:
        seed = named.pop(self.name) if named else tensors[-1]
        generator = default_generator
        before = generator.key, generator.counter
        generator.key, generator.counter = ops.Cast(seed, to=onnx_type(uint64)), scalar(0, uint64)
        try:
            return self.model(**named) if named else self.model(*tensors[:-1])
        finally:
            generator.key, generator.counter = before
