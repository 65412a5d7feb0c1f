"""Datasets, samplers and loaders whose methods a subclass replaces, in ox and in PyTorch: the same batches."""

from __future__ import annotations

from typing import Any

import pytest

import ox.utils.data

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")


def batches(T: Any) -> dict[str, Any]:
    data, x = T.utils.data, T.arange(6).float()
    plain = data.TensorDataset(x)

    class Tens(data.TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            return tuple(10 * t for t in super().__getitem__(index))

    class Part(data.Subset):
        def __getitem__(self, index: Any) -> Any:
            return tuple(10 * t for t in super().__getitem__(index))

        def __getitems__(self, indices: Any) -> Any:
            return [self[i] for i in indices]

    class Joined(data.ConcatDataset):
        def __getitem__(self, index: Any) -> Any:
            return tuple(10 * t for t in super().__getitem__(index))

    def turned(kind: Any) -> Any:
        return type("Turned", (kind,), {"__iter__": lambda self: iter([5, 3, 1, 1, 0, 4])})

    class Reversed(data.BatchSampler):
        def __iter__(self) -> Any:
            return (batch[::-1] for batch in super().__iter__())

    class First(data.DataLoader):
        def __iter__(self) -> Any:
            return ((batch[0] + 100,) for batch in super().__iter__())

        def __len__(self) -> int:
            return 7

    loaders = {
        "dataset": data.DataLoader(Tens(x), batch_size=2),
        "dataset in a subset": data.DataLoader(data.Subset(Tens(x), [0, 2, 5]), batch_size=2),
        "dataset in a split": data.DataLoader(data.random_split(Tens(x), [6, 0])[0], batch_size=6),
        "subset": data.DataLoader(Part(plain, [0, 2, 5]), batch_size=2),
        "joined": data.DataLoader(Joined([plain, plain]), batch_size=5),
        "dataset in joined": data.DataLoader(data.ConcatDataset([Tens(x), plain]), batch_size=5),
        "sequential": data.DataLoader(plain, batch_size=4, sampler=turned(data.SequentialSampler)(x)),
        "random": data.DataLoader(plain, batch_size=4, sampler=turned(data.RandomSampler)(x)),
        "weighted": data.DataLoader(plain, sampler=turned(data.WeightedRandomSampler)([1.0] * 6, 6)),
        "subset of indices": data.DataLoader(plain, sampler=turned(data.SubsetRandomSampler)(range(6))),
        "batches": data.DataLoader(plain, batch_sampler=Reversed(data.SequentialSampler(x), 4, False)),
        "loader": First(plain, batch_size=4),
    }
    found = {name: [batch[0].tolist() for batch in loader] for name, loader in loaders.items()}
    found["dataset in a split"] = sorted(found["dataset in a split"][0])
    return {**found, "length": len(loaders["loader"])}


def test_batches() -> None:
    ours, theirs = batches(ox), batches(torch)
    assert {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]} == {}
