"""Datasets, samplers, the loader and its position."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)
from ox.errors import ArgumentError, DTypeError, LoadError, ShapeError


class Squares(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __getitem__(self, index: int) -> Any:
        return np.float32(index), {"square": index * index}

    def __len__(self) -> int:
        return self.count


def numbers(count: int = 10) -> TensorDataset:
    return TensorDataset(ox.arange(count), ox.arange(count) * 10)


def order(loader: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


# -- datasets ------------------------------------------------------------------------------------------------------


def test_tensor_dataset() -> None:
    data = TensorDataset(ox.arange(6).reshape(3, 2), np.array([7, 8, 9]))
    x, y = data[1]
    assert len(data) == 3 and x.tolist() == [2, 3] and y.item() == 8
    x, y = data.batch(np.array([2, 0]))
    assert x.tolist() == [[4, 5], [0, 1]] and y.tolist() == [9, 7]
    with pytest.raises(ShapeError, match="one length"):
        TensorDataset(ox.zeros(3), ox.zeros(4))


def test_subset_and_split() -> None:
    part = Subset(numbers(), [7, 2, 5])
    assert len(part) == 3 and part[1][0].item() == 2 and part.batch(np.array([0, 2]))[1].tolist() == [70, 50]
    plain = Subset(Squares(10), [3])
    assert plain[0][1]["square"] == 9 and not hasattr(plain, "batch")
    parts = random_split(numbers(), [0.75, 0.25], ox.Generator(1))
    assert [len(p) for p in parts] == [8, 2]
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    again = random_split(numbers(), [8, 2], ox.Generator(1))
    assert again[0].indices == parts[0].indices
    with pytest.raises(ArgumentError, match="add up"):
        random_split(numbers(), [3, 3])


def test_a_subset_of_a_subset() -> None:
    part = Subset(Subset(numbers(), [1, 3, 5, 7]), [3, 0])
    assert order(DataLoader(part, batch_size=2)) == [[7, 1]]


# -- samplers ------------------------------------------------------------------------------------------------------


def test_samplers() -> None:
    data = numbers()
    assert list(SequentialSampler(data)) == list(range(10))
    drawn = list(RandomSampler(data, generator=ox.Generator(3)))
    assert sorted(drawn) == list(range(10)) and drawn != sorted(drawn)
    assert drawn == list(RandomSampler(data, generator=ox.Generator(3)))
    with_repeats = list(RandomSampler(data, replacement=True, num_samples=200, generator=ox.Generator(3)))
    assert len(with_repeats) == 200 and set(with_repeats) == set(range(10))
    assert len(list(RandomSampler(data, num_samples=25))) == 25
    assert sorted(SubsetRandomSampler([4, 6, 8])) == [4, 6, 8]
    assert [list(b) for b in BatchSampler(SequentialSampler(data), 4, False)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(BatchSampler([5, 6, 7], 2, True)) == [[5, 6]]
    assert list(BatchSampler([5, 6, 7], 2, False)) == [[5, 6], [7]]
    for size in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="positive int"):
            BatchSampler([1], size, False)  # type: ignore[arg-type]


# -- collation -----------------------------------------------------------------------------------------------------


def test_collation() -> None:
    Pair = namedtuple("Pair", "a b")
    batch = default_collate(
        [{"x": Pair(1, 2.0), "s": "u", "t": ox.zeros(2)}, {"x": Pair(3, 4.0), "s": "v", "t": ox.ones(2)}]
    )
    assert batch["x"].a.tolist() == [1, 3] and batch["x"].a.dtype == ox.int64
    assert batch["x"].b.dtype == ox.float64 and batch["s"] == ["u", "v"] and batch["t"].shape == (2, 2)
    assert default_collate([(True, np.float32(1)), (False, np.float32(2))])[1].dtype == ox.float32
    assert default_collate([True, False]).dtype == np.bool_
    with pytest.raises(ShapeError, match="different shapes"):
        default_collate([ox.zeros(2), ox.zeros(3)])
    with pytest.raises(ShapeError, match="different lengths"):
        default_collate([(1, 2), (1,)])
    for batch in ([None], [ox.ones(2), None], [(1, 2), None], [{"a": 1}, {"a": None}], [None, "a"]):
        with pytest.raises(DTypeError, match="None cannot be collated into a batch"):
            default_collate(batch)


@pytest.mark.parametrize(
    "array",
    [np.array(["a"]), np.array([b"a"]), np.array([None]), np.array(["2020-01-01"], "M8[D]"), np.timedelta64(1, "s")],
)
def test_arrays_that_are_no_numbers_have_no_batch(array: Any) -> None:
    with pytest.raises(DTypeError, match="text, times or objects"):
        default_collate([array, array])
    assert default_collate([np.str_("a"), np.str_("b")]) == ["a", "b"]


@pytest.mark.parametrize("dtype", [">f4", ">i8"])
def test_a_batch_has_the_byte_order_of_this_machine(dtype: str) -> None:
    for samples in (np.arange(6).reshape(3, 2).astype(dtype), np.arange(3).astype(dtype)):
        batch = default_collate(list(samples))
        assert batch.array.dtype.isnative and batch.tolist() == samples.tolist()


# -- the loader ----------------------------------------------------------------------------------------------------


def test_batches() -> None:
    loader = DataLoader(numbers(), batch_size=4)
    assert order(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    assert len(DataLoader(numbers(), batch_size=4, drop_last=True)) == 2
    x, y = next(iter(loader))
    assert y.tolist() == [0, 10, 20, 30] and x.dtype == ox.int64
    slow = DataLoader(Squares(5), batch_size=2)
    assert [b[1]["square"].tolist() for b in slow] == [[0, 1], [4, 9], [16]]
    custom = DataLoader(Squares(5), batch_size=2, collate_fn=len)
    assert list(custom) == [2, 2, 1]
    assert [s[0] for s in DataLoader(Squares(3), batch_size=None)] == [0, 1, 2]
    assert order(DataLoader(numbers(), batch_sampler=[[1, 2], [9]])) == [[1, 2], [9]]
    assert order(DataLoader(numbers(), sampler=[3, 1, 2], batch_size=2)) == [[3, 1], [2]]


def test_shuffling() -> None:
    loader = DataLoader(numbers(), batch_size=5, shuffle=True, generator=ox.Generator(0))
    first, second = order(loader), order(loader)
    assert first != second and np.sort(first, None).tolist() == list(range(10)) == np.sort(second, None).tolist()
    again = DataLoader(numbers(), batch_size=5, shuffle=True, generator=ox.Generator(0))
    assert order(again) == first
    ox.manual_seed(5)
    drawn = order(DataLoader(numbers(), shuffle=True))
    ox.manual_seed(5)
    assert order(DataLoader(numbers(), shuffle=True)) == drawn


@rows("taken", [0, 1, 3, 5])
@rows("data", [numbers(), Squares(10)], ids=["whole batches", "samples"])
def test_resuming_in_mid_epoch(taken: int, data: Any) -> None:
    """What is left of this epoch, and the next, come as if nothing had happened."""
    ox.manual_seed(7)
    loader = DataLoader(data, batch_size=2, shuffle=True)
    order(loader)
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state, random_state = loader.state_dict(), ox.random.get_state()
    expected = [b[0].tolist() for b in batches], order(loader)
    ox.manual_seed(99)
    other = DataLoader(data, batch_size=2, shuffle=True)
    other.load_state_dict(state)
    ox.random.set_state(random_state)
    if taken:
        assert other.state_dict() == state
    assert (order(other), order(other)) == expected if taken else True
    assert other.state_dict()["position"] == 0


def test_resuming_twice_and_in_order() -> None:
    loader = DataLoader(numbers(), batch_size=3)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    other = DataLoader(numbers(), batch_size=3)
    other.load_state_dict(state)
    again = iter(other)
    assert next(again)[0].tolist() == [3, 4, 5]
    state = other.state_dict()
    other = DataLoader(numbers(), batch_size=3)
    other.load_state_dict(state)
    assert order(other) == [[6, 7, 8], [9]] and len(order(other)) == 4


@pytest.mark.parametrize("state", [{}, {"position": 9, "epoch_state": None}, {"position": "1"}])
def test_a_state_of_another_loader(state: Any) -> None:
    with pytest.raises(LoadError, match="does not fit"):
        DataLoader(numbers(), batch_size=3).load_state_dict(state)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"sampler": [1], "shuffle": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
    ],
)
def test_options_that_exclude_each_other(options: Any) -> None:
    with pytest.raises(ArgumentError):
        DataLoader(numbers(), **options)


class Count(IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        return (np.float32(i) for i in range(self.count))


def test_streams_come_in_batches() -> None:
    assert [b.tolist() for b in DataLoader(Count(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(Count(5), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert [float(b) for b in DataLoader(ChainDataset([Count(2), Count(1)]), batch_size=None)] == [0, 1, 0]
    with pytest.raises(ArgumentError, match="no indices"):
        DataLoader(Count(5), shuffle=True)
    with pytest.raises(TypeError, match="does not know how many"):
        len(DataLoader(Count(5), batch_size=2))


def test_datasets_behind_and_beside_each_other() -> None:
    joined = ConcatDataset([numbers(3), numbers(4)])
    assert len(joined) == 7
    assert [int(joined[i][0].item()) for i in range(7)] == [0, 1, 2, 0, 1, 2, 3]
    assert int(joined[-1][1].item()) == 30
    with pytest.raises(IndexError):
        joined[7]
    with pytest.raises(ArgumentError):
        ConcatDataset([])
    beside = StackDataset(a=numbers(3), b=Squares(3))
    assert len(beside) == 3 and beside[2]["b"][1] == {"square": 4}
    assert StackDataset(numbers(3), Squares(3))[1][0][0].item() == 1
    with pytest.raises(ShapeError, match="one length"):
        StackDataset(numbers(3), numbers(4))


def test_weights_decide_how_often_a_sample_comes() -> None:
    ox.manual_seed(0)
    order = WeightedRandomSampler([0.0, 1.0, 3.0], 20_000).order()
    share = np.bincount(order, minlength=3) / len(order)
    assert share[0] == 0 and abs(share[2] - 0.75) < 0.02
    once = list(WeightedRandomSampler([1.0, 0.0, 3.0, 2.0], 3, replacement=False))
    assert sorted(once) == [0, 2, 3]
    first = [next(iter(WeightedRandomSampler([1.0, 3.0], 1, replacement=False))) for _ in range(4000)]
    assert abs(np.mean(first) - 0.75) < 0.03
    with pytest.raises(ArgumentError, match="too few"):
        WeightedRandomSampler([1.0, 0.0], 2, replacement=False)
    with pytest.raises(ArgumentError, match="at least 0"):
        WeightedRandomSampler([1.0, -1.0], 2)


def test_arrays_become_tensors_and_all_else_stays() -> None:
    made = default_convert({"x": np.ones(2), "y": [np.float32(1), "text"], "n": 3})
    assert isinstance(made["x"], ox.Tensor) and made["y"][1] == "text" and made["n"] == 3
    assert isinstance(made["y"][0], ox.Tensor)


def test_datasets_add_up() -> None:
    class Count(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(2))

    both = TensorDataset(np.arange(3)) + TensorDataset(np.arange(2))
    assert isinstance(both, ConcatDataset) and len(both) == 5
    assert list(Count() + Count()) == [0, 1, 0, 1]
