"""DistributedSampler: each process gets a part of a dataset. `torch.utils.data.distributed`."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from ox import random
from ox.data.sampler import Sampler
from ox.errors import ArgumentError, LoadError


class DistributedSampler(Sampler):
    """Every `num_replicas`-th sample, from number `rank` on. `torch.utils.data.distributed.DistributedSampler`.

    All processes get the same number of samples: if the dataset does not divide evenly, its first samples are repeated,
    or with `drop_last` its last ones are left out. Call `set_epoch` before each epoch; otherwise all epochs have the
    same order.

    Args:
        num_replicas: number of processes; default: the world size.
        rank: default: the rank of this process.
        shuffle: random order, the same permutation in all processes.
        seed: must be equal in all processes.
        drop_last: leave out the last samples instead of repeating the first.

    Raises:
        ArgumentError: a rank outside 0 to `num_replicas` - 1.
        DistributedError: `num_replicas` or `rank` is None and there is no process group.
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
                expected=f"0 to {num_replicas - 1}",
                got=repr(rank),
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else -(-count // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def order(self) -> np.ndarray[Any, Any]:
        """The indices of this process in the epoch, int64 [num_samples]."""
        count = len(self.dataset)
        generator = random.Generator(self.seed + self.epoch)
        order = random.permutation(count, generator, kind="distributed_shuffle") if self.shuffle else np.arange(count)
        if count and not self.drop_last:
            order = np.resize(order, self.total_size)  # repeats from the beginning as often as needed
        return order[self.rank : self.total_size : self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which determines the next order."""
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """The state from which every process can compute the order of this epoch."""
        return {"epoch": self.epoch, "seed": self.seed, "num_replicas": self.num_replicas}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the epoch of a state.

        Raises:
            LoadError: the state is of another number of processes.
        """
        if state_dict.get("num_replicas") != self.num_replicas or not isinstance(state_dict.get("epoch"), int):
            raise LoadError(
                "the sampler's state does not fit",
                expected=f"one of {self.num_replicas} processes",
                got=repr(state_dict),
                hint="as many processes as when it was saved, or begin the epoch anew",
            )
        self.epoch, self.seed = state_dict["epoch"], state_dict.get("seed", self.seed)
