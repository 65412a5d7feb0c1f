"""Rectifiers and related functions, under PyTorch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops, random
from ox.core.constants import on_device_of, scalar_like, stored
from ox.core.generator import words_of
from ox.core.mt19937 import tensors
from ox.core.operator import as_input
from ox.core.promotion import cast
from ox.dtypes import float32
from ox.errors import ArgumentError
from ox.functions.operand_arguments import only_floats
from ox.tensors.tensor import Tensor

__all__ = [
    "celu", "celu_", "elu", "elu_", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "relu", "relu6", "relu_",
    "rrelu", "rrelu_", "selu", "selu_", "softshrink", "threshold", "threshold_",
]  # fmt: skip

# for the types wider than the float32 in which ONNX has them
SELU_ALPHA, SELU_GAMMA = 1.6732632423543772848, 1.0507009873554804934


def result_or_inplace(input: Tensor, result: Tensor, inplace: bool, name: str) -> Tensor:
    """The result, or with `inplace` the input overwritten with it."""
    return input.assign(result, name) if inplace else result


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0). `torch.nn.functional.relu`, ONNX Relu."""
    unsigned = isinstance(input, Tensor) and input.array.dtype.kind == "u"  # which ONNX does not take, nor needs
    return result_or_inplace(input, ops.Identity(input) if unsigned else ops.Relu(input), inplace, "relu_")


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x, below 0 times a slope. `torch.nn.functional.leaky_relu`, ONNX LeakyRelu."""
    return result_or_inplace(input, ops.LeakyRelu(input, alpha=float(negative_slope)), inplace, "leaky_relu_")


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above the threshold, else a value. `torch.nn.functional.threshold`."""
    # NaN stays
    result = ops.Where(ops.LessOrEqual(input, scalar_like(threshold, input)), stored(value, input.array.dtype), input)
    return result_or_inplace(input, result, inplace, "threshold_")


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x held between two numbers; on them its gradient is 0. `torch.nn.functional.hardtanh`, ONNX Clip.

    Raises:
        ArgumentError: min_val above max_val.
    """
    if min_val > max_val:
        raise ArgumentError("hardtanh's min_val is above max_val", got=f"{min_val} and {max_val}")
    low, high = stored(min_val, input.array.dtype), stored(max_val, input.array.dtype)
    if input.node is None:
        return result_or_inplace(input, ops.Clip(input, low, high), inplace, "hardtanh_")
    # Clip passes a gradient on its bounds, PyTorch's hardtanh does not
    outside = ops.Or(ops.LessOrEqual(input, low), ops.GreaterOrEqual(input, high))
    return result_or_inplace(
        input, ops.Where(outside, ops.Clip(input.detach(), low, high), input), inplace, "hardtanh_"
    )


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x held between 0 and 6. `torch.nn.functional.relu6`, ONNX Clip."""
    return hardtanh(input, 0, 6, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x, below 0 alpha (exp(x) - 1). `torch.nn.functional.elu`, ONNX Elu."""
    return result_or_inplace(input, ops.Elu(input, alpha=float(alpha)), inplace, "elu_")


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled ELU, which keeps mean 0 and variance 1. `torch.nn.functional.selu`, ONNX Selu."""
    return result_or_inplace(input, ops.Selu(input, alpha=SELU_ALPHA, gamma=SELU_GAMMA), inplace, "selu_")


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x, below 0 alpha (exp(x / alpha) - 1). `torch.nn.functional.celu`, ONNX Celu.

    Raises:
        ArgumentError: alpha is 0.
    """
    if alpha == 0:
        raise ArgumentError("celu's alpha is not 0")
    if input.array.dtype == float32:
        result = ops.Celu(input, alpha=float(alpha))
    else:  # of which the opsets that runtimes read have no Celu
        scale = scalar_like(alpha, input)
        result = ops.Mul(ops.Elu(ops.Div(input, scale)), scale)
    return result_or_inplace(input, result, inplace, "celu_")


def rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    generator: Any = None,
) -> Tensor:
    """x, not above 0 times a slope, drawn for each element while training, else the mean of the two.
    `torch.nn.functional.rrelu` (Xu et al., 2015).

    Args:
        generator: an `ox.Generator`; None for the default one.

    Raises:
        ArgumentError: lower above upper.
    """
    if lower > upper:
        raise ArgumentError("rrelu's lower is above upper", got=f"{lower} and {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    if random.is_torch_compatible():
        slope = _torch_slopes(input, lower, upper, generator)
        return result_or_inplace(input, ops.Mul(input, slope), inplace, "rrelu_")
    drawn = on_device_of(
        cast(random.uniform(input.shape, generator=generator, device=input.device, kind="rrelu"), input.array.dtype),
        input,
    )
    slope = ops.Add(ops.Mul(drawn, scalar_like(upper - lower, input)), scalar_like(lower, input))
    result = ops.Where(ops.Greater(input, scalar_like(0, input)), input, ops.Mul(input, slope))
    return result_or_inplace(input, result, inplace, "rrelu_")


def _torch_slopes(input: Tensor, lower: float, upper: float, generator: Any) -> Tensor:
    """1 above 0, else a slope: PyTorch draws for those elements only."""
    words, array = words_of(generator), random.as_numpy(input)
    assert words is not None
    slopes, low = np.ones(array.shape, array.dtype), array <= 0
    drawn = words.doubles(int(low.sum())) * (upper - lower) + lower
    slopes[low] = tensors.round_to(drawn, array.dtype)
    return as_input(slopes).to(input.device)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x nearer to 0 by lambd where it is farther than that, else 0. `torch.nn.functional.softshrink`.

    Raises:
        ArgumentError: lambd below 0.
    """
    only_floats("softshrink", input)
    if lambd < 0:
        raise ArgumentError("softshrink's lambd is 0 or more", got=str(lambd))
    return ops.Sub(input, ops.Clip(input, scalar_like(-lambd, input), scalar_like(lambd, input)))


def relu_(input: Tensor) -> Tensor:
    """`relu` in place. `torch.nn.functional.relu_`."""
    return relu(input, True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place. `torch.nn.functional.leaky_relu_`."""
    return leaky_relu(input, negative_slope, True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place. `torch.nn.functional.threshold_`."""
    return _threshold(input, threshold, value, True)


_threshold = threshold  # which the argument of that name hides


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place. `torch.nn.functional.hardtanh_`."""
    return hardtanh(input, min_val, max_val, True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place. `torch.nn.functional.elu_`."""
    return elu(input, alpha, True)


def selu_(input: Tensor) -> Tensor:
    """`selu` in place. `torch.nn.functional.selu_`."""
    return selu(input, True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place. `torch.nn.functional.celu_`."""
    return celu(input, alpha, True)


def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place. `torch.nn.functional.rrelu_`."""
    return rrelu(input, lower, upper, training, True)
