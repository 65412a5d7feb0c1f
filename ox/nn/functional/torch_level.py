"""Layers as functions of `torch` itself, whose arguments differ from those in `torch.nn.functional`.

Code that was written against PyTorch's C++ names calls them so: a flag for training by position, a reduction as a
number (0 none, 1 mean, 2 sum; without one PyTorch reduces nothing here).
"""

from __future__ import annotations

from typing import Any

from ox.core.promotion import upcast_half
from ox.errors import ArgumentError
from ox.functions import norm
from ox.nn import functional as F
from ox.tensors.tensor import Tensor

_REDUCTIONS = ("none", "mean", "sum")


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`F.dropout`. `torch.dropout`."""
    return F.dropout(input, p, train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`F.dropout` in place. `torch.dropout_`."""
    return F.dropout(input, p, train, inplace=True)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`F.alpha_dropout`. `torch.alpha_dropout`."""
    return F.alpha_dropout(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`F.feature_alpha_dropout`. `torch.feature_alpha_dropout`."""
    return F.feature_alpha_dropout(input, p, train)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Whole channels of [n, c, ...] become 0. `torch.feature_dropout`."""
    return F.dropout1d(input.reshape(*input.shape[:2], -1), p, train).reshape(input.shape)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`F.embedding`, the table first; -1 for no padding index. `torch.embedding`."""
    return F.embedding(
        indices, weight, None if padding_idx < 0 else padding_idx, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`F.batch_norm`. `torch.batch_norm`."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`F.instance_norm`. `torch.instance_norm`."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Any:
    """`F.adaptive_max_pool1d` with the indices. `torch.adaptive_max_pool1d`."""
    return F.adaptive_max_pool1d(input, output_size, return_indices=True)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`F.grid_sample`, with numbers for the modes. `torch.grid_sampler`."""
    mode = _named(interpolation_mode, ("bilinear", "nearest", "bicubic"), "interpolation_mode")
    padding = _named(padding_mode, ("zeros", "border", "reflection"), "padding_mode")
    return F.grid_sample(input, grid, mode, padding, align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """`F.affine_grid`. `torch.affine_grid_generator`."""
    return F.affine_grid(theta, size, align_corners)


def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """`F.pad`. `torch.constant_pad_nd`."""
    return F.pad(input, pad, value=value)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:  # fmt: skip
    """`F.binary_cross_entropy_with_logits`. `torch.binary_cross_entropy_with_logits`."""
    chosen = _reduction(reduction)
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=chosen, pos_weight=pos_weight)


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """`F.kl_div`. `torch.kl_div`."""
    return F.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`F.cosine_embedding_loss`. `torch.cosine_embedding_loss`."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`F.margin_ranking_loss`. `torch.margin_ranking_loss`."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """`F.hinge_embedding_loss`. `torch.hinge_embedding_loss`."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """`F.poisson_nll_loss`. `torch.poisson_nll_loss`."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_reduction(reduction))


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: int = 0,
) -> Tensor:  # fmt: skip
    """`F.triplet_margin_loss`. `torch.triplet_margin_loss`."""
    chosen = _reduction(reduction)
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=chosen)


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """`F.ctc_loss`. `torch.ctc_loss`."""
    chosen = _reduction(reduction)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, chosen, zero_infinity)


@upcast_half
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares. `torch.frobenius_norm`."""
    return input.square().sum(dim, keepdim).sqrt()


@upcast_half
def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one, which stay as ones. `torch.norm_except_dim`."""
    others = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
    return norm(v, pow) if dim == -1 else norm(v, pow, others, True)


def _reduction(number: Any) -> str:
    return str(number) if number in _REDUCTIONS else _named(number, _REDUCTIONS, "reduction")


def _named(number: Any, names: tuple[str, ...], argument: str) -> str:
    """The name of a reduction that PyTorch passes as a number."""
    if number not in range(len(names)):
        expected = ", ".join(f"{i} ({name})" for i, name in enumerate(names))
        raise ArgumentError(f"{argument} is a number", expected=expected, got=repr(number))
    return str(names[number])
