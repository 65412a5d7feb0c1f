"""Whole numbers: in a range, of a type, in random order, with given weights, and counts (Poisson, binomial)."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, floor, inf, lgamma, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.mt19937.uniform import exponential
from ox.core.mt19937.words import Words
from ox.dtypes import DType, is_floating

WIDE = 1 << 28  # ranges from here on take words of 64 bits
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def integers(words: Words, count: int, low: int, high: int) -> NDArray[np.int64]:
    """[count] in [low, high): a word modulo the range."""
    span = high - low
    if span >= 1 << 64:
        return words.wide(count).view(np.int64)
    if span >= WIDE:
        rest = words.wide(count) % np.uint64(span)
    else:
        rest = (words.narrow(count) % np.uint32(span)).astype(np.uint64)
    return (rest + np.uint64(low % (1 << 64))).view(np.int64)


def largest(dtype: DType) -> int:
    """The largest number that `of_type` draws: 2^digits of a float, else what the type holds."""
    if dtype == np.bool_:
        return 1
    return 1 << _DIGITS[dtype.name] if is_floating(dtype) else int(np.iinfo(dtype).max)


def of_type(words: Words, count: int, dtype: DType) -> NDArray[Any]:
    """[count] from 0 to `largest`: words of 64 bits for int64 and float64, else of 32."""
    drawn: Any = words.wide(count) if dtype in (np.int64, np.float64) else words.narrow(count).astype(np.uint64)
    return (drawn % np.uint64(largest(dtype) + 1)).astype(dtype)


def permutation(words: Words, count: int) -> NDArray[np.int64]:
    """0 to count - 1 in random order (Fisher and Yates, from the front): each place is exchanged with a later one, a
    word modulo how many are left."""
    left = np.arange(count, 1, -1, dtype=np.uint32)
    steps = words.narrow(max(count - 1, 0)) % left
    order = list(range(count))
    for i, step in enumerate(steps.tolist()):
        j = i + step
        order[i], order[j] = order[j], order[i]
    return np.array(order, np.int64)


def without_replacement(words: Words, weights: NDArray[Any], count: int, order: Any) -> NDArray[np.int64]:
    """[..., count] places in rows of weights: the largest of weight / e, with e exponential (Efraimidis and Spirakis,
    2006). `order` puts drawn numbers in the order of the weights' memory."""
    noise = order(_as(exponential(words, weights.size), weights.dtype))
    with np.errstate(divide="ignore", invalid="ignore"):
        keys = (weights / noise).astype(weights.dtype)
    if count == 1:
        return np.argmax(keys, -1, keepdims=True)
    return np.argsort(-keys, -1, kind="stable")[..., :count]


def _as(drawn: NDArray[np.float64], dtype: DType) -> NDArray[Any]:
    return drawn.astype(dtype) if dtype == np.float64 else drawn.astype(np.float32).astype(dtype)


def with_replacement(words: Words, weights: NDArray[Any], count: int) -> NDArray[np.int64]:
    """[..., count] places in rows of weights, from each one uniform number: the first place up to which the weights,
    added up and divided in their own type, reach it."""
    rows = weights.reshape(-1, weights.shape[-1])
    found = np.empty((len(rows), count), np.int64)
    for row, one in zip(found, rows, strict=True):
        running = np.add.accumulate(one, dtype=one.dtype)
        edges = (running / running[-1]).astype(one.dtype)
        edges[-1] = 1
        row[:] = np.searchsorted(edges.astype(np.float64), words.doubles(count), side="left")
    return found.reshape(*weights.shape[:-1], count)


def poisson(words: Words, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts with the given means: up to 10 by multiplying uniform numbers (Knuth), above by transformed rejection
    (Hoermann, "The transformed rejection method for generating Poisson random variables", 1993)."""
    with words.one_by_one(2 * rates.size) as number:
        return np.array([_poisson(rate, number) for rate in rates.tolist()], np.float64)


def _poisson(rate: float, number: Callable[[], float]) -> float:
    if rate == 0:
        return 0.0
    if rate < 10:
        least, count, product = exp(-rate), 0, number()
        while product > least:
            product *= number()
            count += 1
        return float(count)
    root, log_rate = sqrt(rate), log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse, bound = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = number() - 0.5, number()
        us = 0.5 - abs(u)
        k = floor((2 * a / us + b) * u + rate + 0.43) if us else inf
        if us >= 0.07 and v <= bound:
            return float(k)
        if k < 0 or (us < 0.013 and v > us) or not us or not v:
            continue
        if log(v) + log(inverse) - log(a / (us * us) + b) <= -rate + k * log_rate - lgamma(k + 1):
            return float(k)
