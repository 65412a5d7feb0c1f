"""DataLoader: batches, made here or by workers, from a position that can be kept and come back to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import GenericAlias
from typing import Any

from ox import random
from ox.data import progress
from ox.data.collate import default_collate, default_convert
from ox.data.dataset import IterableDataset, NoCountError
from ox.data.iterate import Here, There
from ox.data.pool import Pool, start_methods
from ox.data.sampler import BatchSampler, RandomSampler, SequentialSampler, Stream, whole_seed
from ox.data.worker import Job
from ox.errors import ArgumentError
from ox.ops.explain import place

_FIXED = frozenset(
    {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "num_workers", "persistent_workers"}
)


class DataLoader:
    """Batches of a dataset. `torch.utils.data.DataLoader`.

    Args:
        dataset: has `__len__` and `__getitem__`; one that has ``batch(indices)`` (or ``__getitems__``, as PyTorch calls
            it) is asked for whole batches. Of an `IterableDataset` the samples are taken as they come.
        batch_size: samples a batch; None gives the samples as they are.
        shuffle: a new order each epoch.
        sampler: gives indices, instead of `shuffle`.
        batch_sampler: gives lists of indices, instead of all of these.
        num_workers: processes that make batches ahead of time; 0 makes them here when they are asked for. The order of
            samples does not depend on it. An `IterableDataset` is shared out by `get_worker_info()`.
        collate_fn: makes a batch of a list of samples; default `default_collate`.
        pin_memory: taken for PyTorch's sake: copies to a GPU pass through pinned memory of CuPy's in any case.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a batch of a worker; 0 for as long as it lives.
        worker_init_fn: called with its number in each worker when it starts.
        multiprocessing_context: how workers start: "fork" (the default on Linux), "forkserver", "spawn", or a context.
        generator: an `ox.Generator` for `shuffle` and for the workers' seeds; None for the default one.
        prefetch_factor: batches that each worker makes ahead; default 2.
        persistent_workers: keep the workers when an epoch is over.
        in_order: give batches in the sampler's order; False gives first what is ready first.

    Raises:
        ArgumentError: options that exclude each other.
    """

    @classmethod
    def __class_getitem__(cls, item: Any, /) -> GenericAlias:
        """``DataLoader[Tensor]``, for annotations and bases."""
        return GenericAlias(cls, item)

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
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: random.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ArgumentError("batch_sampler excludes batch_size, shuffle, sampler and drop_last", where=place())
        if sampler is not None and shuffle:
            raise ArgumentError("sampler excludes shuffle", where=place(), hint="a RandomSampler as the sampler")
        if batch_size is None and drop_last:
            raise ArgumentError("drop_last needs a batch_size", where=place())
        self.dataset, self.generator = dataset, generator
        self.streams = isinstance(dataset, IterableDataset)
        if self.streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("an IterableDataset has no indices to shuffle or to sample", where=place())
        if sampler is None and self.streams:
            sampler = Stream(dataset)
        elif sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is not None:
            sampler, batch_size = getattr(batch_sampler, "sampler", sampler), None
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.multiprocessing_context = start_methods(multiprocessing_context) if num_workers else None
        self._pool: Pool | None = None
        self._epochs = 0  # begun
        self._progress: progress.Progress | None = None  # of the epoch begun last
        self._here: Here | None = None  # its iterator, if it can say where its stream is
        self._pending: dict[str, Any] | None = None  # the state that the next epoch goes on from
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and getattr(self, "_made", False):
            raise ArgumentError(f"{name} of a loader stays as it is", where=place(), hint="a new DataLoader")
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Here | There:
        """Begin an epoch, or go on with the one that a state was loaded of."""
        state, self._pending = self._pending, None
        if state is not None and state.get("seed", 1):
            now = self._resumed(state)
        else:
            generator = self.generator or random.default_generator
            rank = getattr(self.sampler, "rank", 0)
            if random.is_torch_compatible():
                # PyTorch draws the seed of its workers even where there are none, and once for those that stay
                kept = self._progress if self._pool is not None and self._pool.open else None
                now = progress.Progress(self._epochs, whole_seed(generator) + rank if kept is None else kept.seed)
                if hasattr(self.sampler, "epoch_state"):
                    self.sampler.epoch_state = None  # until the first sample is asked for
            else:
                now = progress.fresh(self._epochs, generator.get_state(), rank)
        if hasattr(self.sampler, "state_dict"):
            now.sampler = self.sampler.state_dict()
        self._epochs, self._progress, self._here = now.epoch + 1, now, None
        made: Here | There
        if self.num_workers:
            made = There(self, now, self._workers(now.seed))
        else:
            made = Here(self, now)
            self._here = made if self.streams else None
        if not random.is_torch_compatible():
            now.order = getattr(self.sampler, "epoch_state", None)
        return made

    def _workers(self, seed: int) -> Pool:
        if self._pool is not None and self._pool.open:
            return self._pool
        assert self.prefetch_factor is not None
        job = Job(
            self.dataset, self.collate_fn, self.batch_sampler is not None, self.streams, self.batch_size,
            self.drop_last, self.worker_init_fn, keep=self.prefetch_factor + 2,
            torch_compatible=random.is_torch_compatible(),
        )  # fmt: skip
        pool = Pool(job, self.num_workers, seed, self.multiprocessing_context, self.timeout)
        if self.persistent_workers:
            self._pool = pool
        return pool

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: how many batches of the running epoch it has given, and from which state of the
        generator this epoch's order was drawn. Plain numbers, and the states of a stream's dataset and of a sampler
        that have a `state_dict`. Batches that workers have made ahead do not count. The generator's own state is kept
        with it by whoever keeps random state."""
        now = self._progress
        if now is not None and now.running:
            if self._here is not None:
                now.streams = self._here.streams()
            if random.is_torch_compatible():
                now.order = getattr(self.sampler, "epoch_state", None)
            return now.state()
        if self._pending is not None:
            return dict(self._pending)
        between: dict[str, Any] = {"position": 0, "epoch_state": None, "epoch": self._epochs, "seed": 0}
        if hasattr(self.sampler, "state_dict"):
            between["sampler"] = self.sampler.state_dict()
        return between

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the next `iter` go on where `state_dict` was taken: the same order, the batches that were left.

        Restore the generator as well (`ox.random.set_state`): it gives the orders of the epochs that follow. The number
        of workers may be another one, except for streams.

        Raises:
            LoadError: not a state of this loader.
        """
        checked = self._resumed(state_dict)
        if self._progress is not None:
            self._progress.running = False
        self._epochs, self._pending = checked.epoch, dict(state_dict)
        if checked.sampler is not None and hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(checked.sampler)
        if hasattr(self.sampler, "resume"):
            self.sampler.resume = checked.order

    def _resumed(self, state: dict[str, Any]) -> progress.Progress:
        try:
            length: int | None = len(self)
        except (NoCountError, TypeError):
            length = None
        return progress.resumed(state, length, max(1, self.num_workers), self.streams)


def _check_workers(count: Any, timeout: float, prefetch: int | None, persistent: bool, context: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ArgumentError("num_workers is a count of 0 or more", where=place(), got=repr(count))
    if timeout < 0:
        raise ArgumentError("timeout is a number of seconds, or 0 for none", where=place(), got=repr(timeout))
    if prefetch is not None and (not isinstance(prefetch, int) or prefetch < 1):
        raise ArgumentError("prefetch_factor is a count of 1 or more", where=place(), got=repr(prefetch))
    if count == 0:
        options = {"prefetch_factor": prefetch is not None, "persistent_workers": persistent}
        options["multiprocessing_context"] = context is not None
        given = [name for name, is_given in options.items() if is_given]
        if given:
            raise ArgumentError(f"{given[0]} needs workers", where=place(), hint="num_workers=1 or more")
