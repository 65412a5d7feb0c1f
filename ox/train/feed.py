"""What a trainer is fed: batches of the training data in their order, and where in it a run stands."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ox.data import DataLoader, TensorDataset
from ox.data.dataset import traced
from ox.data.seeds import mix
from ox.errors import RecipeError
from ox.random import Generator
from ox.train import chance
from ox.train.batch import map_tensors
from ox.train.datasets import Strided, is_stream
from ox.train.options import Options
from ox.train.sampler import ReplayedSampler
from ox.train.team import Alone

Batch = Any


class Feed:
    """The training data, shuffled anew each epoch, augmented, in groups of as many batches as a step takes.

    Args:
        dataset: the training part.
        augment: the recipe's, or None.
        device: where batches go: "cpu" or "cuda".
        team: the ranks that share the data; each batch is one rank's.
        collate: makes a batch of a list of samples; None for the usual one.
        order: what the page's `sampler` or `batch_sampler` draws; None for each sample once, in a new order each epoch.
    """

    def __init__(
        self,
        dataset: Any,
        options: Options,
        augment: Callable[..., Any] | None,
        device: str,
        team: Alone,
        collate: Callable[[list[Any]], Any] | None = None,
        order: ReplayedSampler | None = None,
    ) -> None:
        self.options, self.augment, self.device, self.chosen = options, augment, device, order
        # a stream of its own for each purpose: augmenting more must not change the order of the samples
        self.order = Generator(options.seed + 1)
        self.augmentation = Generator(team.seed(options.seed + 2))
        self.stream = is_stream(dataset)
        if self.stream and team.size > 1:
            dataset = Strided(dataset, team.rank, team.size, whole=True)
        self.sampler = None if self.stream or order is not None else team.sampler(dataset, options.seed + 1)
        shuffled = not self.stream and self.sampler is None and order is None
        sizes: dict[str, Any] = {"batch_size": options.batch_size, "drop_last": options.drop_last}
        self.loader = DataLoader(
            dataset,
            **({"batch_sampler": order} if order is not None and order.batched else sizes),
            shuffle=shuffled or None,
            sampler=None if order is not None and order.batched else order or self.sampler,
            generator=self.order,
            num_workers=options.workers,
            collate_fn=collate,
            timeout=(options.timeout or 0) if options.workers else 0,
        )
        self._open: collections.abc.Generator[Batch] | None = None
        self._random: dict[str, Any] | None = None  # a stream's own random numbers

    def __len__(self) -> int:
        """Steps an epoch. Raises TypeError where nobody knows."""
        if self.options.steps_per_epoch is not None:
            return self.options.steps_per_epoch
        return -(-len(self.loader) // self.options.accumulate)

    @property
    def steps(self) -> int | None:
        """Steps an epoch; None where only its end says."""
        try:
            return len(self)
        except TypeError:
            return None

    def batches(self) -> Iterator[Batch]:
        """The batches that are left of this epoch, augmented."""
        for batch in self._once() if self.options.steps_per_epoch is None else self._passes():
            whole = tuple(batch) if type(batch) is list else batch
            yield self.augment(whole, self.augmentation) if self.augment else whole

    def groups(self, done: int = 0) -> Iterator[list[Batch]]:
        """The same, as many together as a step takes; the last group of an epoch may be smaller.

        Args:
            done: steps of this epoch that are over.
        """
        batches = self.batches()
        count = self.options.steps_per_epoch
        while (count is None or done < count) and (group := list(islice(batches, self.options.accumulate))):
            done += 1
            yield group

    def close(self) -> None:
        """End the pass that is open, and its workers."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _once(self) -> Iterator[Batch]:
        """One pass, or what is left of it."""
        self._open = self._pass()
        yield from self._open
        self._open = None

    def _passes(self) -> Iterator[Batch]:
        """Batches without an end: when the data are through, they begin anew."""
        while True:
            given = self.loader.state_dict()["position"] > 0
            self._open = self._open or self._pass()
            for batch in self._open:
                given = True
                yield batch
            self._open = None
            if not given:
                raise RecipeError("the training data gave no batch", hint="drop_last=False, or a smaller batch_size")

    def _pass(self) -> collections.abc.Generator[Batch]:
        """Once through the data, or through what is left of them."""
        number = self.loader.state_dict()["epoch"]
        if self.sampler is not None:
            self.sampler.set_epoch(number)
        if self.stream and not self.options.workers:
            yield from self._streamed(number)
        else:
            yield from self.loader

    def _streamed(self, number: int) -> Iterator[Batch]:
        """A stream in this process, with random numbers of its own: one that is read again up to a position draws
        what it drew before, whatever the model has drawn since."""
        begun, self._random = self._random, None
        with chance.kept():
            chance.seed(mix(self.options.seed, number))
            batches = iter(self.loader)
            now = begun or chance.get_state()
        while True:
            with chance.kept():
                chance.set_state(now)
                batch = next(batches, self)  # itself: a batch may be anything else
                now = chance.get_state()
            if batch is self:
                self._random = None
                return
            self._random = now
            yield batch

    def placed(self, batch: Any) -> Batch:
        """A batch on the device."""
        if type(batch) is list:
            batch = tuple(batch)
        return batch if self.device == "cpu" else map_tensors(lambda x: x.to(self.device), batch)

    def indices(self, back: int = 1) -> tuple[int, list[int]]:
        """The number of a batch in its epoch, from 1, and its samples' indices in the whole data: drawn again.

        Args:
            back: 1 for the batch that was given last, 2 for the one before.

        Returns:
            0 and no indices where no such batch was given: a step may be taken with any batch. No indices of a stream.
        """
        state = self.loader.state_dict()
        number = state["position"] - back
        if number < 0:
            return 0, []
        size = self.options.batch_size
        if self.stream:
            return number + 1, []
        if self.chosen is not None:
            return number + 1, traced(self.loader.dataset, self.chosen.batch(number, size))
        if self.sampler is not None:
            return number + 1, traced(self.loader.dataset, self.sampler.order()[number * size : (number + 1) * size])
        everything = TensorDataset(np.arange(len(self.loader.dataset)))
        again = DataLoader(everything, batch_size=size, shuffle=True, generator=Generator(0))
        again.load_state_dict(state | {"position": number})
        (indices,) = next(iter(again))
        return number + 1, traced(self.loader.dataset, indices.tolist())

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, and its generators."""
        return {
            "loader": self.loader.state_dict(),
            "order": self.order.get_state(),
            "augmentation": self.augmentation.get_state(),
            "stream": self._random,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state["loader"])
        self.order.set_state(state["order"])
        self.augmentation.set_state(state["augmentation"])
        self._random, self._open = state.get("stream"), None
        if self.chosen is not None and not state["loader"].get("seed"):
            self.chosen.between()
