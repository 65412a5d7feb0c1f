"""The dropouts, from the counter-based generator, so that a captured step draws what eager would."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ox import ops, random
from ox.core.constants import on_device_of, scalar_like
from ox.core.generator import default_generator, words_of
from ox.core.mt19937 import Words, tensors
from ox.core.operator import as_input
from ox.dtypes import HALF_TYPES, float32, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.compiled_call import runs_compiled, runs_on_device
from ox.nn.functional.rectifier import result_or_inplace
from ox.ops.random.philox import PhiloxDropout
from ox.tensors.tensor import Tensor

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

ON_DEVICE = (float32, *HALF_TYPES)
SATURATED = -1.7580993408473766  # what SELU tends to: the value of what alpha dropout drops


def _mask(input: Tensor, shape: Sequence[int], p: float, generator: Any, kind: str) -> Tensor:
    """1 with probability 1 - p, else 0, in the type of the input."""
    if random.is_torch_compatible():
        words, like = _words(input, shape, generator)
        return as_input(tensors.bernoulli(words, like, 1 - p, like.dtype)).to(input.device)
    keep = ops.GreaterOrEqual(
        drawn := random.uniform(shape, generator=generator, device=input.device, kind=kind), scalar_like(p, drawn)
    )
    return on_device_of(ops.Cast(keep, to=onnx_type(input.array.dtype)), input)


def _words(input: Tensor, shape: Sequence[int], generator: Any) -> tuple[Words, Any]:
    """PyTorch's random words, and an array with the memory layout of the result: the input's, if each element has its
    own number."""
    words, array = words_of(generator), input.array
    assert words is not None
    own = isinstance(array, np.ndarray) and tuple(shape) == array.shape
    return words, array if own else np.empty(shape, array.dtype)


def _dropped(input: Tensor, shape: Sequence[int], p: float, training: bool, inplace: bool, generator: Any) -> Tensor:
    """Elements that share a number of a mask of `shape` are dropped together."""
    _check(p)
    if not training or p == 0:
        return input
    factor = scalar_like(0.0, input)
    own = tuple(shape) == input.shape  # a number for each element
    kind = "dropout" if own else "feature_dropout"
    if p < 1:
        if random.is_torch_compatible():
            words, like = _words(input, shape, generator)
            factor = as_input(tensors.dropout_factors(words, like, p)).to(input.device)
        elif own and (runs_compiled(input) or runs_on_device(input, ON_DEVICE, recorded=True)):
            key, counter = (default_generator if generator is None else generator)._skip(math.prod(shape), kind)
            return result_or_inplace(input, PhiloxDropout(input, key, counter, p=p), inplace, "dropout_")
        else:
            factor = ops.Mul(_mask(input, shape, p, generator, kind), scalar_like(1 / (1 - p), input))
    return result_or_inplace(input, ops.Mul(input, factor), inplace, "dropout_")


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError("dropout's p is a probability", expected="0 to 1", got=str(p))


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Any = None
) -> Tensor:
    """Zero each element with probability `p` and scale the others by 1/(1-p); the input itself when not training.
    `torch.nn.functional.dropout`.

    Args:
        inplace: write the result over the input.
        generator: an `ox.Generator`; None for the default one.
    """
    return _dropped(input, input.shape, p, training, inplace, generator)


def _channels(input: Tensor, lead: int) -> list[int]:
    """The shape of one number for each channel, with `lead` dimensions up to the channels."""
    return [*input.shape[:lead], *[1] * (input.array.ndim - lead)]


def _ranks(input: Tensor, name: str, ranks: Sequence[int]) -> None:
    if input.array.ndim not in ranks:
        raise ShapeError(
            f"{name} does not take {input.array.ndim} dimensions",
            expected=" or ".join(map(str, ranks)),
            got=f"input {list(input.static_shape)}",
        )


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Any = None
) -> Tensor:
    """`dropout` of whole channels of [N, C, L] or [C, L]. `torch.nn.functional.dropout1d`."""
    _ranks(input, "dropout1d", (2, 3))
    return _dropped(input, _channels(input, input.array.ndim - 1), p, training, inplace, generator)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Any = None
) -> Tensor:
    """`dropout` of whole channels of [N, C, H, W]. `torch.nn.functional.dropout2d`, which takes three dimensions for
    [N, C, L], too."""
    if input.array.ndim not in (3, 4):
        _ranks(input, "dropout2d", (3, 4))
    return _dropped(input, _channels(input, 2), p, training, inplace, generator)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Any = None
) -> Tensor:
    """`dropout` of whole channels of [N, C, D, H, W] or [C, D, H, W]. `torch.nn.functional.dropout3d`."""
    _ranks(input, "dropout3d", (4, 5))
    return _dropped(input, _channels(input, input.array.ndim - 3), p, training, inplace, generator)


def _alpha(input: Tensor, shape: Sequence[int], p: float, training: bool, inplace: bool, generator: Any) -> Tensor:
    _check(p)
    if not training or p == 0:
        return input
    if p == 1:
        return result_or_inplace(input, ops.Mul(input, scalar_like(0.0, input)), inplace, "alpha_dropout_")
    a = 1 / math.sqrt((SATURATED**2 * p + 1) * (1 - p))
    mask = _mask(input, shape, p, generator, "alpha_dropout")
    if random.is_torch_compatible():
        # in PyTorch's steps
        shift = ops.Mul(ops.Sub(mask, scalar_like(1.0, input)), scalar_like(-SATURATED * a, input))
        shift = ops.Add(shift, scalar_like(-SATURATED * a * p, input))
        scaled = ops.Mul(input, ops.Mul(mask, scalar_like(a, input)))
        return result_or_inplace(input, ops.Add(scaled, shift), inplace, "alpha_dropout_")
    # a x + b where it is kept, and a SATURATED + b where not
    kept, b = scalar_like(a, input), -a * SATURATED * p
    rest = ops.Add(ops.Mul(mask, scalar_like(-a * SATURATED, input)), scalar_like(a * SATURATED + b, input))
    return result_or_inplace(input, ops.Add(ops.Mul(ops.Mul(input, kept), mask), rest), inplace, "alpha_dropout_")


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, *, generator: Any = None
) -> Tensor:
    """Put elements to SELU's saturation with probability `p`, and scale and shift all so that mean 0 and variance 1
    stay (Klambauer et al., 2017). `torch.nn.functional.alpha_dropout`."""
    return _alpha(input, input.shape, p, training, inplace, generator)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, *, generator: Any = None
) -> Tensor:
    """`alpha_dropout` of whole channels of [N, C, ...]. `torch.nn.functional.feature_alpha_dropout`."""
    shape: Sequence[int] = input.shape
    if training:
        if input.array.ndim < 2:
            raise ShapeError("feature dropout takes [N, C, ...]", got=f"input {list(input.static_shape)}")
        shape = _channels(input, 2)
    return _alpha(input, shape, p, training, inplace, generator)
