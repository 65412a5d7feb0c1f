"""A faster method of a dataset or a sampler stands back where a subclass replaces what it is faster than."""

from __future__ import annotations

from typing import Any

from rows import rows

import ox
from ox.data import BatchSampler, DataLoader, SequentialSampler, Subset, TensorDataset, transforms
from ox.data.loading.overrides import ITEM_METHODS, has_valid_shortcut

X = ox.arange(4).float()


class Negated(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return tuple(-t for t in super().__getitem__(index))


class NegatedPart(Subset):
    def __getitem__(self, index: Any) -> Any:
        return tuple(-t for t in super().__getitem__(index))


class Both(Negated):
    def batch(self, indices: Any) -> Any:
        return [ox.zeros(len(indices))]


@rows("workers", [0, 2])
@rows(
    ("dataset", "expected"),
    [
        (TensorDataset(X), [0, 1, 2, 3]),
        (Negated(X), [0, -1, -2, -3]),
        (Subset(Negated(X), [3, 1]), [-3, -1]),
        (NegatedPart(TensorDataset(X), [3, 1]), [-3, -1]),
        (Both(X), [0, 0, 0, 0]),
    ],
)
def test_samples(dataset: Any, expected: list[int], workers: int) -> None:
    (batch,) = DataLoader(dataset, batch_size=4, num_workers=workers)
    assert batch[0].tolist() == expected


def test_orders() -> None:
    class Backwards(SequentialSampler):
        def __iter__(self) -> Any:
            return iter([3, 2, 1, 0])

    assert list(BatchSampler(Backwards(X), 3, False)) == [[3, 2, 1], [0]]
    assert has_valid_shortcut(SequentialSampler(X), "order", "__iter__") and not has_valid_shortcut(
        Backwards(X), "order", "__iter__"
    )
    assert not has_valid_shortcut([1, 2], "batch", *ITEM_METHODS)


@rows("around", [lambda t: t, lambda t: transforms.Compose([t]), lambda t: transforms.RandomApply([t], 1.0)])
@rows("name", ["forward", "__call__"])
def test_transforms_that_are_called_in_a_way_of_their_own(name: str, around: Any) -> None:
    def own(self: Any, image: Any) -> Any:
        return 7 + getattr(super(kind, self), name)(image)

    kind = type("Own", (transforms.RandomHorizontalFlip,), {name: own})
    image = ox.zeros(3, 4, 4)
    assert (around(kind(1.0))(image).array == 7).all()
    assert (around(kind(1.0)).batch(image[None]).array == 7).all()
