"""The weights of a model on a GPU, on the host for as long as an export lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from ox.devices import cpu
from ox.tensors.tensor import Tensor


@contextmanager
def on_host(weights: Iterable[Tensor]) -> Iterator[None]:
    """Let tensors have copies of their arrays on the host, and no gradients, for recordings, files and proofs are of
    the host. They get those of the GPU back, which have the same values: an export puts back what it changes."""
    there = {id(t): (t, t.array, t._grad) for t in weights if not isinstance(t.array, np.ndarray)}.values()
    try:
        for tensor, array, _ in there:
            tensor.array, tensor._grad = cpu(array), None
        yield
    finally:
        for tensor, array, grad in there:
            tensor.array, tensor._grad = array, grad
