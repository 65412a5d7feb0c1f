"""Arrays of random numbers in the order in which PyTorch fills a tensor: as its elements lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.mt19937 import discrete
from ox.core.mt19937 import normal as gauss
from ox.core.mt19937 import uniform as flat
from ox.core.mt19937.words import Words
from ox.dtypes import DType, is_floating
from ox.errors import ArgumentError

SMALL = 16  # normal numbers: fewer are drawn one by one


def in_memory_order(drawn: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Flat numbers in the shape of `like`, the first ones where its memory begins."""
    if like.flags.c_contiguous:
        return drawn.reshape(like.shape)
    order = sorted(range(like.ndim), key=lambda d: -abs(like.strides[d]))
    made = np.empty_like(like, drawn.dtype)
    made.transpose(order)[...] = drawn.reshape([like.shape[d] for d in order])
    return made


def round_to(drawn: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """float64 numbers in another type; those of 16 bits by way of float32."""
    if dtype.itemsize == 2 and drawn.dtype == np.float64:
        with np.errstate(over="ignore"):
            return drawn.astype(np.float32).astype(dtype)
    with np.errstate(over="ignore"):
        return drawn.astype(dtype, copy=False)


def uniform(words: Words, like: NDArray[Any], low: float = 0.0, high: float = 1.0) -> NDArray[Any]:
    """In [low, high), of the shape, type and layout of `like`, as all functions here."""
    return in_memory_order(flat.uniform(words, like.size, like.dtype, low, high), like)


def normal(words: Words, like: NDArray[Any], mean: float = 0.0, std: float = 1.0) -> NDArray[Any]:
    """With a mean and a deviation."""
    if like.size >= SMALL and like.flags.c_contiguous:
        return gauss.fill(words, like.size, like.dtype, mean, std).reshape(like.shape)
    return in_memory_order(round_to(gauss.each(words, like.size, mean, std), like.dtype), like)


def log_normal(words: Words, like: NDArray[Any], mean: float, std: float) -> NDArray[Any]:
    """The exponential of normal numbers."""
    return in_memory_order(round_to(np.exp(gauss.each(words, like.size, mean, std)), like.dtype), like)


def exponential(words: Words, like: NDArray[Any], rate: float = 1.0) -> NDArray[Any]:
    """With a rate."""
    return in_memory_order(round_to(flat.exponential(words, like.size, rate), like.dtype), like)


def cauchy(words: Words, like: NDArray[Any], median: float, sigma: float) -> NDArray[Any]:
    """With a median and a half width."""
    return in_memory_order(round_to(flat.cauchy(words, like.size, median, sigma), like.dtype), like)


def geometric(words: Words, like: NDArray[Any], p: float) -> NDArray[Any]:
    """Trials until the first success."""
    return in_memory_order(round_to(flat.geometric(words, like.size, p), like.dtype), like)


def bernoulli(words: Words, like: NDArray[Any], p: Any, dtype: DType) -> NDArray[Any]:
    """1 with the probability `p`, a number or an array that goes with the shape, else 0; of another type."""
    if not isinstance(p, np.ndarray):
        return in_memory_order(flat.bernoulli(words, like.size, float(p)).astype(dtype), like)
    wide = p.dtype == np.float64
    drawn = in_memory_order(words.doubles(like.size) if wide else words.floats(like.size), like)
    return (drawn < (p if wide else p.astype(np.float32))).astype(dtype)


def dropout_factors(words: Words, like: NDArray[Any], p: float) -> NDArray[Any]:
    """Dropout's factors: 0 with probability `p`, else 1 / (1 - p), divided as PyTorch divides."""
    wide = like.dtype if like.dtype == np.float64 else np.dtype(np.float32)
    scale = (wide.type(1) / wide.type(1 - p)).astype(like.dtype)
    return bernoulli(words, like, 1 - p, like.dtype) * scale


def integers(words: Words, like: NDArray[Any], low: int, high: int) -> NDArray[Any]:
    """In [low, high). Raises ArgumentError where a float type does not hold them all."""
    if is_floating(like.dtype) and max(high - 1, -low) > discrete.largest(like.dtype):
        raise ArgumentError(
            "random whole numbers that their type rounds are not PyTorch's",
            expected=f"{like.dtype} in -{discrete.largest(like.dtype)} to {discrete.largest(like.dtype)}",
            got=f"{low} to {high - 1}",
            hint="draw int64, then .to(dtype)",
        )
    return in_memory_order(discrete.integers(words, like.size, low, high).astype(like.dtype), like)


def of_type(words: Words, like: NDArray[Any]) -> NDArray[Any]:
    """From 0 to the largest that the type holds."""
    return in_memory_order(discrete.of_type(words, like.size, like.dtype), like)


def multinomial(words: Words, weights: NDArray[Any], count: int, replacement: bool) -> NDArray[np.int64]:
    """[..., count] places in rows of weights."""
    if replacement and count > 1:
        return discrete.with_replacement(words, weights, count)
    return discrete.without_replacement(words, weights, count, lambda drawn: in_memory_order(drawn, weights))


def poisson(words: Words, rates: NDArray[Any]) -> NDArray[Any]:
    """Counts with the means given, in their type; by rows, however these lie in memory."""
    return round_to(discrete.poisson(words, rates.reshape(-1).astype(np.float64)), rates.dtype).reshape(rates.shape)
