"""DistributedSampler: the shares of all processes, put together, are the dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox.data import DataLoader
from ox.data.distributed import DistributedSampler
from ox.errors import ArgumentError, LoadError


def shares(count: int, processes: int, **options: Any) -> list[list[int]]:
    return [list(DistributedSampler(range(count), processes, rank, **options)) for rank in range(processes)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_shares_cover_the_dataset(shuffle: bool) -> None:
    for count, processes in ((12, 3), (10, 4), (3, 5), (1, 4)):
        parts = shares(count, processes, shuffle=shuffle)
        assert {len(part) for part in parts} == {-(-count // processes)}
        assert set().union(*parts) == set(range(count))
        few = shares(count, processes, shuffle=shuffle, drop_last=True)
        drawn = [i for part in few for i in part]
        assert len(drawn) == len(set(drawn)) == count // processes * processes
    assert shares(5, 2, shuffle=False) == [[0, 2, 4], [1, 3, 0]]


def test_epochs_and_seeds() -> None:
    sampler = DistributedSampler(range(20), 2, 0, seed=1)
    first = list(sampler)
    assert list(sampler) == first, "the same until set_epoch"
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first and sorted(first) != list(range(10))
    other = DistributedSampler(range(20), 2, 0, seed=1)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == second and list(DistributedSampler(range(20), 2, 0, seed=2)) == second
    assert not set(second) & set(list_of(sampler, 1)), "every process draws the same permutation"


def list_of(sampler: DistributedSampler, rank: int) -> list[int]:
    other = DistributedSampler(sampler.dataset, sampler.num_replicas, rank, seed=sampler.seed)
    other.set_epoch(sampler.epoch)
    return list(other)


def test_in_a_loader() -> None:
    sampler = DistributedSampler(range(10), 2, 1, shuffle=False)
    loader = DataLoader(range(10), 2, sampler=sampler)
    assert len(loader) == 3 and [b.tolist() for b in loader] == [[1, 3], [5, 7], [9]]
    assert [b.tolist() for b in DataLoader(range(10), 2, sampler=sampler, num_workers=2)] == [[1, 3], [5, 7], [9]]


def test_ranks_draw_different_numbers_in_their_workers() -> None:
    class Noise:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> float:
            return float(np.random.rand())

    drawn = set()
    for rank in (0, 1):
        sampler = DistributedSampler(Noise(), 2, rank)
        loader = DataLoader(Noise(), 2, sampler=sampler, num_workers=1, generator=ox.Generator(0))
        drawn |= {x for batch in loader for x in batch.tolist()}
    assert len(drawn) == 8


def test_bad_input() -> None:
    for rank in (-1, 2):
        with pytest.raises(ArgumentError, match=f"no rank {rank} among 2"):
            DistributedSampler(range(3), 2, rank)
    with pytest.raises(LoadError, match="does not fit"):
        DistributedSampler(range(3), 2, 0).load_state_dict({"epoch": 1, "num_replicas": 3})
