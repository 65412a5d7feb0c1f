"""The loader, its workers and the distributed sampler beside PyTorch's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ox
import ox.utils.data
import ox.utils.data.distributed

REASON = "PyTorch is the other side of these comparisons"
pytest.importorskip("torch", reason=REASON)
SIDES: list[Any] = [ox.utils.data, pytest.importorskip("torch.utils.data", reason=REASON)]
pytest.importorskip("torch.utils.data.distributed", reason=REASON)


class Rows:
    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 3), index, np.float32), {"index": index, "name": str(index)}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def both(make: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [plain(make(side)) for side in SIDES]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
        {"batch_sampler": [[1, 2], [0], [5, 6, 7]]},
        {"batch_size": 2, "sampler": [4, 3, 2]},
        {"batch_size": 2, "collate_fn": len},
    ],
)
def test_batches(options: Any, workers: int) -> None:
    ours, theirs = both(lambda side: list(side.DataLoader(Rows(), num_workers=workers, **options)))
    assert ours == theirs
    ours, theirs = both(lambda side: len(side.DataLoader(Rows(), num_workers=workers, **options)))
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_streams_are_shared_out_in_the_same_order(workers: int) -> None:
    def batches(side: Any) -> Any:
        class Numbers(side.IterableDataset):  # type: ignore[misc,name-defined]
            def __iter__(self) -> Iterator[int]:
                info = side.get_worker_info()
                return iter(range(17) if info is None else range(info.id, 17 - 5 * info.id, info.num_workers))

        return list(side.DataLoader(Numbers(), batch_size=2, num_workers=workers))

    ours, theirs = both(batches)
    assert ours == theirs


def test_worker_info() -> None:
    def infos(side: Any) -> Any:
        class Info(side.Dataset):  # type: ignore[misc,name-defined]
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> Any:
                info = side.get_worker_info()
                return info.id, info.num_workers, info.dataset is self, isinstance(info.seed, int)

        return list(side.DataLoader(Info(), batch_size=None, num_workers=2))

    ours, theirs = both(infos)
    assert ours == theirs


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "nothing"},
        {"batch_size": None, "drop_last": True},
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"sampler": [1], "shuffle": True},
        {"batch_size": 0},
    ],
)
def test_refused_options(options: Any) -> None:
    for side in SIDES:
        with pytest.raises(ValueError):
            side.DataLoader(Rows(), **options)


@pytest.mark.parametrize("name", ["batch_size", "sampler", "dataset", "drop_last", "batch_sampler"])
def test_attributes_that_stay(name: str) -> None:
    for side in SIDES:
        with pytest.raises(ValueError, match=name):
            setattr(side.DataLoader(Rows()), name, None)


def test_faults() -> None:
    class Bad(Rows):
        def __getitem__(self, index: int) -> Any:
            if index == 3:
                raise KeyError("missing")
            return index

    for side in SIDES:
        batches = iter(side.DataLoader(Bad(), batch_size=2, num_workers=1))
        assert next(batches).tolist() == [0, 1]
        with pytest.raises(KeyError):
            next(batches)
        assert next(batches).tolist() == [4, 5]


@pytest.mark.parametrize("drop_last", [True, False])
def test_distributed_sampler(drop_last: bool) -> None:
    for count in (1, 3, 7, 10, 12):
        for processes in (1, 2, 3, 5, 16):
            for rank in range(processes):
                ours, theirs = (
                    side.distributed.DistributedSampler(
                        Rows(count), num_replicas=processes, rank=rank, shuffle=False, drop_last=drop_last
                    )
                    for side in SIDES
                )
                assert (len(ours), ours.num_samples, ours.total_size) == (
                    len(theirs),
                    theirs.num_samples,
                    theirs.total_size,
                )
                assert list(ours) == list(theirs), (count, processes, rank)
    for side in SIDES:
        with pytest.raises(ValueError):
            side.distributed.DistributedSampler(Rows(), num_replicas=2, rank=2)


def test_what_was_given_is_kept() -> None:
    """Scripts add the indices of two parts, and look at a loader's batch_size."""

    def look(side: Any) -> Any:
        parts = side.random_split(range(10), [7, 3])
        subset = side.Subset("abcdef", [4, 1])
        weighted = side.WeightedRandomSampler([1, 2, 3], 2)
        return [
            sorted(parts[0].indices + parts[1].indices),
            subset.indices + subset.indices,
            type(subset.indices).__name__,
            list(side.Subset({"x": 1, "y": 2}, ["y", "x"])),
            side.Subset(side.Subset("abcdef", range(1, 5)), (3, 0))[0],
            side.SubsetRandomSampler([5, 3]).indices + subset.indices,
            (weighted.weights * 2).tolist(),
            str(weighted.weights.dtype).split(".")[-1],
            side.DataLoader("abc", batch_sampler=[[0], [1, 2]]).batch_size,
        ]

    ours, theirs = both(look)
    assert ours == theirs


def test_indices_may_be_replaced() -> None:
    def look(side: Any) -> Any:
        subset = side.Subset(side.TensorDataset(module(side).arange(10)), [1, 2, 3, 4])
        subset.indices = subset.indices[1:3]
        return [batch[0].tolist() for batch in side.DataLoader(subset, batch_size=4)], subset[[0, 1]][0].tolist()

    ours, theirs = both(look)
    assert ours == theirs == [[[2, 3]], [2, 3]]


def module(side: Any) -> Any:
    return sys.modules[side.__name__.split(".")[0]]


def test_strings_keep_the_type_that_they_come_in() -> None:
    samples = [(1, "a", {"k": "b"}), (2, "c", {"k": "d"})]
    kinds = [(type(strings).__name__, type(named["k"]).__name__) for _, strings, named in
             (side.default_collate(samples) for side in SIDES)]  # fmt: skip
    assert kinds == [("tuple", "list")] * 2


def test_workers_that_stay_are_seeded_once() -> None:
    def look(side: Any) -> Any:
        library = module(side)
        generator = library.Generator().manual_seed(1)
        options: Any = {"batch_size": 4, "shuffle": True, "num_workers": 1, "persistent_workers": True}
        loader = side.DataLoader(range(8), generator=generator, **options)
        return [[batch.tolist() for batch in loader] for _ in range(3)]

    with ox.random.torch_compatible(True):
        ours, theirs = both(look)
    assert ours == theirs
