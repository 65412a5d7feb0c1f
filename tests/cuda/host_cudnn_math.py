"""What cuDNN's operations compute, by NumPy: convolutions, attention, norms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

Ints = Sequence[int]
Float = np.ndarray[Any, Any]


def places_of(
    sizes: Ints, kernel: Ints, *, pre_padding: Ints, post_padding: Ints, stride: Ints, dilation: Ints
) -> Ints:
    along = zip(sizes, kernel, pre_padding, post_padding, stride, dilation, strict=True)
    return [(n + b + e - d * (k - 1) - 1) // s + 1 for n, k, b, e, s, d in along]


def _taps(kernel: Ints, places: Ints, pre_padding: Ints, post_padding: Ints, stride: Ints, dilation: Ints) -> Any:
    """Each tap, with what it meets of padded data."""
    for tap in product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, dilation, strict=True)]
        yield tap, tuple(slice(f, f + (p - 1) * s + 1, s) for f, p, s in zip(starts, places, stride, strict=True))


def _padded(x: Float, pre_padding: Ints, post_padding: Ints, **_: Ints) -> Float:
    return np.pad(x, [(0, 0), (0, 0), *zip(pre_padding, post_padding, strict=True)])


def _groups(x: Float, groups: int) -> Float:
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:])


def convolved(x: Float, w: Float, places: Ints, **window: Ints) -> Float:
    groups = x.shape[1] // w.shape[1]
    data, made = _groups(_padded(x, **window), groups), np.zeros((x.shape[0], w.shape[0], *places))
    weights = w.reshape(groups, -1, *w.shape[1:])
    for tap, met in _taps(w.shape[2:], places, **window):
        part = np.einsum("ngc...,gmc->ngm...", data[(..., *met)], weights[(..., *tap)])
        made += part.reshape(made.shape)
    return made


def spread(g: Float, w: Float, dim: Ints, **window: Ints) -> Float:
    groups, rank = dim[1] // w.shape[1], len(dim) - 2
    whole = _padded(np.zeros(dim), **window)
    grouped, weights = _groups(whole, groups), w.reshape(groups, -1, *w.shape[1:])
    for tap, met in _taps(w.shape[2:], g.shape[2:], **window):
        grouped[(..., *met)] += np.einsum("ngm...,gmc->ngc...", _groups(g, groups), weights[(..., *tap)])
    inner = [slice(b, b + n) for b, n in zip(window["pre_padding"], dim[2:], strict=True)]
    assert len(inner) == rank
    return grouped.reshape(whole.shape)[(..., *inner)]


def weighted(x: Float, g: Float, dim: Ints, **window: Ints) -> Float:
    groups = x.shape[1] // dim[1]
    data, gradients = _groups(_padded(x, **window), groups), _groups(g, groups)
    made = np.zeros((groups, dim[0] // groups, *dim[1:]))
    for tap, met in _taps(dim[2:], g.shape[2:], **window):
        n, k = gradients.shape[0], data.shape[2]
        part = data[(..., *met)].reshape(n, groups, k, -1)
        made[(..., *tap)] = np.einsum("ngmp,ngcp->gmc", gradients.reshape(n, groups, gradients.shape[2], -1), part)
    return made.reshape(dim)


def per_head(x: Float, heads: int) -> Float:
    return np.repeat(x, heads // x.shape[1], axis=1)


def of_shared(x: Float, shared: int) -> Float:
    return x.reshape(x.shape[0], shared, -1, *x.shape[2:]).sum(2)


def scores_of(q: Float, keys: Float, scale: float, causal: bool) -> Float:
    scores = q @ keys.swapaxes(-1, -2) * scale
    return np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf) if causal else scores


def weights_of(q: Float, k: Float, scale: float, causal: bool) -> tuple[Float, Float]:
    scores = scores_of(q, per_head(k, q.shape[1]), scale, causal)
    logs = np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1, keepdims=True)) + scores.max(-1, keepdims=True)
    return np.exp(scores - logs), logs


def normalized(x: Float, epsilon: float, centered: bool) -> tuple[Float, Float, Float]:
    """Rows, their means and their inverse deviations."""
    mean = x.mean(1, keepdims=True) * centered
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + epsilon)
    return (x - mean) * inverse, mean, inverse
