"""Many tensors in one broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.distributed.collectives import broadcast
from ox.distributed.world import get_global_rank, get_rank
from ox.ops.operator import make_tensor
from ox.tensor import Tensor


def share(tensors: Sequence[Tensor], source: int, group: Any, by: str) -> None:
    """Let every rank's tensors become those of the group's rank `source`: one broadcast of their bytes a device.

    They are the same in number, sizes and types on all ranks. `by` is who wrote, for errors about writes in place.
    """
    places: dict[str, list[Tensor]] = {}
    for x in tensors:
        places.setdefault(str(x.device), []).append(x)
    mine = get_rank(group) == source
    for held in places.values():
        sizes = [int(x.array.nbytes) for x in held]
        flat = np.empty_like(held[0].array, dtype=np.uint8, shape=(sum(sizes),))
        ends = np.cumsum(sizes).tolist()
        parts = [flat[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        if mine:
            for x, part in zip(held, parts, strict=True):
                part[...] = np.ascontiguousarray(x.array).reshape(-1).view(np.uint8)
        broadcast(make_tensor(flat), get_global_rank(group, source), group=group)
        if not mine:
            for x, part in zip(held, parts, strict=True):
                x.own_memory(by)
                x.array[...] = part.view(x.array.dtype).reshape(x.array.shape)
                x.wrote(by)
