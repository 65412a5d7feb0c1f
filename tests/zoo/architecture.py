"""One entry of the zoo: a model, inputs of any sizes, and which of them vary."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import ox
from ox.porting import port

Array = np.ndarray[Any, Any]
Dim = ox.Dim
PROGRAMS = Path(__file__).parent / "programs"


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(high: int, *shape: int, low: int = 0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape)


@cache
def program(library: ModuleType, name: str) -> ModuleType:
    """The classes of a training script in `programs`: as it is for PyTorch, as `ox port` writes it for ox."""
    path = PROGRAMS / f"{name}.py"
    text = path.read_bytes()
    module = ModuleType(f"{name} on {library.__name__}")
    sys.modules[module.__name__] = module  # where dataclasses look their annotations up
    exec(compile(port(text).data if library is ox else text, str(path), "exec"), vars(module))
    return module


def flat(result: Any) -> list[Any]:
    """The tensors that a model returned, in the order of the outputs of its file."""
    return (
        list(result.values()) if isinstance(result, dict) else list(result) if isinstance(result, tuple) else [result]
    )


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
        alone: what it uses is not in PyTorch.
    """

    make: Callable[[], Any]
    inputs: Callable[..., tuple[Array, ...]]
    dims: dict[str, list[Any]]
    sizes: dict[str, int]
    other: dict[str, int]
    batch: tuple[str, ...] = ("batch",)
    lowest: int = 13
    highest: int = 26
    seed: str | None = None
    alone: bool = False

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


def architecture(
    make: Callable[[], Any],
    inputs: Callable[..., tuple[Array, ...]],
    dims: dict[str, list[Any]],
    varying: tuple[str, ...] = ("batch",),
    lowest: int = 13,
    highest: int = 26,
    seed: str | None = None,
    alone: bool = False,
    **sizes: tuple[int, int],
) -> Architecture:
    """An `Architecture` whose sizes are written beside each other: of the example, and at another run."""
    example, other = ({name: pair[i] for name, pair in sizes.items()} for i in (0, 1))
    return Architecture(make, inputs, dims, example, other, varying, lowest, highest, seed, alone)
