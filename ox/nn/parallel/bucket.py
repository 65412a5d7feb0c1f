"""Gradients side by side in one flat array, so that one collective carries many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.devices.gpu.pinned_memory import HostResult
from ox.tensors.tensor import Tensor

FIRST = 1 << 20  # bytes of the first bucket, as in PyTorch: small, so that the first collective starts early


class Bucket:
    """Some parameters' gradients in flat memory that lives as long as the model: no step allocates.

    `indices` are the parameters' numbers in the order of the memory. `flat` has the gradients, and `memory` one element
    more, the `flag`, in which ranks tell each other that they lack a gradient.
    """

    def __init__(self, number: int, parameters: Sequence[Tensor], indices: list[int]) -> None:
        self.number, self.indices = number, indices
        members = [parameters[i] for i in indices]
        like = members[0].array
        sizes = [int(p.array.size) for p in members]
        self.memory = make_tensor(np.zeros_like(like, shape=(sum(sizes) + 1,)))  # where `like` lives
        self.flat, self.flag = make_tensor(self.memory.array[:-1]), self.memory.array[-1:]
        ends = np.cumsum(sizes).tolist()
        self.gradients = [
            make_tensor(self.flat.array[end - size : end].reshape(p.static_shape))
            for p, size, end in zip(members, sizes, ends, strict=True)
        ]
        self.waiting = len(indices)
        self.work: Any = None
        self.end_span: Callable[[], None] | None = None  # ends the span in the profiler

    @property
    def nbytes(self) -> int:
        return int(self.memory.array.nbytes)

    def slots(self) -> Iterator[tuple[int, Tensor]]:
        """Each parameter's number, and its gradient's place."""
        return zip(self.indices, self.gradients, strict=True)


class Flags:
    """The flags of all ranks, in arrays of one element. On a GPU they are copied while the host goes on."""

    def __init__(self, flags: Sequence[Any]) -> None:
        self.on_device = not isinstance(flags[0], np.ndarray)
        self._copies = [HostResult(flag) if self.on_device else flag.copy() for flag in flags]

    def any(self) -> bool:
        """Whether some rank lacks a gradient. Waits for the copies."""
        return any(float((c.wait() if isinstance(c, HostResult) else c)[0]) > 0 for c in self._copies)


def assign_buckets(parameters: Sequence[Tensor], order: Sequence[int], first: int, cap: int) -> list[Bucket]:
    """Buckets of one element type and device each, filled in `order`; the first closes at `first` bytes, the others at
    `cap`. PyTorch's `compute_bucket_assignment_by_size`."""
    filling: dict[Any, list[int]] = {}
    full: list[list[int]] = []
    limits: dict[Any, int] = {}
    for i in order:
        p = parameters[i]
        kind = (p.array.dtype, str(p.device))
        members = filling.setdefault(kind, [])
        members.append(i)
        if sum(parameters[k].array.nbytes for k in members) >= limits.get(kind, first):
            full.append(filling.pop(kind))
            limits[kind] = cap
    place = {i: at for at, i in enumerate(order)}
    full = sorted([*full, *filling.values()], key=lambda members: place[members[0]])
    return [Bucket(number, parameters, members) for number, members in enumerate(full)]
