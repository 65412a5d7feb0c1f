"""Datasets: anything with `__len__` and `__getitem__`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox import random
from ox.errors import ArgumentError, ShapeError
from ox.ops.explain import place
from ox.ops.operator import as_input, make_tensor
from ox.tensor import Tensor


class Dataset:
    """The base: `__len__` says how many samples, `__getitem__(i)` gives one. `torch.utils.data.Dataset`.

    A dataset that can fetch many samples at once may define ``batch(indices: int64 array)``, which the loader then
    uses instead of collating one by one; see `TensorDataset`.
    """

    def __getitem__(self, index: int) -> Any:
        raise ArgumentError(f"{type(self).__name__} has no __getitem__", hint="def __getitem__(self, index): ...")

    def __len__(self) -> int:
        raise ArgumentError(f"{type(self).__name__} has no __len__", hint="def __len__(self): ...")


class TensorDataset(Dataset):
    """Samples along the first dimension of one or more tensors or arrays. `torch.utils.data.TensorDataset`.

    Raises:
        ShapeError: tensors of different lengths.
    """

    def __init__(self, *tensors: Any) -> None:
        self.tensors: tuple[Tensor, ...] = tuple(as_input(t) for t in tensors)
        lengths = [t.data.shape[0] if t.data.ndim else 0 for t in self.tensors]
        if not lengths or len(set(lengths)) > 1:
            raise ShapeError("TensorDataset needs tensors of one length", where=place(), got=f"lengths {lengths}")

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(make_tensor(t.data[index]) for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].data.shape[0])

    def batch(self, indices: np.ndarray[Any, Any]) -> list[Tensor]:
        """The samples of many indices, [n, ...] each."""
        return [make_tensor(t.data[indices]) for t in self.tensors]


class Subset(Dataset):
    """Some samples of another dataset, by index. `torch.utils.data.Subset`."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = np.asarray(indices, np.int64)
        if hasattr(dataset, "batch"):
            self.batch = lambda chosen: dataset.batch(self.indices[chosen])

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: random.Generator | None = None) -> list[Subset]:
    """Parts without overlap, at random. `torch.utils.data.random_split`.

    Args:
        lengths: counts that add up to the dataset's, or fractions that add up to 1 (what rounding leaves goes to the
            first parts, one each).
    """
    total = len(dataset)
    counts: list[Any] = list(lengths)
    if abs(sum(lengths) - 1) < 1e-9 and all(0 <= part <= 1 for part in lengths):
        counts = [int(total * part) for part in lengths]
        for i in range(total - sum(counts)):
            counts[i % len(counts)] += 1
    if sum(counts) != total or any(count < 0 for count in counts):
        raise ArgumentError(
            "random_split needs lengths that add up to the dataset's, or fractions that add up to 1",
            where=place(),
            expected=str(total),
            got=f"{list(lengths)}, together {sum(counts)}",
        )
    order = random.randperm(total, generator=generator).data
    ends = np.cumsum([int(count) for count in counts])
    return [Subset(dataset, order[end - int(count) : end]) for end, count in zip(ends, counts, strict=True)]
