"""The weights of a model on a GPU, for a while on the CPU, where files are recorded and proven."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ox.devices import cpu


@contextmanager
def on_host(weights: Iterable[Any]) -> Iterator[None]:
    """A block in which these tensors lie on the CPU. Afterwards they are where and what they were."""
    moved = [(tensor, tensor.array) for tensor in {id(tensor): tensor for tensor in weights}.values() if tensor.is_cuda]
    try:
        for tensor, array in moved:
            tensor.array = cpu(array)
        yield
    finally:
        for tensor, array in moved:
            tensor.array = array
