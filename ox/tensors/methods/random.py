"""Tensor's methods that fill it with random numbers, in place; `torch.Tensor.normal_` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.autograd.grad_mode import no_grad
from ox.core import operator
from ox.core.constants import scalar
from ox.core.mt19937 import discrete, tensors
from ox.core.mt19937.switch import is_torch_compatible
from ox.core.promotion import cast
from ox.core.tensor import is_tensor
from ox.dtypes import DType, float32, float64, is_floating
from ox.errors import ArgumentError, CallError, DTypeError

if TYPE_CHECKING:
    from ox.random import Generator
    from ox.tensors.tensor import Tensor


def _fill(x: Any, values: Any, name: str) -> Tensor:
    from ox.tensors.random_sampling import beside

    with no_grad():
        values = beside(cast(values.detach(), x.array.dtype), x)
    return x.assign(values, name)


def _unit(x: Any, generator: Generator | None, kind: str) -> Tensor:
    """Uniform in (0, 1), in float64."""
    from ox.tensors.random_sampling import HALF_STEP

    return ops.Add(cast(_uniform(x, generator, kind), float64), scalar(HALF_STEP, float64))


def _uniform(x: Any, generator: Generator | None, kind: str = "uniform") -> Tensor:
    from ox import random

    return random.uniform(x.shape, float32, generator, x.device, kind=kind)


def _standard(x: Any, generator: Generator | None, kind: str = "normal") -> Tensor:
    from ox import random

    return random.normal(x.shape, float32, generator, x.device, kind=kind)


def _torch(x: Any, generator: Generator | None, draw: str, *numbers: Any) -> Tensor | None:
    """PyTorch's numbers that fill `x`, by a function of `ox.core.mt19937.tensors`; None where they are not wanted."""
    from ox.core.generator import words_of

    words = words_of(generator)
    if words is None:
        return None
    like = x.array if isinstance(x.array, np.ndarray) else np.empty(x.static_shape, x.array.dtype)
    return operator.make_tensor(getattr(tensors, draw)(words, like, *numbers))


def _floats(x: Any, name: str) -> None:
    if not is_floating(x.array.dtype):
        raise DTypeError(f"{name} fills floats", got=str(x.array.dtype))


class RandomMethods:
    """Mixed into `ox.Tensor`: fill this tensor with random numbers, in place."""

    def uniform_(
        self: Any, from_: float = 0, to: float = 1, *, generator: Generator | None = None, **named: float
    ) -> Tensor:
        """Uniform in [from, to)."""
        _floats(self, "uniform_")
        low = named.pop("from", from_)
        if named:
            raise CallError(f"uniform_ has no argument {next(iter(named))!r}", expected="from, to, generator")
        if low > to:
            raise ArgumentError("from must not be greater than to", got=f"{low} and {to}")
        drawn = _torch(self, generator, "uniform", low, to)
        if drawn is None:
            drawn = _uniform(self, generator) * (to - low) + low
        return _fill(self, drawn, "uniform_")

    def normal_(self: Any, mean: float = 0, std: float = 1, *, generator: Generator | None = None) -> Tensor:
        """Normal with a mean and a deviation."""
        _floats(self, "normal_")
        if std < 0:
            raise ArgumentError("std must be 0 or more", got=str(std))
        drawn = _torch(self, generator, "normal", mean, std)
        if drawn is None:
            drawn = _standard(self, generator) * std + mean
        return _fill(self, drawn, "normal_")

    def log_normal_(self: Any, mean: float = 1, std: float = 2, *, generator: Generator | None = None) -> Tensor:
        """The exponential of normal numbers."""
        _floats(self, "log_normal_")
        if std <= 0:
            raise ArgumentError("log_normal_ needs a deviation above 0", got=str(std))
        drawn = _torch(self, generator, "log_normal", mean, std)
        if drawn is None:
            drawn = ops.Exp(cast(_standard(self, generator, "log_normal"), float64) * std + mean)
        return _fill(self, drawn, "log_normal_")

    def exponential_(self: Any, lambd: float = 1, *, generator: Generator | None = None) -> Tensor:
        """Exponential with the rate `lambd`."""
        _floats(self, "exponential_")
        if lambd <= 0:
            raise ArgumentError("exponential_ needs a rate above 0", got=str(lambd))
        drawn = _torch(self, generator, "exponential", lambd)
        if drawn is None:
            drawn = ops.Neg(ops.Log(_unit(self, generator, "exponential"))) / lambd
        return _fill(self, drawn, "exponential_")

    def cauchy_(self: Any, median: float = 0, sigma: float = 1, *, generator: Generator | None = None) -> Tensor:
        """Cauchy with a median and a half width."""
        _floats(self, "cauchy_")
        if sigma <= 0:
            raise ArgumentError("cauchy_ needs a width above 0", got=str(sigma))
        drawn = _torch(self, generator, "cauchy", median, sigma)
        if drawn is None:
            angle = (_unit(self, generator, "cauchy") - 0.5) * np.pi
            drawn = ops.Div(ops.Sin(angle), ops.Cos(angle)) * sigma + median
        return _fill(self, drawn, "cauchy_")

    def geometric_(self: Any, p: float, *, generator: Generator | None = None) -> Tensor:
        """How many trials until the first success, each with probability `p`: 1, 2, ..."""
        if not 0 < p < 1:
            raise ArgumentError("geometric_ needs a probability between 0 and 1", got=str(p))
        drawn = _torch(self, generator, "geometric", p)
        if drawn is None:
            trials = ops.Log(_unit(self, generator, "geometric")) / float(np.log1p(-p))
            drawn = ops.Neg(ops.Floor(ops.Neg(trials)))
        return _fill(self, drawn, "geometric_")

    def bernoulli_(self: Any, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
        """1 with probability `p` (a number, or one for each element), else 0."""
        values = p.array if is_tensor(p) else np.asarray(p)
        if isinstance(values, np.ndarray) and not ((values >= 0) & (values <= 1)).all():
            raise ArgumentError("a probability must be between 0 and 1")
        chance = p.detach().cpu().array if is_tensor(p) else p
        drawn = _torch(self, generator, "bernoulli", chance, self.array.dtype)
        if drawn is None:
            drawn = _uniform(self, generator, "bernoulli").to(self.device) < p
        return _fill(self, drawn, "bernoulli_")

    def random_(
        self: Any, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None, **named: int
    ) -> Tensor:
        """Whole numbers in [from, to), or [0, to) with one bound; without bounds what the type can hold, below 2^32."""
        low, high = named.pop("from", from_), to
        if low is not None and high is None and "to" not in named:
            low, high = 0, low
        if low is None and high is None:
            whole = _torch(self, generator, "of_type")
            if whole is not None:
                return _fill(self, whole, "random_")
        low = 0 if low is None else low
        if is_torch_compatible():
            high = discrete.largest(self.array.dtype) + 1 if high is None else high
            if high <= low:
                raise ArgumentError("random_ needs a range that ascends", got=f"{low} to {high}")
            drawn = _torch(self, generator, "integers", low, high)
            assert drawn is not None
            return _fill(self, drawn, "random_")
        high = _largest(self.array.dtype) + 1 if high is None else high
        from ox.random import randint

        drawn = randint(low, min(high, low + (1 << 32)), self.shape, generator=generator)
        return _fill(self, drawn, "random_")

    def bernoulli(self: Any, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
        """`ox.bernoulli`."""
        from ox.random import bernoulli

        return bernoulli(self, p, generator=generator)

    def multinomial(
        self: Any, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
    ) -> Tensor:
        """`ox.multinomial`."""
        from ox.tensors.random_sampling import multinomial

        return multinomial(self, num_samples, replacement, generator=generator)


def _largest(dtype: DType) -> int:
    """The largest whole number up to which a type holds all, below 2^32."""
    if dtype == np.bool_:
        return 1
    bits = {2: 11 if dtype == np.float16 else 8, 4: 24, 8: 53}[dtype.itemsize] if is_floating(dtype) else 0
    return min((1 << bits) if bits else int(np.iinfo(dtype).max), (1 << 32) - 1)
