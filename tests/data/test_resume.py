"""Coming back to the middle of an epoch: what is left comes as if nothing had happened, at every position."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from ox.data.distributed import DistributedSampler
from ox.errors import LoadError


class Noisy(Dataset):
    """Samples that are drawn upon, as augmented images are."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        return index, np.random.rand(), random.random(), ox.rand(1).item()


def plain(batches: Any) -> list[Any]:
    return [[part.tolist() for part in batch] if isinstance(batch, list) else batch.tolist() for batch in batches]


def stopped_at(loader: Any, position: int) -> tuple[dict[str, Any], dict[str, int], list[Any]]:
    """The state after so many batches of the second epoch, as it comes back from a file, and what was to come."""
    plain(loader)
    batches = iter(loader)
    for _ in range(position):
        next(batches)
    state, generator = loader.state_dict(), ox.random.get_state()
    return json.loads(json.dumps(state)), generator, [plain(batches), plain(loader)]


def resumed(loader: Any, state: Any, generator: Any) -> list[Any]:
    ox.manual_seed(1234)
    np.random.seed(1234)
    loader.load_state_dict(state)
    ox.random.set_state(generator)
    return [plain(loader), plain(loader)]


@rows("position", range(5))
@rows(("workers", "persistent"), [(1, False), (2, True)])
def test_augmented_samples_at_every_position(workers: int, position: int, persistent: bool) -> None:
    def make(count: int) -> Any:
        return DataLoader(Noisy(), 3, True, num_workers=count, persistent_workers=persistent)

    ox.manual_seed(3)
    state, generator, expected = stopped_at(make(workers), position)
    assert state["position"] == position, "batches that workers made ahead do not count"
    assert resumed(make(workers), state, generator) == expected
    assert resumed(make(3 - workers), state, generator) == expected, "by another number of workers, too"


@rows("position", range(5))
@rows("workers", [0, 2])
def test_plain_samples_at_every_position(workers: int, position: int) -> None:
    def make(count: int) -> Any:
        return DataLoader(range(11), 3, True, num_workers=count)

    ox.manual_seed(3)
    state, generator, expected = stopped_at(make(workers), position)
    for count in (0, 2):
        assert resumed(make(count), state, generator) == expected


def test_a_loader_whose_generator_is_its_own() -> None:
    def make() -> Any:
        return DataLoader(Noisy(), 2, True, num_workers=2, generator=ox.Generator(8))

    loader = make()
    state, _, expected = stopped_at(loader, 2)
    other = make()
    plain(other)
    plain(other)  # its generator stands where the first one's stood, as whoever keeps it sees to
    other.load_state_dict(state)
    assert plain(other) == expected[0]


def test_states_of_states() -> None:
    loader = DataLoader(Noisy(), 2, True, num_workers=2, generator=ox.Generator(8))
    batches = iter(loader)
    next(batches)
    first = loader.state_dict()
    expected = plain(batches)
    other = DataLoader(Noisy(), 2, True, num_workers=1, generator=ox.Generator(8))
    other.load_state_dict(first)
    assert other.state_dict() == first, "before the first batch"
    batches = iter(other)
    assert plain([next(batches)]) == expected[:1]
    second = other.state_dict()
    third = DataLoader(Noisy(), 2, True, num_workers=2, generator=ox.Generator(8))
    third.load_state_dict(second)
    assert plain(third) == expected[1:]
    assert third.state_dict()["position"] == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_that_failed_is_made_again(workers: int, in_order: bool) -> None:
    class Fails(Dataset):
        broken = True

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            if index == 3 and self.broken:
                raise ValueError("not now")
            return index

    loader = DataLoader(Fails(), 2, num_workers=workers, in_order=in_order)
    batches, got = iter(loader), []
    while 3 not in got:
        try:
            got += next(batches).tolist()
        except ValueError:
            got.append(3)
    got.remove(3)
    got += next(batches).tolist()  # the loop goes on without it
    state = json.loads(json.dumps(loader.state_dict()))
    mended = DataLoader(Fails(), 2, num_workers=workers, in_order=in_order)
    mended.dataset.broken = False
    mended.load_state_dict(state)
    assert sorted([*got, *(i for batch in plain(mended) for i in batch)]) == list(range(8))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_of_a_stream_that_failed_does_not_count(workers: int) -> None:
    class Fails(IterableDataset):
        def __iter__(self) -> Any:
            return FailsOnce()

    class FailsOnce:
        def __init__(self) -> None:
            self.at = -1

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.at += 1
            if self.at == 1:
                raise ValueError("not now")
            return self.at

    loader = DataLoader(Fails(), 2, num_workers=workers)
    with pytest.raises(ValueError, match="not now"):
        next(batches := iter(loader))
    assert loader.state_dict()["position"] == 0
    next(batches)
    assert loader.state_dict()["position"] == 1


def test_batches_out_of_order() -> None:
    """Those given are not given again, and none is left out."""
    for position in range(6):
        loader = DataLoader(range(12), 2, True, num_workers=2, in_order=False, generator=ox.Generator(1))
        batches = iter(loader)
        got = [next(batches) for _ in range(position)]
        state = json.loads(json.dumps(loader.state_dict()))
        other = DataLoader(range(12), 2, True, num_workers=2, in_order=False, generator=ox.Generator(1))
        other.load_state_dict(state)
        assert sorted(i for batch in plain([*got, *other]) for i in batch) == list(range(12))


def test_weighted_and_distributed_samplers() -> None:
    weights = np.arange(1, 13)
    loaders = [
        lambda: DataLoader(range(12), 2, sampler=WeightedRandomSampler(weights, 12), num_workers=1),
        lambda: DataLoader(range(12), batch_sampler=BatchSampler(WeightedRandomSampler(weights, 12), 2, False)),
    ]
    for make in loaders:
        ox.manual_seed(2)
        state, generator, expected = stopped_at(make(), 2)
        assert resumed(make(), state, generator) == expected
    sampler = DistributedSampler(range(12), 2, 1, seed=4)
    loader = DataLoader(range(12), 2, sampler=sampler, num_workers=1)
    sampler.set_epoch(5)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    expected = plain(batches)
    loader = DataLoader(range(12), 2, sampler=DistributedSampler(range(12), 2, 1, seed=4))
    loader.load_state_dict(state)
    assert plain(loader) == expected
    other = DataLoader(range(12), 2, sampler=DistributedSampler(range(12), 3, 1))
    with pytest.raises(LoadError, match="sampler's state does not fit"):
        other.load_state_dict(state)


# -- streams -----------------------------------------------------------------------------------------------------------


class Shares(IterableDataset):
    """A stream shared out among workers, of unequal lengths, and drawn upon."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        number, count = (info.id, info.num_workers) if info else (0, 1)
        for index in range(number, 13, count) if number != 1 else range(1, 6, count):
            yield index, np.random.rand() if info else 0.5


class Keeps(IterableDataset):
    """A stream that keeps its own place."""

    def __init__(self) -> None:
        self.next, self.taken = 0, 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        number, count = (info.id, info.num_workers) if info else (0, 1)
        while self.next * count + number < 13:
            self.next += 1
            self.taken += 1
            yield (self.next - 1) * count + number
        self.next = 0

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = state["next"]


class KeepsInIterator(IterableDataset):
    """The iterator keeps the place, as iterators of others do."""

    class Walk:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            if self.at == 9:
                raise StopIteration
            self.at += 1
            return self.at

        def state_dict(self) -> Any:
            return {"at": self.at}

        def load_state_dict(self, state: Any) -> None:
            self.at = state["at"]

    def __iter__(self) -> Any:
        return self.Walk()


@pytest.mark.parametrize("workers", [0, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 3))])
@pytest.mark.parametrize("kind", [Shares, Keeps, KeepsInIterator])
def test_streams_at_every_position(workers: int, kind: Any) -> None:
    def make() -> Any:
        return DataLoader(kind(), 2, num_workers=workers, generator=ox.Generator(1))

    whole = len(plain(make()))
    for position in range(whole + 1):
        state, generator, expected = stopped_at(make(), position)
        assert state["position"] == position
        got = resumed(make(), state, generator)
        assert got == expected, position


def test_a_stream_that_keeps_its_place_is_not_read_again() -> None:
    loader = DataLoader(Keeps(), 2)
    batches = iter(loader)
    next(batches)
    next(batches)
    state = loader.state_dict()
    other = DataLoader(Keeps(), 2)
    other.load_state_dict(state)
    rest = [i for batch in other for i in batch.tolist()]
    assert rest == list(range(4, 13)) and other.dataset.taken == 9


@pytest.mark.parametrize("state", [None, [1], 3])
def test_what_is_no_state(state: Any) -> None:
    with pytest.raises(LoadError, match="invalid state of a loader"):
        DataLoader(range(3)).load_state_dict(state)


def test_states_that_do_not_fit_a_stream() -> None:
    loader = DataLoader(Keeps(), 2, num_workers=2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    with pytest.raises(LoadError, match=r"streams of 3 workers") as caught:
        DataLoader(Keeps(), 2, num_workers=3).load_state_dict(state)
    assert "num_workers=2" in str(caught.value)
    with pytest.raises(LoadError, match="a state of a dataset with indices"):
        DataLoader(range(12), 2, num_workers=2).load_state_dict(state)
    other = DataLoader(Shares(), 2, num_workers=2)
    other.load_state_dict(state)
    with pytest.raises(LoadError, match="a state of the stream, which cannot load it"):
        list(other)


def test_a_stream_in_any_order() -> None:
    for position in range(7):
        loader = DataLoader(Keeps(), 2, num_workers=2, in_order=False)
        batches = iter(loader)
        got = [next(batches) for _ in range(position)]
        other = DataLoader(Keeps(), 2, num_workers=2, in_order=False)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert sorted(i for batch in plain([*got, *other]) for i in batch) == list(range(13))
