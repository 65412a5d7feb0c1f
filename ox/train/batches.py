"""The batches of the training data in their order, and the position of a run in them."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ox.data import DataLoader, TensorDataset
from ox.data.batch_map import map_tensors
from ox.data.dataset import NoCountError, root_indices
from ox.data.distributed import DistributedSampler
from ox.data.loading.worker_seeds import mix
from ox.data.sampler import RandomSampler
from ox.errors import RecipeError
from ox.random import Generator
from ox.train import rng_state
from ox.train.global_batch import DividedSampler, Share, convert_loader, used
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
        share: the batches of each rank in a step.
        begun: on how many ranks the run began: its order of samples stays.
        order: the `sampler` or `batch_sampler` of the recipe; None: all samples, in a new order each epoch.
    """

    def __init__(
        self,
        dataset: Any,
        options: TrainConfig,
        augment: Callable[..., Any] | None,
        device: str,
        ranks: Ranks,
        share: Share,
        begun: int,
        collate: Callable[[list[Any]], Any] | None = None,
        order: ReplayedSampler | None = None,
    ) -> None:
        self.options, self.augment, self.device, self.custom_order = options, augment, device, order
        self.share = share
        # one generator per purpose: more augmentation must not change the order of the samples
        self.order = Generator(options.seed + 1)
        self.augmentation = Generator(ranks.rank_seed(options.seed + 2))
        self.stream = is_stream(dataset)
        if self.stream and ranks.size > 1:
            dataset = Strided(dataset, ranks.rank, ranks.size, whole=True)
        self.sampler: Any = None
        if not self.stream and order is None:
            self.sampler = self._sampler(dataset, ranks, begun)
        shuffled = not self.stream and self.sampler is None and order is None
        # in another number of ranks, the sampler leaves out what the last batches of the first ranks left out
        drop_last = options.drop_last and (begun == ranks.size or self.stream)
        sizes: dict[str, Any] = {"batch_size": share.batch_size, "drop_last": drop_last}
        self.loader = DataLoader(
            dataset,
            **({"batch_sampler": order} if order is not None and order.batched else sizes),
            shuffle=shuffled or None,
            sampler=None if order is not None and order.batched else order or self.sampler,
            generator=self.order,
            num_workers=options.workers,
            collate_fn=collate,
            timeout=(options.timeout or 0) if options.workers else 0,
            pin_memory=device != "cpu" and augment is None,
        )
        self.loader.prefetch_device = device if device != "cpu" else None
        self._current_pass: collections.abc.Generator[Batch] | None = None
        self._stream_rng: dict[str, Any] | None = None  # the random states of a stream

    def _sampler(self, dataset: Any, ranks: Ranks, begun: int) -> Any:
        """The sampler of the training data; None for one process, in which the loader shuffles."""
        seed = self.options.seed + 1
        if begun == ranks.size:
            return ranks.sampler(dataset, seed)
        everything = (
            RandomSampler(dataset, generator=self.order)
            if begun == 1
            else DistributedSampler(dataset, num_replicas=1, rank=0, seed=seed)
        )
        return DividedSampler(everything, ranks.rank, ranks.size, used(self.options, begun, len(dataset)))

    def __len__(self) -> int:
        """Steps per epoch. Raises TypeError if unknown."""
        if self.options.steps_per_epoch is not None:
            return self.options.steps_per_epoch
        return -(-len(self.loader) // self.share.accumulate)

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
        while (count is None or done < count) and (group := list(islice(batches, self.share.accumulate))):
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
        return batch if self.device == "cpu" else map_tensors(lambda x: x.to(self.device, non_blocking=True), batch)

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
        size = self.share.batch_size
        if self.stream:
            return number + 1, []
        if self.custom_order is not None:
            return number + 1, root_indices(self.loader.dataset, self.custom_order.batch(number, size))
        if self.sampler is not None:
            order = self.sampler.drawn if isinstance(self.sampler, DividedSampler) else self.sampler.order()
            return number + 1, root_indices(self.loader.dataset, order[number * size : (number + 1) * size])
        everything = TensorDataset(np.arange(len(self.loader.dataset)))
        again = DataLoader(everything, batch_size=size, shuffle=True, generator=Generator(0))
        again.load_state_dict(state | {"position": number})
        (indices,) = next(iter(again))
        return number + 1, root_indices(self.loader.dataset, indices.tolist())

    def _batches_per_pass(self) -> int | None:
        try:
            return len(self.loader)
        except (NoCountError, TypeError):
            return None

    def state_dict(self) -> dict[str, Any]:
        """The state of the loader, and of the generators."""
        return {
            "loader": self.loader.state_dict(),
            "order": self.order.get_state(),
            "augmentation": self.augmentation.get_state(),
            "stream": self._stream_rng,
        }

    def load_state_dict(self, state: dict[str, Any], unit: int) -> None:
        """Restores a `state_dict`; `unit` is that of the share with which it was saved."""
        position = state["loader"]
        if unit != self.share.unit or isinstance(self.sampler, DividedSampler):
            position = convert_loader(position, unit, self.share, self._batches_per_pass())
        self.loader.load_state_dict(position)
        self.order.set_state(state["order"])
        self.augmentation.set_state(state["augmentation"])
        self._stream_rng, self._current_pass = state.get("stream"), None
        if self.custom_order is not None and not state["loader"].get("seed"):
            self.custom_order.skip_finished_pass()
