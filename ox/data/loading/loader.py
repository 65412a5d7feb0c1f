"""DataLoader: batches, made in this process or by worker processes, with a position that can be saved and restored."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from types import GenericAlias
from typing import Any

from ox import random
from ox.data.dataset import IterableDataset, NoCountError
from ox.data.loading import progress
from ox.data.loading.collate import default_collate, default_convert
from ox.data.loading.iterators import InProcessIterator, WorkerIterator
from ox.data.loading.pinned_batches import PinnedIterator
from ox.data.loading.worker import Job
from ox.data.loading.worker_pool import Pool, start_context
from ox.data.sampler import BatchSampler, RandomSampler, SequentialSampler, StreamSampler, random_seed
from ox.devices import cuda
from ox.errors import ArgumentError

_IMMUTABLE = frozenset(
    {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "num_workers", "persistent_workers"}
)


class DataLoader:
    """Batches of a dataset. `torch.utils.data.DataLoader`.

    Args:
        dataset: has `__len__` and `__getitem__`; if it has ``batch(indices)`` (or ``__getitems__`` as in PyTorch), the
            loader requests whole batches. The samples of an `IterableDataset` are read in order.
        batch_size: samples per batch; None: single samples, without collating.
        shuffle: a new order each epoch.
        sampler: an iterable of indices, instead of `shuffle`.
        batch_sampler: an iterable of lists of indices, instead of `batch_size`, `shuffle` and `sampler`.
        num_workers: number of worker processes, which make batches ahead of time; 0: this process makes them on
            request. The order of samples does not depend on it. An `IterableDataset` divides its samples by
            `get_worker_info()`.
        collate_fn: combines a list of samples into a batch; default `default_collate`.
        pin_memory: put the tensors of a batch into pinned memory (`Tensor.pin_memory`), from which
            ``x.to("cuda", non_blocking=True)`` copies while the host goes on. With workers, a thread does it ahead of
            time. Without a GPU nothing changes.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a batch of a worker; 0: as long as the worker is alive.
        worker_init_fn: called in each worker when it starts, with the number of the worker.
        multiprocessing_context: how workers start: "fork" (the default on Linux), "forkserver", "spawn", or a context.
        generator: an `ox.Generator` for `shuffle` and for the workers' seeds; None for the default one.
        prefetch_factor: batches that each worker makes ahead; default 2.
        persistent_workers: keep the workers after an epoch.
        in_order: return batches in the sampler's order; False: in the order in which they are ready.

    Raises:
        ArgumentError: arguments that exclude each other.
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
            raise ArgumentError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if sampler is not None and shuffle:
            raise ArgumentError("sampler excludes shuffle", hint="a RandomSampler as the sampler")
        if batch_size is None and drop_last:
            raise ArgumentError("drop_last needs a batch_size")
        self.dataset, self.generator = dataset, generator
        self.streams = isinstance(dataset, IterableDataset)
        if self.streams and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("an IterableDataset has no indices to shuffle or to sample")
        if sampler is None and self.streams:
            sampler = StreamSampler(dataset)
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
        self.multiprocessing_context = start_context(multiprocessing_context) if num_workers else None
        self._pool: Pool | None = None
        self._epochs = 0  # started
        self._progress: progress.Progress | None = None  # of the epoch that started last
        # with pin_memory and workers: a GPU to which the thread also copies the next batch
        self.prefetch_device: str | None = None
        self._pinned: weakref.ref[PinnedIterator] | None = None  # the last one, whose thread uses the pool
        # the iterator of a stream in this process, which knows its position
        self._stream_iterator: InProcessIterator | None = None
        self._pending: dict[str, Any] | None = None  # the state from which the next epoch resumes
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _IMMUTABLE and getattr(self, "_initialized", False):
            raise ArgumentError(f"{name} of a loader cannot be changed", hint="a new DataLoader")
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Batches per epoch."""
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    @property
    def pins(self) -> bool:
        """Whether batches are put into pinned memory."""
        return bool(self.pin_memory) and cuda.available()

    def __iter__(self) -> InProcessIterator | WorkerIterator | PinnedIterator:
        """Starts an epoch, or resumes the one of a loaded state."""
        last = self._pinned() if self._pinned is not None else None
        if last is not None and self._pool is not None:
            last.wait()
        state, self._pending = self._pending, None
        if state is not None and state.get("seed", 1):
            now = self._progress_of(state)
            if now.generator is not None and self.generator is not None:
                self.generator.set_state(now.generator)
        else:
            generator = self.generator or random.default_generator
            rank = getattr(self.sampler, "rank", 0)
            if random.is_torch_compatible():
                # PyTorch draws the seed of its workers even without workers, and only once for persistent workers
                kept = self._progress if self._pool is not None and self._pool.open else None
                now = progress.Progress(self._epochs, random_seed(generator) + rank if kept is None else kept.seed)
                if hasattr(self.sampler, "epoch_state"):
                    self.sampler.epoch_state = None  # until the first sample is requested
            else:
                now = progress.new_epoch(self._epochs, generator, rank)
                now.generator = generator.get_state() if self.streams and self.generator is not None else None
        if hasattr(self.sampler, "state_dict"):
            now.sampler = self.sampler.state_dict()
        self._epochs, self._progress, self._stream_iterator = now.epoch + 1, now, None
        made: InProcessIterator | WorkerIterator | PinnedIterator
        if self.num_workers and self.pins:
            ahead = now.copy()
            batches = WorkerIterator(self, ahead, self._workers(now))
            now.streams, now.next_worker = ahead.copy().streams, ahead.next_worker
            made = PinnedIterator(batches, ahead, now, self.prefetch_device)
            self._pinned = weakref.ref(made)
        elif self.num_workers:
            made = WorkerIterator(self, now, self._workers(now))
        else:
            made = InProcessIterator(self, now)
            self._stream_iterator = made if self.streams else None
        if not random.is_torch_compatible():
            now.order = getattr(self.sampler, "epoch_state", None)
        return made

    def _workers(self, now: progress.Progress) -> Pool:
        if self._pool is not None and self._pool.open:
            return self._pool
        assert self.prefetch_factor is not None
        job = Job(
            self.dataset, self.collate_fn, self.batch_sampler is not None, self.streams, self.batch_size,
            self.drop_last, self.worker_init_fn, keep=self.prefetch_factor + 2,
            torch_compatible=random.is_torch_compatible(), stream_version=now.version,
        )  # fmt: skip
        pool = Pool(job, self.num_workers, now.seed, self.multiprocessing_context, self.timeout)
        if self.persistent_workers:
            self._pool = pool
        return pool

    def state_dict(self) -> dict[str, Any]:
        """The position of the loader: the number of batches returned in the current epoch, and the state of the
        generator from which the order of this epoch was drawn. It contains plain numbers, and the `state_dict` of a
        sampler and of the dataset of a stream if they have one. Batches that workers have made ahead do not count. It
        does not contain the current state of the generator: save that with the other random states."""
        now = self._progress
        if now is not None and now.running:
            if self._stream_iterator is not None:
                now.streams = self._stream_iterator.streams()
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
        """The next `iter` resumes at the position of `state_dict`: the same order, the remaining batches.

        Restore the generator as well (`ox.random.set_state`): the following epochs draw their order from it. The number
        of workers may differ, except for streams.

        Raises:
            LoadError: not a state of such a loader.
        """
        checked = self._progress_of(state_dict)
        if self._progress is not None:
            self._progress.running = False
        self._epochs, self._pending = checked.epoch, dict(state_dict)
        if checked.sampler is not None and hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(checked.sampler)
        if hasattr(self.sampler, "resume"):
            self.sampler.resume = checked.order

    def _progress_of(self, state: dict[str, Any]) -> progress.Progress:
        try:
            length: int | None = len(self)
        except (NoCountError, TypeError):
            length = None
        return progress.from_state(state, length, max(1, self.num_workers), self.streams)


def _check_workers(count: Any, timeout: float, prefetch: int | None, persistent: bool, context: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ArgumentError("num_workers is a count of 0 or more", got=repr(count))
    if timeout < 0:
        raise ArgumentError("timeout is a number of seconds, or 0 for none", got=repr(timeout))
    if prefetch is not None and (not isinstance(prefetch, int) or prefetch < 1):
        raise ArgumentError("prefetch_factor is a count of 1 or more", got=repr(prefetch))
    if count == 0:
        options = {"prefetch_factor": prefetch is not None, "persistent_workers": persistent}
        options["multiprocessing_context"] = context is not None
        given = [name for name, is_given in options.items() if is_given]
        if given:
            raise ArgumentError(f"{given[0]} needs workers", hint="num_workers=1 or more")
