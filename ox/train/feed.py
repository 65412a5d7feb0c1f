"""What a trainer is fed: batches of the training data in their order, and where in it a run stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ox.data import DataLoader, TensorDataset
from ox.data.dataset import traced
from ox.random import Generator
from ox.train.options import Options
from ox.train.team import Alone

Batch = tuple[Any, ...]


class Feed:
    """The training data, shuffled anew each epoch, augmented, in groups of as many batches as a step takes.

    Args:
        dataset: the training part.
        augment: the recipe's, or None.
        device: where batches go: "cpu" or "cuda".
        team: the ranks that share the data; each batch is one rank's.
    """

    def __init__(
        self, dataset: Any, options: Options, augment: Callable[..., Any] | None, device: str, team: Alone
    ) -> None:
        self.options, self.augment, self.device = options, augment, device
        # a stream of its own for each purpose: augmenting more must not change the order of the samples
        self.order = Generator(options.seed + 1)
        self.augmentation = Generator(team.seed(options.seed + 2))
        self.sampler = team.sampler(dataset, options.seed + 1)
        self.loader = DataLoader(
            dataset,
            batch_size=options.batch_size,
            shuffle=self.sampler is None,
            sampler=self.sampler,
            generator=self.order,
            num_workers=options.workers,
        )

    def __len__(self) -> int:
        """Steps an epoch."""
        return -(-len(self.loader) // self.options.accumulate)

    def batches(self, epoch: int = 0) -> Iterator[Batch]:
        """The batches that are left of this epoch, augmented."""
        if self.sampler is not None:
            self.sampler.set_epoch(epoch)
        for batch in self.loader:
            yield self.augment(batch, self.augmentation) if self.augment else batch

    def groups(self, epoch: int = 0) -> Iterator[list[Batch]]:
        """The same, as many together as a step takes; the last group of an epoch may be smaller."""
        batches = self.batches(epoch)
        while group := list(islice(batches, self.options.accumulate)):
            yield group

    def placed(self, batch: Any) -> Batch:
        """A batch on the device."""
        return tuple(batch) if self.device == "cpu" else tuple(x.to(self.device) for x in batch)

    def indices(self, back: int = 1) -> tuple[int, list[int]]:
        """The number of a batch in its epoch, from 1, and its samples' indices in the whole data: drawn again.

        Args:
            back: 1 for the batch that was given last, 2 for the one before.

        Returns:
            0 and no indices where no such batch was given: a step may be taken with any batch.
        """
        state = self.loader.state_dict()
        number = state["position"] - back
        if number < 0:
            return 0, []
        if self.sampler is not None:
            first = number * self.options.batch_size
            order = self.sampler.order()[first : first + self.options.batch_size]
            return number + 1, traced(self.loader.dataset, order)
        everything = TensorDataset(np.arange(len(self.loader.dataset)))
        again = DataLoader(everything, batch_size=self.options.batch_size, shuffle=True, generator=Generator(0))
        again.load_state_dict(state | {"position": number})
        (indices,) = next(iter(again))
        return number + 1, traced(self.loader.dataset, indices.tolist())

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, and its generators."""
        return {
            "loader": self.loader.state_dict(),
            "order": self.order.get_state(),
            "augmentation": self.augmentation.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state["loader"])
        self.order.set_state(state["order"])
        self.augmentation.set_state(state["augmentation"])
