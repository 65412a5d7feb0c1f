"""A broadcast of many tensors in one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.distributed.collectives import broadcast
from ox.distributed.world import get_global_rank, get_rank
from ox.tensors.tensor import Tensor


def broadcast_coalesced(
    tensors: Sequence[Tensor],
    source: int,
    group: Any,
    operation: str,
    skip_equal: Callable[[Tensor], bool] = lambda _: False,
) -> None:
    """Copies the tensors of the group's rank `source` to all ranks, with one broadcast of bytes per device.

    The number, sizes and types of the tensors are equal on all ranks.

    Args:
        operation: names the caller in errors about in-place writes.
        skip_equal: whether a tensor that has the same bits is left alone, with its version.
    """
    by_device: dict[str, list[Tensor]] = {}
    for x in tensors:
        by_device.setdefault(str(x.device), []).append(x)
    is_source = get_rank(group) == source
    for on_device in by_device.values():
        sizes = [int(x.array.nbytes) for x in on_device]
        flat = np.empty_like(on_device[0].array, dtype=np.uint8, shape=(sum(sizes),))
        ends = np.cumsum(sizes).tolist()
        parts = [flat[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        if is_source:
            for x, part in zip(on_device, parts, strict=True):
                part[...] = x.array.ravel().view(np.uint8)
        broadcast(make_tensor(flat), get_global_rank(group, source), group=group)
        if not is_source:
            for x, part in zip(on_device, parts, strict=True):
                if skip_equal(x) and bool((x.array.ravel().view(np.uint8) == part).all()):
                    continue
                x.ensure_writable(operation)
                x.array[...] = part.view(x.array.dtype).reshape(x.static_shape)
                x.count_write(operation)
