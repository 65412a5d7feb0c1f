"""Datasets: anything with `__len__` and `__getitem__`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from types import GenericAlias
from typing import Any

import numpy as np

from ox import random
from ox.core.operator import as_input, make_tensor
from ox.data.checksum import checksum
from ox.data.loading.overrides import ITEM_METHODS, has_valid_shortcut
from ox.errors import ArgumentError, ShapeError
from ox.tensors.tensor import Tensor


class Dataset:
    """The base class: `__len__` is the number of samples, `__getitem__(i)` returns one. `torch.utils.data.Dataset`.

    A dataset that can fetch many samples at once may define ``batch(indices: int64 array)``, which the loader then
    uses instead of collating one by one; see `TensorDataset`. One that knows a checksum of its content may define
    ``fingerprint()``, a text; a training run then detects changed data without reading samples.
    """

    @classmethod
    def __class_getitem__(cls, item: Any, /) -> GenericAlias:
        """``Dataset[Tensor]``, for annotations and bases."""
        return GenericAlias(cls, item)

    def __getitem__(self, index: int) -> Any:
        raise ArgumentError(f"{type(self).__name__} has no __getitem__", hint="def __getitem__(self, index): ...")

    def __len__(self) -> int:
        raise ArgumentError(f"{type(self).__name__} has no __len__", hint="def __len__(self): ...")

    def __add__(self, other: Any) -> ConcatDataset:
        """The concatenation of two datasets."""
        return ConcatDataset([self, other])


class TensorDataset(Dataset):
    """Samples along the first dimension of one or more tensors or arrays. `torch.utils.data.TensorDataset`.

    Raises:
        ShapeError: tensors of different lengths.
    """

    def __init__(self, *tensors: Any) -> None:
        self.tensors: tuple[Tensor, ...] = tuple(as_input(t) for t in tensors)
        lengths = [t.static_shape[0] if t.array.ndim else 0 for t in self.tensors]
        if not lengths or len(set(lengths)) > 1:
            raise ShapeError("TensorDataset needs tensors of one length", got=f"lengths {lengths}")

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(make_tensor(t.array[index]) for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].static_shape[0])

    def batch(self, indices: np.ndarray[Any, Any]) -> list[Tensor]:
        """The samples of several indices, each tensor [n, ...]."""
        return [make_tensor(t.array[indices]) for t in self.tensors]

    def fingerprint(self) -> str:
        """A checksum of the tensors; see `Dataset`."""
        return checksum(self.tensors)


class Subset(Dataset):
    """Some samples of another dataset, by index. `torch.utils.data.Subset`. `indices` keep their type."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices
        own = all(getattr(type(self), name, None) is getattr(Subset, name, None) for name in ITEM_METHODS)
        if own and has_valid_shortcut(dataset, "batch", *ITEM_METHODS):
            self.batch = lambda chosen: dataset.batch(self._dataset_indices(chosen))

    def _dataset_indices(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if isinstance(self.indices, np.ndarray):
            return self.indices[numbers]
        return np.array([int(self.indices[i]) for i in numbers], np.int64)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        chosen: Any = self.indices[index]
        return self.dataset[chosen.item() if hasattr(chosen, "item") else chosen]

    def __len__(self) -> int:
        return len(self.indices)


def root_indices(dataset: Any, indices: Sequence[int]) -> list[int]:
    """Converts indices into a (nested) `Subset` to indices into its original dataset."""
    while isinstance(dataset, Subset):
        indices, dataset = [int(dataset.indices[i]) for i in indices], dataset.dataset
    return [int(i) for i in indices]


class IterableDataset(Dataset):
    """Samples that come one after the other, without an index. `torch.utils.data.IterableDataset`."""

    def __iter__(self) -> Iterator[Any]:
        raise ArgumentError(f"{type(self).__name__} has no __iter__", hint="def __iter__(self): yield ...")

    def __add__(self, other: Any) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])

    def __len__(self) -> int:
        raise NoCountError(
            f"{type(self).__name__} does not know how many samples it has", hint="def __len__(self): ..."
        )


class NoCountError(ArgumentError, TypeError):
    """The error of `len(stream)`; also a TypeError, which `list()` requires."""


class ChainDataset(IterableDataset):
    """Several streams, one after the other. `torch.utils.data.ChainDataset`."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


class ConcatDataset(Dataset):
    """The concatenation of several datasets. `torch.utils.data.ConcatDataset`.

    Raises:
        ArgumentError: no datasets. IndexError: an index out of range.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset needs at least one dataset")
        self.cumulative_sizes = np.cumsum([len(dataset) for dataset in self.datasets]).tolist()

    def __getitem__(self, index: int) -> Any:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"index {index} of {len(self)} samples")
        which = bisect_right(self.cumulative_sizes, at)
        return self.datasets[which][at - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return int(self.cumulative_sizes[-1])


class StackDataset(Dataset):
    """Samples of several datasets of one length side by side: tuples, or dicts when given by name.
    `torch.utils.data.StackDataset`.

    Raises:
        ShapeError: no datasets, or datasets of different lengths.
    """

    def __init__(self, *datasets: Any, **named: Any) -> None:
        if bool(datasets) == bool(named):
            raise ArgumentError("StackDataset takes datasets by position or by name")
        self.datasets: Any = named or datasets
        parts = list(named.values()) or list(datasets)
        if len({len(part) for part in parts}) != 1:
            raise ShapeError("StackDataset needs datasets of one length", got=f"lengths {[len(p) for p in parts]}")

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __len__(self) -> int:
        first = next(iter(self.datasets.values())) if isinstance(self.datasets, dict) else self.datasets[0]
        return len(first)


def random_split(dataset: Any, lengths: Sequence[float], generator: random.Generator | None = None) -> list[Subset]:
    """Splits a dataset at random into parts without overlap. `torch.utils.data.random_split`.

    Args:
        lengths: counts that add up to the dataset's, or fractions that add up to 1 (samples that remain after
            rounding go to the first parts, one each).
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
            expected=str(total),
            got=f"{list(lengths)}, together {sum(counts)}",
        )
    order = random.permutation(total, generator, kind="split").tolist()
    ends = np.cumsum([int(count) for count in counts])
    return [Subset(dataset, order[end - int(count) : end]) for end, count in zip(ends, counts, strict=True)]
