"""Makes batches from indices or from a stream; used in this process and in workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence
from itertools import islice
from typing import Any

import numpy as np

from ox.data.loading.collate import default_collate
from ox.data.loading.overrides import ITEM_METHODS, has_valid_shortcut
from ox.errors import LoadError

# The sample that is being read, for errors that name it. Negative values are no samples.
WHOLE_BATCH, COLLATING, IDLE = -1, -2, -3
BATCH, SAMPLE = 0, 1  # the entries of a status
Status = MutableSequence[int] | memoryview


def describe(batch: int, at: int, indices: Any) -> str:
    """``sample 37 of the dataset, number 5 of batch 4``. For a stream, `indices` is None and `at` counts its
    samples."""
    if indices is None:
        return f"sample {at} of the stream, in batch {batch}" if at >= 0 else f"collating batch {batch} of the stream"
    if not isinstance(indices, list | tuple | np.ndarray):
        return f"sample {indices}" if at >= 0 or at == WHOLE_BATCH else f"converting sample {indices}"
    listed = [int(i) if isinstance(i, np.integer) else i for i in indices]
    if 0 <= at < len(listed):
        return f"sample {listed[at]} of the dataset, number {at} of batch {batch}"
    few = ", ".join(map(str, listed[:16])) + (", ..." if len(listed) > 16 else "")
    what = "collating batch" if at == COLLATING else "batch"
    return f"{what} {batch}: samples {few}"


class Fetcher:
    """Batches of a dataset with indices.

    Args:
        collate: combines a list of samples into a batch (or converts one sample, if `batched` is False).
        batched: whether calls get lists of indices.
        status: two numbers that are set to the current batch and sample.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batched: bool, status: Status) -> None:
        self.dataset, self.collate, self.batched, self.status = dataset, collate, batched, status
        self._fetches_batches = (
            batched and collate is default_collate and has_valid_shortcut(dataset, "batch", *ITEM_METHODS)
        )

    def __call__(self, batch: int, indices: Any) -> Any:
        status, dataset = self.status, self.dataset
        status[BATCH] = batch
        if not self.batched:
            status[SAMPLE] = 0
            sample = dataset[indices]
            status[SAMPLE] = COLLATING
            return self.collate(sample)
        if self._fetches_batches:
            status[SAMPLE] = WHOLE_BATCH
            return dataset.batch(np.asarray(indices, np.int64))
        if isinstance(indices, np.ndarray):
            indices = indices.tolist()
        if getattr(dataset, "__getitems__", None):
            status[SAMPLE] = WHOLE_BATCH
            samples = dataset.__getitems__(indices)
        else:
            samples = []
            for at, index in enumerate(indices):
                status[SAMPLE] = at
                samples.append(dataset[index])
        status[SAMPLE] = COLLATING
        return self.collate(samples)


class StreamFetcher:
    """Batches of an `IterableDataset`, or of one worker's part of it.

    Args:
        batch_size: samples per batch; None: single samples, without collating.
        before_batch: called with the number of each batch before it is made, also for batches that are skipped.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        batch_size: int | None,
        drop_last: bool,
        status: Status,
        before_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.dataset, self.collate, self.status, self.before_batch = dataset, collate, status, before_batch
        self.batch_size, self.drop_last = batch_size, drop_last
        self._stream: Iterator[Any] = iter(())
        self._samples = 0
        self.ended = False

    def start(self, done: int, state: Any, ended: bool = False) -> None:
        """Starts an epoch after `done` batches: restores the state that the dataset (or its iterator) had there or, if
        it has none, skips their samples. With `ended`, no samples remain.

        Raises:
            LoadError: there is a state, and the dataset has no `load_state_dict`.
        """
        self._stream, self.ended = iter(()), ended
        if ended:
            return
        stateful = self.dataset if hasattr(self.dataset, "load_state_dict") else None
        if state is not None and stateful is not None:
            stateful.load_state_dict(state)
        self._stream = iter(self.dataset)
        if state is not None and stateful is None:
            stateful = self._stream if hasattr(self._stream, "load_state_dict") else None
            if stateful is None:
                raise LoadError(
                    "the loader's state has a state of the stream, which cannot load it",
                    expected=f"load_state_dict in {type(self.dataset).__name__} or in its iterator",
                )
            stateful.load_state_dict(state)
        self._samples = done * (self.batch_size or 1)
        if state is None:
            self._samples = 0
            for batch in range(done):
                self.before_batch(batch)
                self._next_samples(batch)

    def state(self) -> Any:
        """The state of the stream after the last batch; None at its end, and if neither the stream nor the dataset has
        a `state_dict`."""
        if self.ended:
            return None
        for stateful in (self._stream, self.dataset):
            if hasattr(stateful, "state_dict") and hasattr(stateful, "load_state_dict"):
                return stateful.state_dict()
        return None

    def __call__(self, batch: int) -> Any:
        """The next batch.

        Raises:
            StopIteration: no batch remains.
        """
        self.before_batch(batch)
        samples = self._next_samples(batch)
        if not samples or (self.drop_last and len(samples) < (self.batch_size or 1)):
            raise StopIteration
        self.status[SAMPLE] = COLLATING
        return self.collate(samples[0] if self.batch_size is None else samples)

    def _next_samples(self, batch: int) -> list[Any]:
        status, samples = self.status, []
        status[BATCH], status[SAMPLE] = batch, self._samples
        for sample in islice(self._stream, self.batch_size or 1):
            samples.append(sample)
            self._samples += 1
            status[SAMPLE] = self._samples
        # at the end the dataset may have restarted, so its state is not used
        self.ended = len(samples) < (self.batch_size or 1)
        return samples
