"""DataLoader(pin_memory=True): batches in pinned memory, or on the device ahead of time, with the same positions."""

from __future__ import annotations

import json
import sys
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ox
from ox.data import DataLoader, Dataset, IterableDataset, get_worker_info
from ox.data.loading.pinned_batches import PinnedIterator, pin_batch

pytestmark = pytest.mark.gpu
Point = namedtuple("Point", "x name")


@dataclass(frozen=True)
class Labelled:
    image: Any
    name: str


class Images(Dataset):
    def __init__(self, broken: int = -1) -> None:
        self.broken = broken

    def __getitem__(self, index: int) -> Any:
        if index == self.broken:
            raise ValueError("a broken sample")
        return np.full((4, 4), index, np.float32), index

    def __len__(self) -> int:
        return 11


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return iter(np.arange(first, 13, step))


def plain(batches: Any) -> list[Any]:
    return [[x.cpu().tolist() for x in batch] if isinstance(batch, list) else batch.cpu().tolist() for batch in batches]


def test_what_a_batch_may_hold() -> None:
    class Own:
        pinned = False

        def pin_memory(self) -> Own:
            self.pinned = True
            return self

    batch: Any = {
        "x": ox.ones(2),
        "own": Labelled(ox.ones(2), "b"),
        "deep": [Point(ox.ones(3), "a"), (1, None, Own())],
        "there": ox.ones(1).cuda(),
    }
    made = pin_batch(batch)
    assert made["own"].image.is_pinned() and made["own"].name == "b"
    assert made["x"].is_pinned() and made["deep"][0].x.is_pinned() and made["deep"][1][2].pinned
    assert isinstance(made["deep"][0], Point) and made["deep"][0].name == "a" and made["deep"][1][:2] == (1, None)
    assert made["there"].is_cuda


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_pinned(workers: int) -> None:
    wanted = plain(DataLoader(Images(), 4))
    loader = DataLoader(Images(), 4, num_workers=workers, pin_memory=True)
    batches = list(loader)
    assert all(x.is_pinned() for batch in batches for x in batch)
    assert plain(batches) == wanted == plain(loader)


def test_copies_to_the_device_are_ahead_and_do_not_wait() -> None:
    loader = DataLoader(Images(), 4, num_workers=1, pin_memory=True)
    loader.prefetch_device = "cuda"
    batches = iter(loader)
    assert isinstance(batches, PinnedIterator)
    host_cuda = sys.modules.get("host_cuda")
    if host_cuda is None:
        got = list(batches)
    else:
        with host_cuda.counting() as counts:
            got = list(batches)
        assert counts["waits"] == 0 and counts["to device"] >= 4  # the first may have been copied before
    assert all(x.is_cuda for batch in got for x in batch)
    assert plain(got) == plain(DataLoader(Images(), 4))


@pytest.mark.parametrize("dataset", [Images(), Stream()], ids=["indices", "stream"])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_position_counts_what_was_returned(dataset: Any, persistent: bool) -> None:
    def loader() -> DataLoader:
        made = DataLoader(dataset, 2, num_workers=2, pin_memory=True, persistent_workers=persistent)
        made.prefetch_device = "cuda"
        return made

    whole = plain(loader())
    for position in (0, 3, len(whole)):
        begun = loader()
        batches = iter(begun)
        assert plain([next(batches) for _ in range(position)]) == whole[:position]
        state = json.loads(json.dumps(begun.state_dict()))
        resumed = loader()
        resumed.load_state_dict(state)
        assert plain(resumed) == whole[position:]
        # the first loader begins anew, though its thread had a batch ahead
        begun.load_state_dict(state)
        assert plain(begun) == whole[position:]


def test_the_error_of_a_worker_comes_with_its_batch() -> None:
    batches = iter(DataLoader(Images(broken=5), 2, num_workers=1, pin_memory=True))
    assert plain([next(batches), next(batches)]) == plain(DataLoader(Images(), 2))[:2]
    with pytest.raises(ValueError, match="a broken sample"):
        next(batches)
    assert plain([next(batches)]) == plain(DataLoader(Images(), 2))[3:4]
