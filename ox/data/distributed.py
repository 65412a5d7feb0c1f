"""DistributedSampler: each process takes its share of a dataset. `torch.utils.data.distributed`."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from ox import random
from ox.data.sampler import Sampler
from ox.errors import ArgumentError, LoadError
from ox.ops.explain import place


class DistributedSampler(Sampler):
    """Every `num_replicas`-th sample, from number `rank` on. `torch.utils.data.distributed.DistributedSampler`.

    All processes get the same number of samples: where the dataset does not divide evenly, its first samples come a
    second time, or with `drop_last` its last ones not at all. Call `set_epoch` before each epoch, or all epochs have
    the same order.

    Args:
        num_replicas: processes; None for the world's size.
        rank: which of them this is; None for this process's rank.
        shuffle: in random order, the same permutation in every process.
        seed: the same number in every process.
        drop_last: leave the tail out rather than fill it up.

    Raises:
        ArgumentError: a rank that is none of the processes.
        DistributedError: the world is asked for and there is none.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from ox import distributed

            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if num_replicas < 1 or not 0 <= rank < num_replicas:
            raise ArgumentError(
                f"there is no rank {rank} among {num_replicas} processes",
                where=place(),
                expected=f"0 to {num_replicas - 1}",
                got=repr(rank),
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else -(-count // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def order(self) -> np.ndarray[Any, Any]:
        """This process's share of the epoch as int64 [num_samples]."""
        count = len(self.dataset)
        generator = random.Generator(self.seed + self.epoch)
        whole = random.randperm(count, generator=generator).array if self.shuffle else np.arange(count)
        if count and not self.drop_last:
            whole = np.resize(whole, self.total_size)  # from the beginning again, as often as it takes
        return whole[self.rank : self.total_size : self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next order is of."""
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """What the order of this epoch comes from, in every process."""
        return {"epoch": self.epoch, "seed": self.seed, "num_replicas": self.num_replicas}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the epoch of a state.

        Raises:
            LoadError: it is of another number of processes, whose shares were others.
        """
        if state_dict.get("num_replicas") != self.num_replicas or not isinstance(state_dict.get("epoch"), int):
            raise LoadError(
                "the sampler's state does not fit",
                where=place(),
                expected=f"one of {self.num_replicas} processes",
                got=repr(state_dict),
                hint="as many processes as when it was saved, or begin the epoch anew",
            )
        self.epoch, self.seed = state_dict["epoch"], state_dict.get("seed", self.seed)
