"""A model whose random numbers follow from an input: `ox.export.save(..., seed="seed")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.core.generator import default_generator
from ox.core.operator import OPS, make_tensor
from ox.dtypes import onnx_type, uint64


class Seeded:
    """A model with one argument more, the last, an int64 number. It draws what it does after `ox.manual_seed` of it."""

    def __init__(self, model: Callable[..., Any], name: str) -> None:
        self.model, self.name = model, name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if named:
            seed = named.pop(self.name)
        else:
            *arguments, seed = arguments  # type: ignore[assignment]
        state = default_generator.get_state()
        try:
            default_generator.manual_seed(0)  # of the version that a seed has here
            default_generator.key = OPS["Cast"](seed, to=onnx_type(uint64))
            default_generator.counter = make_tensor(np.asarray(0, np.uint64))
            return self.model(*arguments, **named)
        finally:
            default_generator.set_state(state)
