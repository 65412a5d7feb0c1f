"""Methods of tensors as functions of `torch`: `torch.clamp_(x, 0, 1)` is `x.clamp_(0, 1)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ox.tensors.tensor import Tensor

NAMES = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_", "asin_",
    "asinh_", "atan_", "atanh_", "ceil_", "clamp_", "clamp_max_", "clamp_min_", "clip_", "cos_", "cosh_", "deg2rad_",
    "detach", "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "gcd_",
    "get_device", "i0_", "index_put_", "is_signed", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_",
    "nan_to_num_", "neg_", "negative_", "rad2deg_", "reciprocal_", "round_", "rsqrt_", "sigmoid_", "sin_", "sinc_",
    "sinh_", "sqrt_", "square_", "tan_", "tanh_", "trunc_", "unsafe_split_with_sizes", "xlogy_", "zero_",
)  # fmt: skip


def _function(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(input, name)(*args, **kwargs)

    first, *rest = inspect.signature(method).parameters.values()
    function.__signature__ = inspect.Signature([first.replace(name="input"), *rest])  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`Tensor.{name}` as a function. {inspect.getdoc(method) or ''}\n`torch.{name}`."
    return function


globals().update({name: _function(name) for name in NAMES})


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape. `torch.is_same_size`."""
    return tuple(input.shape) == tuple(other.shape)


def is_distributed(input: Tensor) -> bool:
    """False. `torch.is_distributed`."""
    return False


is_neg = is_distributed
