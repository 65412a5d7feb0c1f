"""DataLoader: batches, in one process, from a position that can be kept and come back to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ox import random
from ox.data.collate import default_collate, default_convert
from ox.data.dataset import IterableDataset
from ox.data.sampler import BatchSampler, RandomSampler, SequentialSampler, Stream
from ox.errors import ArgumentError, LoadError
from ox.ops.explain import place


def get_worker_info() -> None:
    """None: batches are made in this process. `torch.utils.data.get_worker_info`."""


class DataLoader:
    """Batches of a dataset. `torch.utils.data.DataLoader` in one process.

    Args:
        dataset: has `__len__` and `__getitem__`; one that has ``batch(indices)`` is asked for whole batches. Of an
            `IterableDataset` the samples are taken as they come.
        batch_size: samples a batch; None gives the samples as they are.
        shuffle: a new order each epoch.
        sampler: gives indices, instead of `shuffle`.
        batch_sampler: gives lists of indices, instead of all of these.
        drop_last: leave out a last batch that is not full.
        num_workers: taken for PyTorch's sake, as is all else that speaks of workers or of pinned memory: batches are
            made in this process, in ordinary memory, and a warning says so where workers are asked for.
        collate_fn: makes a batch of a list of samples; default `default_collate`.
        generator: an `ox.Generator` for `shuffle`; None for the default one.

    Raises:
        ArgumentError: options that exclude each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: random.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers:
            warnings.warn("DataLoader makes batches in this process; num_workers has no effect yet", stacklevel=2)
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ArgumentError("batch_sampler excludes batch_size, shuffle, sampler and drop_last", where=place())
        if sampler is not None and shuffle:
            raise ArgumentError("sampler excludes shuffle", where=place(), hint="a RandomSampler as the sampler")
        if batch_size is None and drop_last:
            raise ArgumentError("drop_last needs a batch_size", where=place())
        self.dataset, self.generator = dataset, generator
        self._streams = isinstance(dataset, IterableDataset)
        if self._streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("an IterableDataset has no indices to shuffle or to sample", where=place())
        if sampler is None and self._streams:
            sampler = Stream(dataset)
        elif sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is not None:
            sampler = getattr(batch_sampler, "sampler", sampler)
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        self.collate_fn = collate_fn
        self.num_workers, self.pin_memory, self.worker_init_fn = num_workers, pin_memory, worker_init_fn
        self._position = 0  # batches given in the epoch that runs
        self._running = False
        self._resume = 0  # batches to pass over at the start of the next epoch

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        skip, self._resume = self._resume, 0
        self._position, self._running = skip, True
        source = self.sampler if self.batch_sampler is None else self.batch_sampler
        fetch = self._fetcher()
        for indices in islice(iter(source), skip, None):
            batch = fetch(indices)
            self._position += 1
            yield batch
        self._position, self._running = 0, False

    def _fetcher(self) -> Callable[[Any], Any]:
        dataset, collate = self.dataset, self.collate_fn
        if self._streams:  # what would be an index is the sample itself
            make = collate or (default_convert if self.batch_sampler is None else default_collate)
            return lambda samples: make(samples)
        if self.batch_sampler is None:
            return lambda i: dataset[i] if collate is None else collate(dataset[i])
        if collate is None and hasattr(dataset, "batch"):
            return lambda indices: dataset.batch(np.asarray(indices, np.int64))
        gather = collate or default_collate
        return lambda indices: gather([dataset[int(i)] for i in indices])

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: how many batches of the running epoch it has given, and from which state of the
        generator this epoch's order was drawn. Plain numbers. The generator's own state is kept with it by whoever
        keeps random state."""
        epoch = getattr(self.sampler, "epoch_state", None) if self._running else None
        resume = getattr(self.sampler, "resume", None)
        return {
            "position": self._position if self._running else self._resume,
            "epoch_state": dict(epoch) if epoch is not None else resume,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the next `iter` go on where `state_dict` was taken: the same order, the batches that were left.

        Restore the generator as well (`ox.random.set_state`): it gives the orders of the epochs that follow.

        Raises:
            LoadError: not a state of this loader.
        """
        position, epoch = state_dict.get("position"), state_dict.get("epoch_state")
        if not isinstance(position, int) or not 0 <= position <= len(self):
            raise LoadError(
                "the loader's state does not fit",
                where=place(),
                expected=f"a position of 0 to {len(self)} batches",
                got=repr(position),
                hint="the same dataset and batch size as when it was saved",
            )
        self._resume, self._running, self._position = position, False, 0
        if hasattr(self.sampler, "resume"):
            self.sampler.resume = epoch
