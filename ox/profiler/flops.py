"""The multiplications and additions of a call, for the operators with most of them.

Counted are products that are added up, two for each: those of matrices, convolutions, attention and recurrent layers,
as many as the operator's definition has, whatever its kernel saves by skipping (masked places, ended sequences) or by
another algorithm (Winograd's). What a gradient computes again is counted again. Element-wise work, normalizations,
pooling and losses count nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod
from typing import Any

Count = Callable[[list[Any], tuple[Any, ...]], int]


def _matmul(arrays: list[Any], made: tuple[Any, ...]) -> int:
    if not arrays[0].ndim:
        return 0
    inner = arrays[0].size // max(prod(arrays[0].shape[:-1]), 1)
    return int(2 * made[0].size * inner)


def _gemm(arrays: list[Any], made: tuple[Any, ...]) -> int:
    # either may be transposed: what the two and the result have, without their common size
    return 2 * isqrt(arrays[0].size * arrays[1].size * made[0].size)


def _linear_gradient(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return 2 * int(2 * arrays[0].size * arrays[2].shape[1])


def _conv(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _windows(arrays[1], made[0])


def _conv_transpose(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _windows(arrays[1], arrays[0])


def _conv_weights(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _windows(made[0], arrays[1])


def _windows(weight: Any, places: Any) -> int:
    return int(2 * places.size * prod(weight.shape[1:])) if weight.ndim > 2 else 0


def _attention(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _scores(arrays[:3], 1, 1)


def _attention_gradient(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _scores(arrays[1:4], 2, 2)


def _blockwise_attention_gradient(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _scores(arrays[1:4], 3, 2)  # it makes the scores again


def _scores(arrays: list[Any], of_keys: int, of_values: int) -> int:
    """Products between the places [..., T, S] and so many times the width of the keys and of the values."""
    q, k, v = arrays
    return int(2 * prod(q.shape[:-1]) * k.shape[-2] * (of_keys * q.shape[-1] + of_values * v.shape[-1]))


def _recurrent(arrays: list[Any], made: tuple[Any, ...]) -> int:
    X, W, R = arrays[:3]
    return 2 * _steps(X) * int(W.size + R.size)


def _rnn_gradient(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _recurrent_gradient(arrays, len(made) > 4)


def _gru_gradient(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _recurrent_gradient(arrays, len(made) > 4, again=_at(arrays, 9) is None)


def _lstm_gradient(arrays: list[Any], made: tuple[Any, ...]) -> int:
    return _recurrent_gradient(arrays, len(made) > 5, again=_at(arrays, 12) is None)


def _recurrent_gradient(arrays: list[Any], to_x: bool, again: bool = False) -> int:
    """To both weights and to the states before, and to X where it is wanted; without gates, the forward again."""
    X, W, R = arrays[:3]
    return 2 * _steps(X) * int((1 + to_x + again) * W.size + (2 + again) * R.size)


def _steps(X: Any) -> int:
    """Steps of all sequences; the weights [directions, gates * hidden, ...] have a place for each product of one."""
    return prod(X.shape[:2])


def _at(arrays: list[Any], i: int) -> Any:
    return arrays[i] if i < len(arrays) else None


# By operator, those of the domain "ox" with it.
COUNTS: dict[str, Count] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "ox.Linear": _matmul,
    "ox.LinearGradient": _linear_gradient,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "ox.ConvWeights": _conv_weights,
    "ox.ScaledAttention": _attention,
    "ox.ScaledAttentionGradient": _attention_gradient,
    "ox.BlockwiseAttention": _attention,
    "ox.BlockwiseAttentionGradient": _blockwise_attention_gradient,
    "RNN": _recurrent,
    "ox.RNNGradient": _rnn_gradient,
    "GRU": _recurrent,
    "ox.GRUGates": _recurrent,
    "ox.GRUGradient": _gru_gradient,
    "LSTM": _recurrent,
    "ox.LSTMGates": _recurrent,
    "ox.LSTMGradient": _lstm_gradient,
}


def flops(op: Any, arrays: list[Any], result: Any) -> int:
    """Two for each product that is added up; 0 for operators that are not in `COUNTS`."""
    count = COUNTS.get(f"{op.domain}.{op.name}" if op.domain else op.name)
    return 0 if count is None else count(arrays, result if isinstance(result, tuple) else (result,))
