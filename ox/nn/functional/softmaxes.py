"""Softmax and related functions, under PyTorch's names."""

from __future__ import annotations

import warnings
from typing import Any

from ox import functions, ops, random
from ox.core.constants import on_device_of, scalar_like
from ox.core.promotion import cast
from ox.dtypes import DType, float32
from ox.functions.creation import empty
from ox.functions.dimension_arguments import one_dim
from ox.functions.operand_arguments import only_floats
from ox.tensors.tensor import Tensor

__all__ = ["gumbel_softmax", "log_softmax", "softmax", "softmin"]


def _dim(name: str, input: Tensor, dim: int | None, stacklevel: int) -> int:
    """PyTorch's old habit where no dimension is given: 1 for two and for four dimensions, else 0."""
    if dim is not None:
        return dim
    warnings.warn(f"{name} without dim uses 0 or 1, by the rank; pass dim", UserWarning, stacklevel)
    return 0 if input.array.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`. `torch.nn.functional.softmax`, ONNX Softmax."""
    return functions.softmax(input, _dim("softmax", input, dim, _stacklevel), dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """softmax(-x) along `dim`. `torch.nn.functional.softmin`."""
    return functions.softmax(functions.neg(input), _dim("softmin", input, dim, _stacklevel), dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along `dim`. `torch.nn.functional.log_softmax`, ONNX LogSoftmax."""
    return functions.log_softmax(input, _dim("log_softmax", input, dim, _stacklevel), dtype=dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1, *, generator: Any = None
) -> Tensor:
    """A soft sample of the distribution that the logits describe; with `hard` one-hot, its gradient that of the soft
    one. `torch.nn.functional.gumbel_softmax` (Jang et al., 2016).

    Args:
        tau: the temperature.
        eps: taken for compatibility, as in PyTorch.
        generator: an `ox.Generator`; None for the default one.
    """
    only_floats("gumbel_softmax", logits)
    dim = one_dim(dim, logits.array.ndim)
    if random.is_torch_compatible():
        drawn = empty(logits.shape, dtype=logits.array.dtype).exponential_(generator=generator).to(logits.device)
        noise = ops.Neg(ops.Log(drawn))
    else:
        drawn = random.uniform(logits.shape, float32, generator, logits.device, kind="gumbel_softmax")
        drawn = ops.Max(drawn, scalar_like(2.0**-25, drawn))  # a logarithm follows
        noise = on_device_of(cast(ops.Neg(ops.Log(ops.Neg(ops.Log(drawn)))), logits.array.dtype), logits)
    soft = ops.Softmax(ops.Div(ops.Add(logits, noise), scalar_like(tau, logits)), axis=dim)
    if not hard:
        return soft
    return ops.Add(ops.Sub(ops.Hardmax(soft.detach(), axis=dim), soft.detach()), soft)
