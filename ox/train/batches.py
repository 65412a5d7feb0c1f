"""The batches of the training data in their order, and the position of a run in them."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ox.data import DataLoader, TensorDataset
from ox.data.dataset import root_indices
from ox.data.loading.worker_seeds import mix
from ox.errors import RecipeError
from ox.random import Generator
from ox.train import rng_state
from ox.train.batch import map_tensors
from ox.train.ranks import Ranks
from ox.train.recipe.datasets import Strided, is_stream
from ox.train.run.train_config import TrainConfig
from ox.train.sampler import ReplayedSampler

Batch = Any


class TrainBatches:
    """Batches of the training data: shuffled each epoch, augmented, grouped into steps (gradient accumulation).

    Args:
        dataset: the training set.
        augment: the function of the recipe, or None.
        device: the device for the batches: "cpu" or "cuda".
        ranks: the ranks that share the data; each rank gets its own batches.
        collate: combines a list of samples into a batch; None: `ox.data.default_collate`.
        order: the `sampler` or `batch_sampler` of the recipe; None: all samples, in a new order each epoch.
    """

    def __init__(
        self,
        dataset: Any,
        options: TrainConfig,
        augment: Callable[..., Any] | None,
        device: str,
        ranks: Ranks,
        collate: Callable[[list[Any]], Any] | None = None,
        order: ReplayedSampler | None = None,
    ) -> None:
        self.options, self.augment, self.device, self.custom_order = options, augment, device, order
        # one generator per purpose: more augmentation must not change the order of the samples
        self.order = Generator(options.seed + 1)
        self.augmentation = Generator(ranks.rank_seed(options.seed + 2))
        self.stream = is_stream(dataset)
        if self.stream and ranks.size > 1:
            dataset = Strided(dataset, ranks.rank, ranks.size, whole=True)
        self.sampler = None if self.stream or order is not None else ranks.sampler(dataset, options.seed + 1)
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
        self._current_pass: collections.abc.Generator[Batch] | None = None
        self._stream_rng: dict[str, Any] | None = None  # the random states of a stream

    def __len__(self) -> int:
        """Steps per epoch. Raises TypeError if unknown."""
        if self.options.steps_per_epoch is not None:
            return self.options.steps_per_epoch
        return -(-len(self.loader) // self.options.accumulate)

    @property
    def steps(self) -> int | None:
        """Steps per epoch; None if unknown (a stream without a length)."""
        try:
            return len(self)
        except TypeError:
            return None

    def batches(self) -> Iterator[Batch]:
        """The remaining batches of this epoch, augmented."""
        for batch in self._single_pass() if self.options.steps_per_epoch is None else self._endless_passes():
            whole = tuple(batch) if type(batch) is list else batch
            yield self.augment(whole, self.augmentation) if self.augment else whole

    def groups(self, done: int = 0) -> Iterator[list[Batch]]:
        """The same in groups, one per step; the last group of an epoch may be smaller.

        Args:
            done: finished steps of this epoch.
        """
        batches = self.batches()
        count = self.options.steps_per_epoch
        while (count is None or done < count) and (group := list(islice(batches, self.options.accumulate))):
            done += 1
            yield group

    def close(self) -> None:
        """Ends the current pass and its workers."""
        if self._current_pass is not None:
            self._current_pass.close()
            self._current_pass = None

    def _single_pass(self) -> Iterator[Batch]:
        """One pass over the data, or the rest of it."""
        self._current_pass = self._pass()
        yield from self._current_pass
        self._current_pass = None

    def _endless_passes(self) -> Iterator[Batch]:
        """Batches without end: a new pass starts when the data are exhausted."""
        while True:
            has_batch = self.loader.state_dict()["position"] > 0
            self._current_pass = self._current_pass or self._pass()
            for batch in self._current_pass:
                has_batch = True
                yield batch
            self._current_pass = None
            if not has_batch:
                raise RecipeError("the training data gave no batch", hint="drop_last=False, or a smaller batch_size")

    def _pass(self) -> collections.abc.Generator[Batch]:
        """One pass over the data, or the rest of it."""
        number = self.loader.state_dict()["epoch"]
        if self.sampler is not None:
            self.sampler.set_epoch(number)
        if self.stream and not self.options.workers:
            yield from self._stream_pass(number)
        else:
            yield from self.loader

    def _stream_pass(self, number: int) -> Iterator[Batch]:
        """A stream in this process, with its own random states. So a resumed stream draws the same numbers as before,
        independent of the numbers that the model draws."""
        begun, self._stream_rng = self._stream_rng, None
        with rng_state.fork_rng():
            rng_state.seed(mix(self.options.seed, number))
            batches = iter(self.loader)
            now = begun or rng_state.get_state()
        while True:
            with rng_state.fork_rng():
                rng_state.set_state(now)
                batch = next(batches, self)  # the default is `self`, since a batch may be any other value
                now = rng_state.get_state()
            if batch is self:
                self._stream_rng = None
                return
            self._stream_rng = now
            yield batch

    def to_device(self, batch: Any) -> Batch:
        """Moves a batch to the device."""
        if type(batch) is list:
            batch = tuple(batch)
        return batch if self.device == "cpu" else map_tensors(lambda x: x.to(self.device), batch)

    def sample_indices(self, back: int = 1) -> tuple[int, list[int]]:
        """The number of a batch in its epoch, from 1, and the indices of its samples in the dataset. Draws the order
        again.

        Args:
            back: 1 for the last batch, 2 for the one before.

        Returns:
            0 and no indices if no such batch was returned (a step may use other batches). A stream has no indices.
        """
        state = self.loader.state_dict()
        number = state["position"] - back
        if number < 0:
            return 0, []
        size = self.options.batch_size
        if self.stream:
            return number + 1, []
        if self.custom_order is not None:
            return number + 1, root_indices(self.loader.dataset, self.custom_order.batch(number, size))
        if self.sampler is not None:
            return number + 1, root_indices(
                self.loader.dataset, self.sampler.order()[number * size : (number + 1) * size]
            )
        everything = TensorDataset(np.arange(len(self.loader.dataset)))
        again = DataLoader(everything, batch_size=size, shuffle=True, generator=Generator(0))
        again.load_state_dict(state | {"position": number})
        (indices,) = next(iter(again))
        return number + 1, root_indices(self.loader.dataset, indices.tolist())

    def state_dict(self) -> dict[str, Any]:
        """The state of the loader, and of the generators."""
        return {
            "loader": self.loader.state_dict(),
            "order": self.order.get_state(),
            "augmentation": self.augmentation.get_state(),
            "stream": self._stream_rng,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state["loader"])
        self.order.set_state(state["order"])
        self.augmentation.set_state(state["augmentation"])
        self._stream_rng, self._current_pass = state.get("stream"), None
        if self.custom_order is not None and not state["loader"].get("seed"):
            self.custom_order.skip_finished_pass()
