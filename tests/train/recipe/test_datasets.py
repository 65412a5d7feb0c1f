"""The part of the data that each rank trains on."""

from __future__ import annotations

from collections.abc import Iterator

from ox.data import IterableDataset
from ox.train.recipe.datasets import share


class Numbers(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


def test_each_sample_is_of_one_rank() -> None:
    for part in (list(range(7)), Numbers()):
        assert [list(share(part, rank, 3)) for rank in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
        assert share(part, 0, 1) is part
