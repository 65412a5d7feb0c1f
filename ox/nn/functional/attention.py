"""Scaled dot-product attention."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ox import ops
from ox.dtypes import DType, bool_, is_floating
from ox.errors import ArgumentError, DTypeError
from ox.nn.functional.common import ints, number
from ox.nn.functional.dropout import dropout
from ox.operands import scalar
from ox.ops.dim import Dim
from ox.ops.explain import place
from ox.ops.operator import as_input
from ox.tensor import Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """query [..., T, E], key [..., S, E], value [..., S, V]: [..., T, V].
    `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        attn_mask: broadcast to [..., T, S]; bool with True where attention may go, or floats that are added.
            A row that may go nowhere gives zeros.
        is_causal: position t sees positions up to t.
        scale: default 1/sqrt(E).
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("attention takes attn_mask or is_causal, not both", where=place())
    perm = list(range(key.data.ndim))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    return attend(query, ops.Transpose(key, perm=perm), value, attn_mask, dropout_p, is_causal, scale)[0]


def attend(
    query: Tensor,
    key_transposed: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """Attention for a key that is already [..., E, S]; also returns the weights [..., T, S] before dropout."""
    factor = query.data.shape[-1] ** -0.5 if scale is None else scale
    scores = ops.MatMul(ops.Mul(query, number(factor, query)), key_transposed)
    if is_causal:
        scores = ops.Add(scores, causal_mask(query.shape[-2], key_transposed.shape[-1], query.data.dtype))
    allowed = None
    if mask is not None:
        if mask.data.dtype == bool_:
            allowed = mask
            # not -inf: a row that may go nowhere would become NaN, here and in its gradient
            lowest = number(_lowest(query.data.dtype), query)
            scores = ops.Add(scores, ops.Where(mask, number(0.0, query), lowest))
        elif is_floating(mask.data.dtype):
            scores = scores + mask
        else:
            raise DTypeError(
                f"attention does not take a {mask.data.dtype} mask", where=place(), expected="bool or a floating type"
            )
    weights = ops.Softmax(scores, axis=-1)
    if allowed is not None:
        weights = ops.Where(allowed, weights, number(0.0, weights))
    dropped = dropout(weights, dropout_p) if dropout_p else weights
    return ops.MatMul(dropped, value), weights


def _lowest(dtype: DType) -> float:
    return -30000.0 if dtype.itemsize == 2 and dtype == np.float16 else -1e30


def causal_mask(rows: Any, columns: Any, dtype: DType) -> Tensor:
    """[rows, columns] to add to scores: 0 where column <= row, -inf elsewhere; sizes may be `ox.Dim`."""
    if not isinstance(rows, Dim) and not isinstance(columns, Dim):
        return _causal_constant(rows, columns, dtype)
    zero, one = scalar(0, np.dtype(np.int64)), scalar(1, np.dtype(np.int64))
    row = ops.Unsqueeze(ops.Range(zero, scalar(rows, np.dtype(np.int64)), one), ints(1))
    column = ops.Range(zero, scalar(columns, np.dtype(np.int64)), one)
    return ops.Where(ops.LessOrEqual(column, row), scalar(0.0, dtype), scalar(-np.inf, dtype))


@lru_cache(maxsize=16)
def _causal_constant(rows: int, columns: int, dtype: DType) -> Tensor:
    made: Tensor = as_input(np.triu(np.full((rows, columns), -np.inf, np.float32), 1).astype(dtype))
    made.data.flags.writeable = False
    return made
