"""Ranks that train one model must have one: its names, sizes and types are compared, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ox import distributed as dist
from ox.errors import ArgumentError
from ox.tensors.tensor import Tensor

Description = list[list[Any]]  # name, sizes, type and whether it is trained, of each tensor


def description(named: Iterable[tuple[str, Tensor]]) -> Description:
    return [[name, list(x.static_shape), str(x.array.dtype), bool(x.requires_grad)] for name, x in named]


def check_same_on_all_ranks(named: Sequence[tuple[str, Tensor]], group: Any, owner: str) -> None:
    """Raise the same ArgumentError on every rank if one's tensors differ from those of rank 0."""
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, description(named), group=group)
    for rank, theirs in enumerate(gathered):
        if theirs != gathered[0]:
            what, expected, got = difference(gathered[0], theirs)
            raise ArgumentError(
                f"{owner}: the model of rank {rank} is not that of rank 0: {what}",
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
