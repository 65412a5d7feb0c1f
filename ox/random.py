"""Random numbers from explicit state: a key and a counter, the same bits on every device, eager and recorded."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd.modes import no_grad
from ox.dtypes import DType, float32, get_default_dtype, int64
from ox.errors import ArgumentError
from ox.functions.dims import sizes_of
from ox.operands import cast, scalar
from ox.ops import operator
from ox.ops.dim import size_tensor
from ox.ops.mode import switched
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor


class Generator:
    """A stream of random numbers: Philox 4x32-10 under a key, at a counter that moves on. `torch.Generator`.

    `key` and `counter` are uint64 tensors of no dimensions, so a recorded step takes them in and hands the counter on.

    Args:
        seed: any int; the same seed gives the same numbers on every device.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.manual_seed(secrets.randbits(63) if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` from its beginning."""
        self.set_state({"seed": int(seed), "counter": 0})
        return self

    def initial_seed(self) -> int:
        return int(self._seed)

    def get_state(self) -> dict[str, int]:
        """Seed and counter: plain numbers that go into any file."""
        return {"seed": self._seed, "counter": int(self.counter.data)}

    def set_state(self, state: dict[str, int]) -> None:
        """Go on from a state that `get_state` gave."""
        self._seed = int(state["seed"])
        self.key = operator.make_tensor(np.asarray(self._seed % (1 << 64), np.uint64))
        self.counter = operator.make_tensor(np.asarray(int(state["counter"]), np.uint64))


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Seed the default generator. `torch.manual_seed`."""
    return default_generator.manual_seed(seed)


def get_state() -> dict[str, int]:
    """The state of the default generator."""
    return default_generator.get_state()


def set_state(state: dict[str, int]) -> None:
    """Put the default generator back to a state of `get_state`."""
    default_generator.set_state(state)


def _draw(op: str, shape: Sequence[int], dtype: DType | None, generator: Generator | None) -> Tensor:
    generator = generator or default_generator
    with no_grad():
        drawn, generator.counter = OPS[op](generator.key, generator.counter, size_tensor(shape))
    return cast(drawn, dtype or get_default_dtype())


def uniform(shape: Sequence[int], dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    """Numbers in [0, 1), 24 random bits each; sizes may be `ox.Dim`."""
    return _draw("ox.RandomUniform", shape, dtype, generator)


def normal(shape: Sequence[int], dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    """Standard normal numbers (Box and Muller); sizes may be `ox.Dim`."""
    return _draw("ox.RandomNormal", shape, dtype, generator)


def rand(
    *shape: Any, dtype: DType | None = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Uniform in [0, 1). `torch.rand`."""
    drawn = uniform(sizes_of(shape), dtype, generator)
    return drawn.requires_grad_() if requires_grad else drawn


def randn(
    *shape: Any, dtype: DType | None = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Standard normal. `torch.randn`."""
    drawn = normal(sizes_of(shape), dtype, generator)
    return drawn.requires_grad_() if requires_grad else drawn


def rand_like(x: Tensor, *, dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    return uniform(x.shape, dtype or x.data.dtype, generator)


def randn_like(x: Tensor, *, dtype: DType | None = None, generator: Generator | None = None) -> Tensor:
    return normal(x.shape, dtype or x.data.dtype, generator)


def randint(
    low: int, high: Any = None, size: Any = None, *, dtype: DType = int64, generator: Generator | None = None
) -> Tensor:
    """Integers in [low, high), or [0, low) with one bound. `torch.randint`.

    Raises:
        ArgumentError: an empty range, or one wider than 2^24, which 24 random bits cannot fill evenly.
    """
    if size is None:
        low, high, size = 0, low, high
    if not 0 < high - low <= 1 << 24:
        raise ArgumentError("randint needs a range of 1 to 2^24 integers", got=f"[{low}, {high})")
    drawn = uniform(tuple(size), float32, generator)
    scaled = OPS["Mul"](drawn, scalar(high - low, float32))
    return OPS["Add"](cast(scaled, dtype), scalar(low, dtype))


def randperm(n: int, *, generator: Generator | None = None) -> Tensor:
    """0 to n - 1 in random order, int64. `torch.randperm`. Its order is a constant under a recording."""
    with switched(recording=None):
        drawn = uniform((n,), float32, generator), uniform((n,), float32, generator)
    # the second draw breaks ties of the first
    return operator.make_tensor(np.lexsort((drawn[1].data, drawn[0].data)).astype(np.int64))


def bernoulli(p: Any, *, generator: Generator | None = None) -> Tensor:
    """1 with probability p, else 0, for each element of `p`. `torch.bernoulli`."""
    return cast(OPS["Less"](uniform(p.shape, p.data.dtype, generator), p), p.data.dtype)
