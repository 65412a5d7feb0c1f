"""The multiplications and additions of a call, for the operators with most of them."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod
from typing import Any

Count = Callable[[list[Any], Any], int]


def _matmul(arrays: list[Any], out: Any) -> int:
    if not arrays[0].ndim:
        return 0
    inner = arrays[0].size // max(prod(arrays[0].shape[:-1]), 1)
    return int(2 * out.size * inner)


def _gemm(arrays: list[Any], out: Any) -> int:
    # either may be transposed: what the two and the result have, without their common size
    return 2 * isqrt(arrays[0].size * arrays[1].size * out.size)


def _conv(arrays: list[Any], out: Any) -> int:
    return _windows(arrays[1], out)


def _conv_transpose(arrays: list[Any], out: Any) -> int:
    return _windows(arrays[1], arrays[0])


def _windows(weight: Any, places: Any) -> int:
    return int(2 * places.size * prod(weight.shape[1:])) if weight.ndim > 2 else 0


def _conv_weights(arrays: list[Any], out: Any) -> int:
    return int(2 * arrays[1].size * prod(out.shape[1:]))


def _attention(inputs: list[Any], of_width: int, of_value_width: int) -> int:
    """Products that make a [T, S] or take one: so many over the width of the query, and over that of the value. What a
    causal mask leaves out is counted all the same, as PyTorch does."""
    query, key, value = inputs
    pairs = prod(query.shape[:-1]) * key.shape[-2]
    return int(2 * pairs * (of_width * query.shape[-1] + of_value_width * value.shape[-1]))


def _recurrent(arrays: list[Any], out: Any) -> int:
    """A step of each sample multiplies by the weights of its input and of its state."""
    steps = prod(arrays[0].shape[:-1])
    return int(2 * steps * (arrays[1].size + arrays[2].size))


def _recurrent_gradient(arrays: list[Any], out: Any) -> int:
    return 2 * _recurrent(arrays, out)


COUNTS: dict[str, Count] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "ox.ConvWeights": _conv_weights,
    "ox.ScaledAttention": lambda arrays, out: _attention(arrays[:3], 1, 1),
    "ox.ScaledAttentionGradient": lambda arrays, out: _attention(arrays[1:4], 2, 2),
    "ox.BlockwiseAttention": lambda arrays, out: _attention(arrays[:3], 1, 1),
    "ox.BlockwiseAttentionGradient": lambda arrays, out: _attention(arrays[1:4], 3, 2),  # it makes the scores again
    **dict.fromkeys(("RNN", "GRU", "LSTM", "ox.GRUGates", "ox.LSTMGates"), _recurrent),
    **dict.fromkeys(("ox.RNNGradient", "ox.GRUGradient", "ox.LSTMGradient"), _recurrent_gradient),
}


def flops(name: str, arrays: list[Any], result: Any) -> int:
    """Two for each product that is added up; 0 for operators that are not in `COUNTS`. Names are with the domain, where
    it is that of ox ("ox.ConvWeights")."""
    count = COUNTS.get(name)
    return 0 if count is None else count(arrays, result[0] if isinstance(result, tuple) else result)
