"""Ranks that train one model must have one: its names, sizes and types are compared, and rank 0's values taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ox import distributed as dist
from ox.errors import ArgumentError
from ox.ops.operator import make_tensor
from ox.tensor import Tensor
from ox.where import users_line

Description = list[list[Any]]  # name, sizes, type and whether it is trained, of each tensor


def description(named: Iterable[tuple[str, Tensor]]) -> Description:
    return [[name, list(x.array.shape), str(x.array.dtype), bool(x.requires_grad)] for name, x in named]


def agree(named: Sequence[tuple[str, Tensor]], group: Any, owner: str) -> None:
    """Raise the same ArgumentError on every rank if one's tensors differ from those of rank 0."""
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, description(named), group=group)
    for rank, theirs in enumerate(told):
        if theirs != told[0]:
            what, expected, got = difference(told[0], theirs)
            raise ArgumentError(
                f"{owner}: the model of rank {rank} is not that of rank 0: {what}",
                where=users_line() or None,
                expected=f"{expected}, as on rank 0",
                got=f"{got} on rank {rank}",
                hint="build the same model on every rank; only the values may differ",
            )


def difference(ours: Description, theirs: Description) -> tuple[str, str, str]:
    """What differs first, what it is here, and what there."""
    for mine, other in zip(ours, theirs, strict=False):
        if mine[0] != other[0]:
            return f"'{mine[0]}' has another name", mine[0], other[0]
        for field, a, b in zip(("shape", "type"), mine[1:3], other[1:3], strict=True):
            if a != b:
                return f"'{mine[0]}' has another {field}", f"{a}", f"{b}"
        if mine[3] != other[3]:
            return f"'{mine[0]}' is trained on one of them only", _trained(mine), _trained(other)
    longer = ours if len(ours) > len(theirs) else theirs
    first = longer[min(len(ours), len(theirs))][0]
    return f"'{first}' is on one of them only", f"{len(ours)} tensors", f"{len(theirs)} tensors"


def _trained(entry: list[Any]) -> str:
    return f"requires_grad={entry[3]}"


def share(tensors: Sequence[Tensor], source: int, group: Any, by: str) -> None:
    """Write the values of the group's rank `source` into every rank's tensors: one broadcast of their bytes.

    Tensors of no elements have none; those on different devices go one after the other.
    """
    places: dict[str, list[Tensor]] = {}
    for x in tensors:
        places.setdefault(str(x.device), []).append(x)
    for held in places.values():
        sizes = [int(x.array.nbytes) for x in held]
        flat = np.empty_like(held[0].array, dtype=np.uint8, shape=(sum(sizes),))
        ends = np.cumsum(sizes).tolist()
        parts = [flat[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        mine = dist.get_rank(group) == source
        if mine:
            for x, part in zip(held, parts, strict=True):
                part[...] = np.ascontiguousarray(x.array).reshape(-1).view(np.uint8)
        dist.broadcast(make_tensor(flat), dist.get_global_rank(group, source), group=group)
        if not mine:
            for x, part in zip(held, parts, strict=True):
                x.own_memory(by)
                x.array[...] = part.view(x.array.dtype).reshape(x.array.shape)
                x.wrote(by)
