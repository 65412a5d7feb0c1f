"""Datasets: what a subclass overrides is what is read."""

from __future__ import annotations

import numpy as np

import ox
from ox.data import DataLoader, Subset, TensorDataset


class Doubled(TensorDataset):
    def __getitem__(self, index: int) -> tuple[ox.Tensor, ...]:
        return tuple(2 * x for x in super().__getitem__(index))


class Shifted(Subset):
    def __getitem__(self, index: int) -> tuple[ox.Tensor, ...]:
        return tuple(1 + x for x in super().__getitem__(index))


class Both(Doubled):
    def batch(self, indices: np.ndarray) -> list[ox.Tensor]:
        return [3 * x for x in super().batch(indices)]


def test_a_subclass_with_a_getitem_of_its_own_is_asked() -> None:
    """Not the class's way to give many samples at once."""
    x = ox.arange(4)
    for dataset, expected in (
        (TensorDataset(x), [0, 1, 2, 3]),
        (Doubled(x), [0, 2, 4, 6]),
        (Subset(Doubled(x), [3, 1]), [6, 2]),
        (Shifted(TensorDataset(x), [3, 1]), [4, 2]),
        (Shifted(Doubled(x), [3, 1]), [7, 3]),
        (Both(x), [0, 3, 6, 9]),
    ):
        ((found,),) = DataLoader(dataset, batch_size=4)
        assert found.tolist() == expected, dataset
