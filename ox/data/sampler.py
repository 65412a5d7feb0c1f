"""Samplers: in which order a loader takes samples. Each epoch starts with `iter(sampler)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sized
from types import GenericAlias
from typing import Any

import numpy as np

from ox import random
from ox.data.overridden import speaks_for
from ox.errors import ArgumentError
from ox.ops import operator
from ox.ops.explain import place
from ox.sampling import multinomial


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


class _Drawn(Sampler, ABC):
    """A sampler that draws the order of an epoch from a generator, and can draw an earlier one again."""

    generator: random.Generator | None
    epoch_state: Any = None  # the generator's state when the last epoch began
    resume: Any = None  # the same, of an epoch that is to be drawn again
    own_seed = False  # whether PyTorch draws the order from a generator of its own, seeded by the default one

    def _begin(self) -> random.Generator:
        """The generator to draw an epoch from: once, where there is something to resume, a copy of that state."""
        generator = self.generator or random.default_generator
        if self.resume is not None:
            # drawn before the checkpoint: its own generator, so that the shared one does not move again
            generator = random.Generator(0)
            generator.set_state(self.resume)
            self.resume = None
        elif random.is_torch_compatible() and self.own_seed and self.generator is None:
            generator = random.Generator(whole_seed(generator))
        self.epoch_state = generator.get_state()
        return generator

    @abstractmethod
    def order(self) -> np.ndarray[Any, Any]:
        """The whole epoch as int64 [len(self)]; drawn from the generator, or again from `resume` once."""

    def __iter__(self) -> Iterator[int]:
        if random.is_torch_compatible():
            return self._late()
        return iter(self.order().tolist())

    def _late(self) -> Iterator[int]:
        yield from self.order().tolist()  # drawn with the first sample, as in PyTorch


def whole_seed(generator: random.Generator | None) -> int:
    """A seed of 63 bits, as PyTorch's loaders draw it."""
    return int(random.randint(0, 1 << 63, (), generator=generator).item())


class _Shuffled(_Drawn):
    """What RandomSampler and SubsetRandomSampler share."""

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
        generator = self._begin()
        count, total = len(self), len(self.data_source)
        if self.replacement:
            drawn = random.uniform((2, count), generator=generator).array.astype(np.float64)
            return np.minimum(((drawn[0] + drawn[1] / (1 << 24)) * total).astype(np.int64), total - 1)  # type: ignore[no-any-return]
        orders: list[Any] = []
        while sum(map(len, orders)) < count:
            orders.append(random.randperm(total, generator=generator).array)
        return np.concatenate(orders)[:count] if orders else np.zeros(0, np.int64)

    def _late(self) -> Iterator[int]:
        """As PyTorch draws: 32 numbers at a time, or order after order, of which the last may give nothing."""
        resumed, generator = self.resume is not None, self._begin()
        count, total = len(self), len(self.data_source)
        if self.replacement:
            for start in range(0, count, 32):
                size = (min(32, count - start),)
                yield from random.randint(0, total, size, generator=generator).tolist()
        elif total:
            for _ in range(count // total):
                yield from random.randperm(total, generator=generator).tolist()
            yield from random.randperm(total, generator=generator).tolist()[: count % total]
        if resumed and self.generator is not None:
            self.generator._restore(generator._snapshot())

    def __len__(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples


class RandomSampler(_Shuffled):
    """A new order each epoch. `torch.utils.data.RandomSampler`.

    Args:
        replacement: draw each sample anew, so some come twice and some never.
        num_samples: how many an epoch; default all.
        generator: an `ox.Generator`; None for the default one.
    """

    own_seed = True

    @property
    def num_samples(self) -> int:
        """How many an epoch."""
        return len(self)


class SubsetRandomSampler(_Shuffled):
    """The given indices in a new order each epoch. `torch.utils.data.SubsetRandomSampler`."""

    own_seed = False

    def __init__(self, indices: Any, generator: random.Generator | None = None) -> None:
        self.indices = indices
        super().__init__(indices, generator=generator)

    def order(self) -> np.ndarray[Any, Any]:
        return np.asarray(self.indices, np.int64)[super().order()]  # type: ignore[no-any-return]

    def _late(self) -> Iterator[int]:
        yield from self.order().tolist()


class WeightedRandomSampler(_Drawn):
    """Indices drawn with the given weights, which need not add up to 1. `torch.utils.data.WeightedRandomSampler`.

    Args:
        weights: one a sample, [n], none negative.
        num_samples: how many an epoch.
        replacement: draw each anew; without it no sample comes twice.
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
            raise ArgumentError("weights are numbers of at least 0, one a sample, not all 0", where=place())
        if not replacement and possible < num_samples:
            raise ArgumentError(
                "too few samples to draw without replacement",
                where=place(),
                expected=f"at most {possible}, as many as have a weight above 0",
                got=str(num_samples),
            )

    def order(self) -> np.ndarray[Any, Any]:
        if random.is_torch_compatible():
            return multinomial(self.weights, self.num_samples, self.replacement, generator=self._begin()).array  # type: ignore[no-any-return]
        weights = np.asarray(self.weights, np.float64)
        count = self.num_samples if self.replacement else len(weights)
        drawn = random.uniform((2, count), generator=self._begin()).array.astype(np.float64)
        fine = drawn[0] + drawn[1] / (1 << 24)  # 48 bits, for one number of 24 cannot name each of many samples
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


class Stream(Sampler):
    """The samples of an `IterableDataset` in place of indices: what a batch sampler groups is then the samples."""

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
            raise ArgumentError("batch_size is a positive int", where=place(), got=repr(batch_size))
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[Any]:
        sampler: Any = self.sampler
        if speaks_for(sampler, "order", "__iter__") and not random.is_torch_compatible():
            order, size = sampler.order(), self.batch_size  # drawn now, not with the first batch
            return (order[i * size : (i + 1) * size] for i in range(len(self)))
        return self._grouped(iter(self.sampler))

    def _grouped(self, indices: Iterator[int]) -> Iterator[Any]:
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
