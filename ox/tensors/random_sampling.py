"""Random numbers of given distributions: normal, multinomial, poisson, binomial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.autograd.grad_mode import no_grad
from ox.core import operator
from ox.core.constants import axes_tensor, scalar
from ox.core.generator import Generator, default_generator, words_of
from ox.core.mode import MODE, cannot_record
from ox.core.mt19937 import tensors
from ox.core.promotion import cast
from ox.core.tensor import is_tensor
from ox.dtypes import DType, float32, float64, get_default_dtype, int64, is_floating
from ox.errors import ArgumentError, DTypeError, RecordError, ShapeError
from ox.functions.dimension_arguments import sizes_of
from ox.functions.index_arguments import broadcast_all
from ox.functions.keyword_arguments import factory, keywords
from ox.functions.like_creation import to_device
from ox.functions.zero_gradients import with_zero_gradient
from ox.random import as_numpy, uniform
from ox.random import normal as standard_normal

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

HALF_STEP = 2.0**-25  # brings the 24 bits of `uniform` from [0, 1) into (0, 1)
MOST_CATEGORIES = 2**24  # more could not all be drawn with 24 random bits; PyTorch refuses the same


def beside(drawn: Any, x: Any) -> Any:
    """Numbers just drawn, on the device of `x`."""
    return drawn if drawn.device == x.device else to_device(drawn, x.device)


@factory
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers with a mean and a deviation for each element (either may be one number), or of the shape `size`.
    `torch.normal`.

    Raises:
        ArgumentError: a negative `std`, or numbers without a size.
    """
    given = [x for x in (mean, std) if is_tensor(x)]
    deviation = std.array if is_tensor(std) else np.asarray(std)
    if isinstance(deviation, np.ndarray) and (deviation < 0).any():
        raise ArgumentError("std must be 0 or more", got=str(deviation.min()))
    with no_grad():
        if not given:
            if size is None:
                raise ArgumentError("normal of two numbers needs a size", hint="size=(2, 3)")
            words = words_of(generator)
            if words is not None:
                like = np.empty(sizes_of((size,)), dtype or get_default_dtype())
                filled: Tensor = operator.make_tensor(tensors.normal(words, like, mean, std))
                filled = filled if device is None else filled.to(device)
                return filled.requires_grad_() if requires_grad else filled
            drawn = standard_normal(size, dtype, generator)
        else:
            like = broadcast_all(*given)[0]
            drawn = beside(standard_normal(like.shape, like.array.dtype, generator), like)
        made: Any = drawn * std + mean
    made = with_zero_gradient(made, mean, std)
    made = made if device is None else made.to(device)
    return made.requires_grad_() if requires_grad else made


@keywords
def multinomial(
    input: Any, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """int64 places drawn from each row of weights, with or without putting back. `torch.multinomial`.

    Raises:
        ArgumentError: negative, infinite or no weights, fewer to draw from than are drawn, or more than 2**24.
    """
    if input.array.ndim not in (1, 2):
        raise ShapeError("multinomial takes weights in rows", got=str(list(input.static_shape)))
    if not is_floating(input.array.dtype):
        raise DTypeError("multinomial takes floats", got=str(input.array.dtype), hint="x.float()")
    if num_samples < 1 or (not replacement and num_samples > input.static_shape[-1]):
        raise ArgumentError(
            f"multinomial cannot draw {num_samples} of {input.static_shape[-1]}",
            expected="1 or more, without putting back at most as many as there are",
        )
    if input.static_shape[-1] > MOST_CATEGORIES:
        raise ArgumentError(
            f"multinomial draws with 24 random bits, and there are {input.static_shape[-1]:,} weights in a row",
            expected=f"{MOST_CATEGORIES:,} or fewer",
            hint="draw a group of them first, then one of the group",
        )
    _weights(input.array, num_samples, replacement)
    words = words_of(generator)
    if words is not None:
        places = tensors.multinomial(words, as_numpy(input), num_samples, replacement)
        return beside(operator.make_tensor(places), input)
    with no_grad():
        input = cast(input.detach(), float64)
        if not replacement:
            # the largest of log p - log(-log u) is drawn with probability p (Gumbel), the next ones as if without it
            drawn = beside(uniform(input.shape, float32, generator, kind="multinomial_distinct"), input)
            u = ops.Add(cast(drawn, float64), scalar(HALF_STEP, float64))
            keys = ops.Sub(ops.Log(input), ops.Log(ops.Neg(ops.Log(u))))
            return ops.TopK(keys, axes_tensor([num_samples]), outputs=2)[1]
        lead = list(input.shape[:-1])
        drawn = beside(uniform([*lead, num_samples], float32, generator, kind="multinomial"), input)
        running = ops.CumSum(input, scalar(-1, int64))
        last = ops.Slice(running, axes_tensor([-1]), axes_tensor([2**62]), axes_tensor([-1]))
        rows = [ops.Div(running, last), cast(drawn, float64)]
        if not lead:
            rows = [ops.Unsqueeze(row, axes_tensor([0])) for row in rows]
        places = ops.SearchSorted(*rows, right=1)
        return places if lead else ops.Squeeze(places, axes_tensor([0]))


def _weights(array: Any, count: int, replacement: bool) -> None:
    if not isinstance(array, np.ndarray):
        return
    good = np.isfinite(array.astype(np.float32)).all() and (array >= 0).all()
    positive = (array > 0).sum(axis=-1)
    least = 1 if replacement else count
    if not good or (positive < least).any():
        raise ArgumentError(
            "multinomial takes weights of 0 or more", expected=f"finite numbers, {least} or more of each row above 0"
        )


def on_host(name: str, x: Any, generator: Generator | None, kind: str) -> np.random.Generator:
    """NumPy's generator in a state made of ours, which moves on."""
    if MODE.get().recording is not None:
        cannot_record(
            RecordError(
                f"{name} has no form in operators, so it cannot be recorded",
                hint="draw before, and pass the numbers in",
            )
        )
    generator = default_generator if generator is None else generator
    if (words := words_of(generator)) is not None:
        return np.random.Generator(np.random.MT19937(words.narrow(4)))
    key, counter = int(generator.key_of(kind).array), int(generator.counter.array)
    generator.counter = operator.make_tensor(np.asarray((counter + x.array.size + 1) % (1 << 64), np.uint64))
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def poisson(input: Any, generator: Generator | None = None) -> Tensor:
    """Counts with the mean given for each element, in the type of `input`. `torch.poisson`; drawn by NumPy on the
    host."""
    rates = input.detach().cpu().array.astype(np.float64)
    if (rates < 0).any():
        raise ArgumentError("a rate is not negative")
    words = words_of(generator)
    if words is not None:
        drawn: Any = tensors.poisson(words, input.detach().cpu().array)
    else:
        drawn = on_host("poisson", input, generator, "poisson").poisson(rates)
    return with_zero_gradient(beside(operator.as_input(np.asarray(drawn).astype(input.array.dtype)), input), input)


def binomial(count: Any, prob: Any, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed, each with probability `prob`. `torch.binomial`; drawn by NumPy."""
    count, prob = broadcast_all(count, prob)
    chances, trials = prob.detach().cpu().array.astype(np.float64), count.detach().cpu().array.astype(np.int64)
    if not ((chances >= 0) & (chances <= 1)).all() or (trials < 0).any():
        raise ArgumentError("binomial takes counts of 0 or more and probabilities from 0 to 1")
    drawn = on_host("binomial", prob, generator, "binomial").binomial(trials, chances)
    made = beside(operator.as_input(np.asarray(drawn).astype(prob.array.dtype)), prob)
    return with_zero_gradient(made, count, prob)
