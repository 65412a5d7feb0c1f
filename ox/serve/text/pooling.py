"""One vector of a text from those of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ox.graph.contract import Array


def pooled(tokens: Array, mask: Array, kinds: Sequence[str], normalize: bool) -> Array:
    """The vectors of texts, float32 [batch, size]; those of several kinds stand side by side.

    Args:
        tokens: floating [batch, length, size].
        mask: [batch, length], 0 for padding, which stands behind a text.
        kinds: "mean", "cls", "last" and "max", as sentence-transformers has them.
        normalize: make the length of each vector 1.
    """
    values = tokens.astype(np.float32, copy=False)
    vectors = np.concatenate([_pooled(values, mask != 0, kind) for kind in kinds], axis=1)
    return normalized(vectors) if normalize else vectors


def normalized(vectors: Array) -> Array:
    """Vectors [batch, size] of length 1; one of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Array = vectors / np.maximum(lengths, 1e-12)
    return unit


def _pooled(values: Array, real: Array, kind: str) -> Array:
    rows = np.arange(len(values))
    if kind == "cls":
        first: Array = values[:, 0]
        return first
    if kind == "last":
        last: Array = values[rows, real.sum(1) - 1]
        return last
    if kind == "max":
        highest: Array = np.where(real[:, :, None], values, -np.inf).max(1)
        return highest
    weights = real / real.sum(1, keepdims=True)
    mean: Array = np.matmul(weights[:, None].astype(np.float32), values)[:, 0]
    return mean
