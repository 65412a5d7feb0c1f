"""Samplers: the order of the samples of an epoch. Each epoch starts with `iter(sampler)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sized
from types import GenericAlias
from typing import Any

import numpy as np

from ox import random
from ox.core import operator
from ox.data.loading.overrides import has_valid_shortcut
from ox.errors import ArgumentError
from ox.tensors.random_sampling import multinomial


class Sampler:
    """The base: an iterable of indices. `torch.utils.data.Sampler`."""

    @classmethod
    def __class_getitem__(cls, item: Any, /) -> GenericAlias:
        """``Sampler[int]``, for annotations and bases."""
        return GenericAlias(cls, item)

    def __iter__(self) -> Iterator[Any]:
        raise ArgumentError(f"{type(self).__name__} has no __iter__", hint="def __iter__(self): ...")


class SequentialSampler(Sampler):
    """0, 1, 2, ... `torch.utils.data.SequentialSampler`."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def order(self) -> np.ndarray[Any, Any]:
        """The whole epoch as int64 [n]."""
        return np.arange(len(self.data_source))

    def __len__(self) -> int:
        return len(self.data_source)


class _SeededSampler(Sampler, ABC):
    """A sampler that draws the order of an epoch from a generator, and can repeat an earlier epoch."""

    generator: random.Generator | None
    epoch_state: Any = None  # the state of the generator at the start of the last epoch
    resume: Any = None  # such a state, of an epoch to repeat
    torch_seeds_anew = False  # PyTorch draws the order from a new generator, seeded by the default one

    def _epoch_generator(self) -> random.Generator:
        """The generator of an epoch. If `resume` is set, a new generator with that state; it is used once."""
        generator = self.generator or random.default_generator
        if self.resume is not None:
            # a separate generator: the shared one was already advanced before the checkpoint
            generator = random.Generator(0)
            generator.set_state(self.resume)
            self.resume = None
        elif random.is_torch_compatible() and self.torch_seeds_anew and self.generator is None:
            generator = random.Generator(random_seed(generator))
        self.epoch_state = generator.get_state()
        return generator

    @abstractmethod
    def order(self) -> np.ndarray[Any, Any]:
        """The indices of an epoch as int64 [len(self)], drawn from the generator or, once, from `resume`."""

    def __iter__(self) -> Iterator[int]:
        if random.is_torch_compatible():
            return self._lazy_order()
        return iter(self.order().tolist())

    def _lazy_order(self) -> Iterator[int]:
        yield from self.order().tolist()  # drawn when the first sample is requested, as in PyTorch


def random_seed(generator: random.Generator | None) -> int:
    """A random seed of 63 bits, drawn as in PyTorch's loader."""
    if random.is_torch_compatible():
        return int(random.randint(0, 1 << 63, (), generator=generator).item())
    return random.bits(2, generator, kind="worker_seed").view(np.uint64).item() >> 1


class _ShuffleSampler(_SeededSampler):
    """The base of RandomSampler and SubsetRandomSampler."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: random.Generator | None = None,
    ) -> None:
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples

    def order(self) -> np.ndarray[Any, Any]:
        generator = self._epoch_generator()
        count, total = len(self), len(self.data_source)
        if self.replacement:
            drawn = random.uniform((2, count), generator=generator, kind="sampling").array.astype(np.float64)
            return np.minimum(((drawn[0] + drawn[1] / (1 << 24)) * total).astype(np.int64), total - 1)  # type: ignore[no-any-return]
        orders: list[Any] = []
        while sum(map(len, orders)) < count:
            orders.append(random.permutation(total, generator, kind="shuffle"))
        return np.concatenate(orders)[:count] if orders else np.zeros(0, np.int64)

    def _lazy_order(self) -> Iterator[int]:
        """Draws as PyTorch does: 32 numbers at a time, or one permutation after the other; the last may be empty."""
        resumed, generator = self.resume is not None, self._epoch_generator()
        count, total = len(self), len(self.data_source)
        if self.replacement:
            for start in range(0, count, 32):
                size = (min(32, count - start),)
                yield from random.randint(0, total, size, generator=generator).tolist()
        elif total:
            for _ in range(count // total):
                yield from random.permutation(total, generator).tolist()
            yield from random.permutation(total, generator).tolist()[: count % total]
        if resumed and self.generator is not None:
            self.generator._restore(generator._snapshot())

    def __len__(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples


class RandomSampler(_ShuffleSampler):
    """A new order each epoch. `torch.utils.data.RandomSampler`.

    Args:
        replacement: draw with replacement: a sample may occur several times, or not at all.
        num_samples: samples per epoch; default: all.
        generator: an `ox.Generator`; None for the default one.
    """

    torch_seeds_anew = True

    @property
    def num_samples(self) -> int:
        """How many an epoch."""
        return len(self)


class SubsetRandomSampler(_ShuffleSampler):
    """The given indices in a new order each epoch. `torch.utils.data.SubsetRandomSampler`."""

    torch_seeds_anew = False

    def __init__(self, indices: Any, generator: random.Generator | None = None) -> None:
        self.indices = indices
        super().__init__(indices, generator=generator)

    def order(self) -> np.ndarray[Any, Any]:
        return np.asarray(self.indices, np.int64)[super().order()]  # type: ignore[no-any-return]

    def _lazy_order(self) -> Iterator[int]:
        yield from self.order().tolist()


class WeightedRandomSampler(_SeededSampler):
    """Random indices with the given weights, which need not add up to 1. `torch.utils.data.WeightedRandomSampler`.

    Args:
        weights: one per sample, [n], none negative.
        num_samples: samples per epoch.
        replacement: draw with replacement; without it each sample occurs at most once.
        generator: an `ox.Generator`; None for the default one.

    Raises:
        ArgumentError: negative weights, or fewer weights above zero than samples to draw without replacement.
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: random.Generator | None = None
    ) -> None:
        values = np.asarray(weights, np.float64)
        self.weights = operator.make_tensor(values)
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator
        possible = int((values > 0).sum())
        if values.ndim != 1 or (values < 0).any() or not possible:
            raise ArgumentError("weights are numbers of at least 0, one per sample, not all 0")
        if not replacement and possible < num_samples:
            raise ArgumentError(
                "too few samples to draw without replacement",
                expected=f"at most {possible}, as many as have a weight above 0",
                got=str(num_samples),
            )

    def order(self) -> np.ndarray[Any, Any]:
        if random.is_torch_compatible():
            generator = self._epoch_generator()
            return multinomial(self.weights, self.num_samples, self.replacement, generator=generator).array  # type: ignore[no-any-return]
        weights = np.asarray(self.weights, np.float64)
        count = self.num_samples if self.replacement else len(weights)
        generator = self._epoch_generator()
        kind = "weighted_sampling" if self.replacement else "weighted_sampling_distinct"
        drawn = random.uniform((2, count), generator=generator, kind=kind).array.astype(np.float64)
        fine = drawn[0] + drawn[1] / (1 << 24)  # 48 bits: 24 are too few for large datasets
        if self.replacement:
            edges = np.cumsum(weights)
            found = np.searchsorted(edges, fine * edges[-1], side="right")
            return np.minimum(found, np.flatnonzero(weights)[-1])  # type: ignore[no-any-return]
        # Efraimidis and Spirakis (2006): the largest log(u)/w are a weighted draw without replacement
        with np.errstate(divide="ignore", invalid="ignore"):
            keys = np.where(weights > 0, np.log(fine) / weights, -np.inf)
        return np.argsort(-keys, kind="stable")[: self.num_samples]

    def __len__(self) -> int:
        return self.num_samples


class StreamSampler(Sampler):
    """Yields the samples of an `IterableDataset` instead of indices, so that a batch sampler groups samples."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)

    def __len__(self) -> int:
        return len(self.dataset)


class BatchSampler(Sampler):
    """Lists of `batch_size` indices of another sampler. `torch.utils.data.BatchSampler`.

    Args:
        drop_last: leave out a last batch that is not full.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise ArgumentError("batch_size is a positive int", got=repr(batch_size))
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[Any]:
        sampler: Any = self.sampler
        if has_valid_shortcut(sampler, "order", "__iter__") and not random.is_torch_compatible():
            order, size = sampler.order(), self.batch_size  # drawn now, not at the first batch
            return (order[i * size : (i + 1) * size] for i in range(len(self)))
        return self._group(iter(self.sampler))

    def _group(self, indices: Iterator[int]) -> Iterator[Any]:
        batch: list[int] = []
        for index in indices:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
