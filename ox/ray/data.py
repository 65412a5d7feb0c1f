"""A worker's share of a Ray Dataset, for `ox.data.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import ray.train

from ox.data import IterableDataset, get_worker_info
from ox.errors import ArgumentError

BLOCK = 256  # rows that are taken from Ray at once


class Shard(IterableDataset):
    """Rows of a Ray Dataset that no other worker gets, each a tuple of its columns. Every epoch reads them again."""

    def __init__(self, name: str, iterator: Any, columns: Sequence[str]) -> None:
        self.name, self.iterator, self.columns = name, iterator, tuple(columns)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if get_worker_info() is not None:
            raise ArgumentError(
                f"the dataset {self.name!r} of Ray is read in the process of the training function",
                expected="DataLoader(num_workers=0)", hint="Ray Data itself reads ahead, in other processes",
            )  # fmt: skip
        for block in self.iterator.iter_batches(batch_size=BLOCK, batch_format="numpy"):
            if missing := [column for column in self.columns if column not in block]:
                raise ArgumentError(
                    f"the dataset {self.name!r} has no column {missing[0]!r}", expected=", ".join(map(repr, block))
                )
            yield from zip(*(np.asarray(block[column]) for column in self.columns), strict=True)


def dataset(name: str = "train", columns: Sequence[str] = ()) -> Shard:
    """This worker's share of ``OxTrainer(datasets={name: ...})``, as a stream for `ox.data.DataLoader`:

        loader = DataLoader(ox.ray.dataset("train", ["image", "label"]), batch_size=32)

    Args:
        name: the name of the dataset.
        columns: the columns of a sample, in this order: arrays of equal shapes, or numbers.

    Raises:
        ArgumentError: no columns; there is no such dataset; while it is read, no such column, or worker processes.
    """
    if not columns or isinstance(columns, str):
        raise ArgumentError("a dataset of Ray needs the columns of a sample", got=repr(columns),
                            hint='ox.ray.dataset("train", ["image", "label"])')  # fmt: skip
    try:
        shard = ray.train.get_dataset_shard(name)
    except KeyError as error:
        raise ArgumentError(f"there is no dataset {name!r}", hint="OxTrainer(datasets={...})") from error
    return Shard(name, shard, columns)
