"""From indices, or from a stream, to a batch: the same in this process and in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence
from itertools import islice
from typing import Any

import numpy as np

from ox.data.collate import default_collate
from ox.data.overridden import SAMPLES, speaks_for
from ox.errors import LoadError

# Where a batch stands, kept while it is made, for whoever has to say which sample it was. Below 0 it is no sample.
WHOLE, COLLATING, IDLE = -1, -2, -3
BATCH, SAMPLE = 0, 1  # the entries of a status
Status = MutableSequence[int] | memoryview


def describe(batch: int, at: int, indices: Any) -> str:
    """``sample 37 of the dataset, number 5 of batch 4``; `indices` None for a stream, whose samples are counted."""
    if indices is None:
        return f"sample {at} of the stream, in batch {batch}" if at >= 0 else f"collating batch {batch} of the stream"
    if not isinstance(indices, list | tuple | np.ndarray):
        return f"sample {indices}" if at >= 0 or at == WHOLE else f"converting sample {indices}"
    listed = [int(i) if isinstance(i, np.integer) else i for i in indices]
    if 0 <= at < len(listed):
        return f"sample {listed[at]} of the dataset, number {at} of batch {batch}"
    few = ", ".join(map(str, listed[:16])) + (", ..." if len(listed) > 16 else "")
    what = "collating batch" if at == COLLATING else "batch"
    return f"{what} {batch}: samples {few}"


class Fetcher:
    """Batches of a dataset with indices.

    Args:
        collate: makes a batch of a list of samples (or converts one sample, where `batched` is False).
        batched: whether what comes are lists of indices.
        status: two numbers that say at which batch and sample it is.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batched: bool, status: Status) -> None:
        self.dataset, self.collate, self.batched, self.status = dataset, collate, batched, status
        self._whole = batched and collate is default_collate and speaks_for(dataset, "batch", *SAMPLES)

    def __call__(self, batch: int, indices: Any) -> Any:
        status, dataset = self.status, self.dataset
        status[BATCH] = batch
        if not self.batched:
            status[SAMPLE] = 0
            sample = dataset[indices]
            status[SAMPLE] = COLLATING
            return self.collate(sample)
        if self._whole:
            status[SAMPLE] = WHOLE
            return dataset.batch(np.asarray(indices, np.int64))
        if isinstance(indices, np.ndarray):
            indices = indices.tolist()
        if getattr(dataset, "__getitems__", None):
            status[SAMPLE] = WHOLE
            samples = dataset.__getitems__(indices)
        else:
            samples = []
            for at, index in enumerate(indices):
                status[SAMPLE] = at
                samples.append(dataset[index])
        status[SAMPLE] = COLLATING
        return self.collate(samples)


class StreamFetcher:
    """Batches of an `IterableDataset`, or of one worker's share of it.

    Args:
        batch_size: samples a batch; None for one sample at a time as it is.
        before: called with the number of each batch before it is made, also of those passed over.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        batch_size: int | None,
        drop_last: bool,
        status: Status,
        before: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.dataset, self.collate, self.status, self.before = dataset, collate, status, before
        self.batch_size, self.drop_last = batch_size, drop_last
        self._stream: Iterator[Any] = iter(())
        self._samples = 0
        self.ended = False

    def start(self, given: int, state: Any, ended: bool = False) -> None:
        """Begin an epoch, after `given` batches of it: from the state that the dataset (or its iterator) had behind
        them, or, where it keeps none, by passing over their samples. With `ended` there is nothing left of it.

        Raises:
            LoadError: a state for a dataset that takes none.
        """
        self._stream, self.ended = iter(()), ended
        if ended:
            return
        keeper = self.dataset if hasattr(self.dataset, "load_state_dict") else None
        if state is not None and keeper is not None:
            keeper.load_state_dict(state)
        self._stream = iter(self.dataset)
        if state is not None and keeper is None:
            keeper = self._stream if hasattr(self._stream, "load_state_dict") else None
            if keeper is None:
                raise LoadError(
                    "the loader's state holds one of the stream, which takes none",
                    expected=f"load_state_dict in {type(self.dataset).__name__} or in its iterator",
                )
            keeper.load_state_dict(state)
        self._samples = given * (self.batch_size or 1)
        if state is None:
            self._samples = 0
            for batch in range(given):
                self.before(batch)
                self._take(batch)

    def state(self) -> Any:
        """The state of the stream behind the last batch; None where neither it nor the dataset keeps one, and at
        its end."""
        if self.ended:
            return None
        for keeper in (self._stream, self.dataset):
            if hasattr(keeper, "state_dict") and hasattr(keeper, "load_state_dict"):
                return keeper.state_dict()
        return None

    def __call__(self, batch: int) -> Any:
        """The next batch.

        Raises:
            StopIteration: there is none.
        """
        self.before(batch)
        samples = self._take(batch)
        if not samples or (self.drop_last and len(samples) < (self.batch_size or 1)):
            raise StopIteration
        self.status[SAMPLE] = COLLATING
        return self.collate(samples[0] if self.batch_size is None else samples)

    def _take(self, batch: int) -> list[Any]:
        status, samples = self.status, []
        status[BATCH], status[SAMPLE] = batch, self._samples
        for sample in islice(self._stream, self.batch_size or 1):
            samples.append(sample)
            self._samples += 1
            status[SAMPLE] = self._samples
        self.ended = len(samples) < (self.batch_size or 1)  # a dataset may have begun anew by now: its state is void
        return samples
