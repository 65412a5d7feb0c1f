"""One entry of the zoo: a model, inputs of any sizes, and which of them vary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox import nn

Array = np.ndarray[Any, Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(high: int, *shape: int, low: int = 0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape)


@dataclass(frozen=True)
class Architecture:
    """A model and how it is exported.

    Args:
        make: makes the model.
        inputs: gives the arrays of one call, for the sizes by name.
        dims: of every input, with all sizes open that can be.
        sizes: of the example that is exported.
        other: sizes at which the file is run once more.
        batch: the sizes that stay open where only the batch does.
        lowest: the oldest opset that has the operators of the model.
        highest: the newest one with whose operators ONNX Runtime runs it.
        seed: the name of the input from which its random numbers come.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[..., tuple[Array, ...]]
    dims: dict[str, list[Any]]
    sizes: dict[str, int]
    other: dict[str, int]
    batch: tuple[str, ...] = ("batch",)
    lowest: int = 13
    highest: int = 26
    seed: str | None = None

    @property
    def example(self) -> tuple[Array, ...]:
        return self.inputs(**self.sizes)

    def batch_dims(self) -> dict[str, list[Any]]:
        """The same as `dims`, with the batch open alone."""
        return {
            name: [
                size if isinstance(dim, int) or str(dim) not in self.batch else dim
                for dim, size in zip(dims, x.shape, strict=True)
            ]
            for (name, dims), x in zip(self.dims.items(), self.example, strict=True)
        }

    def batch_sizes(self) -> dict[str, int]:
        """Other sizes for the batch alone."""
        return {name: self.other[name] if name in self.batch else n for name, n in self.sizes.items()}
