"""A batch normalization at inference is an affine map, so the layer before it can do it along."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any, TypeVar

from ox import functions as F
from ox.core.mode import switch_mode
from ox.errors import ArgumentError, ShapeError
from ox.functions import zeros_like
from ox.nn.base.module import Module
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)
Pair = tuple[Parameter, Parameter]


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A copy of a convolution that also does the normalization after it; both in eval mode.
    `torch.nn.utils.fuse_conv_bn_eval`."""
    return _fused(conv, bn, partial(fuse_conv_bn_weights, transpose=transpose))


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A copy of a Linear that also does the normalization after it; both in eval mode.
    `torch.nn.utils.fuse_linear_bn_eval`.

    Raises:
        ShapeError: the features of the two differ.
    """
    features: Any = bn.num_features
    if features not in (1, linear.out_features):
        raise ShapeError(
            "the Linear and the normalization do not fit", expected=f"{linear.out_features} features", got=str(features)
        )
    return _fused(linear, bn, fuse_linear_bn_weights)


def _fused(layer: M, bn: Module, fuse: Any) -> M:
    if layer.training or bn.training:
        raise ArgumentError("only modules in eval mode can be fused", hint="model.eval()")
    if bn._buffers.get("running_mean") is None or bn._buffers.get("running_var") is None:
        raise ArgumentError("a normalization without running statistics cannot be fused")
    made = deepcopy(layer)
    parts = made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    weight, bias = fuse(*parts)
    made.register_parameter("weight", weight)
    made.register_parameter("bias", bias)
    return made


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> Pair:
    """Weight and bias of the one convolution. `torch.nn.utils.fuse_conv_bn_weights`."""
    with switch_mode(grad=False):
        scale, bias = _affine(conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
        shape = [1] * conv_w.array.ndim
        shape[1 if transpose else 0] = -1
        weight = conv_w * scale.reshape(*shape)
    return _like(weight, conv_w), _like(bias, conv_w if conv_b is None else conv_b)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> Pair:
    """Weight and bias of the one Linear. `torch.nn.utils.fuse_linear_bn_weights`."""
    with switch_mode(grad=False):
        scale, bias = _affine(linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
        weight = linear_w * scale.unsqueeze(-1)
    return _like(weight, linear_w), _like(bias, linear_w if linear_b is None else linear_b)


def _affine(
    b: Tensor | None, mean: Tensor, variance: Tensor, eps: float, w: Tensor | None, after: Tensor | None
) -> tuple[Tensor, Tensor]:
    scale = F.rsqrt(variance + eps)
    scale = scale if w is None else scale * w
    bias = ((zeros_like(mean) if b is None else b) - mean) * scale
    return scale, bias if after is None else bias + after


def _like(value: Tensor, old: Tensor) -> Parameter:
    return Parameter(value.to(old.array.dtype), old.requires_grad)
