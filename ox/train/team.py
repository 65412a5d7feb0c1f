"""The ranks that train together, as a trainer sees them: alone, or through a process group.

A trainer asks the same of both, so its own code knows no ranks. Alone costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np

from ox import distributed as dist
from ox.errors import LoadError, TrainError
from ox.train.evaluate import Result, value_of
from ox.train.metrics import Metric

STRIDE = 1_000_003  # between the seeds of ranks: no run's other streams, which are one apart, come near


class Alone:
    """One process."""

    rank, size = 0, 1

    @property
    def first(self) -> bool:
        """Whether this process keeps the run's folder and shows what goes on."""
        return self.rank == 0

    def check(self, items: Mapping[str, Any]) -> None:
        """Raise a TrainError that names rank and item where the ranks were not told the same."""

    def wrapped(self, model: Any, own_step: bool) -> Any:
        """The model that a training step calls."""
        return model

    def quiet(self, model: Any, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one of several batches of a step: only the last brings the ranks together."""
        return nullcontext()

    def average(self, model: Any) -> None:
        """After backward: where the model was not wrapped, the gradients become their mean over ranks."""

    def averages(self, model: Any, optimizers: Sequence[Any]) -> None:
        """Before each step of these optimizers, which a page's own step calls: the gradients become their mean."""

    def mean(self, value: float) -> float:
        """The mean over ranks of a number of this one."""
        return value

    def seed(self, number: int) -> int:
        """The seed of a stream of random numbers that is each rank's own."""
        return (number + STRIDE * self.rank) % 2**63

    def sampler(self, dataset: Any, seed: int) -> Any:
        """What deals out the training data; None for all of it."""
        return None

    def joined(self, result: Result, metrics: Sequence[Metric] = ()) -> Result:
        """What all ranks have counted together, the same on all."""
        return result

    def decide(self, asked: Sequence[int], due: bool) -> tuple[int, bool]:
        """The signal that any rank was asked to stop by, or 0, and whether the first one's checkpoint is due."""
        return (asked[0] if asked else 0), due

    def gathered(self, own: Any) -> list[Any] | None:
        """What is each rank's own, of all ranks, for a checkpoint; None for one process."""
        return None

    def own(self, state: Mapping[str, Any]) -> Any:
        """This rank's own in a checkpoint; None for one process.

        Raises:
            LoadError: it is of another number of ranks.
        """
        ranks = state.get("ranks")
        count = 1 if ranks is None else len(ranks)
        if count != self.size:
            raise LoadError(
                f"the checkpoint is of {count} process{'es' * (count > 1)}, and this is one of {self.size}",
                expected=f"{count}: each process has its share of an epoch's samples and its own random numbers",
                hint=f"ox train --resume RUN --nproc {count}; or a new run",
            )
        return None if ranks is None else ranks[self.rank]

    def told(self, value: Any) -> Any:
        """What the first rank says."""
        return value

    def follow(self, model: Any) -> None:
        """Give the model the values of the first rank's."""


class Together(Alone):
    """A rank of the default process group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._bare = False

    def check(self, items: Mapping[str, Any]) -> None:
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, dict(items))
        for name, value in every[0].items():
            for rank, told in enumerate(every):
                if told.get(name) != value:
                    raise TrainError(
                        f"rank {rank} was told another {name} than rank 0",
                        where=f"rank {self.rank}",
                        extra={"rank 0": str(value), f"rank {rank}": str(told.get(name))},
                        hint="start all ranks with the same command, page and data",
                    )

    def wrapped(self, model: Any, own_step: bool) -> Any:
        from ox.nn.parallel import DistributedDataParallel
        from ox.nn.parallel.agreement import agree

        self._bare = own_step or not any(p.requires_grad for p in model.parameters())
        if not self._bare:
            # what trains alone trains on several processes, too: a parameter that no loss reaches is no error
            return DistributedDataParallel(model, find_unused_parameters=True)
        # a page's own step may call any part of the model, which a wrapper would not have
        agree([*model.named_parameters(), *model._dense_buffers()], None, "the trainer")
        self.follow(model)
        return model

    def quiet(self, model: Any, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last or self._bare else model.no_sync()

    def average(self, model: Any) -> None:
        if self._bare:
            self._average([p for p in model.parameters() if p.requires_grad])

    @staticmethod
    def _average(learning: list[Any]) -> None:
        """Gradients of these parameters become their mean; where only some ranks have one, the others count zero."""
        from ox.tensor import make_tensor

        there = make_tensor(np.array([p.grad is not None for p in learning], np.uint8))
        dist.all_reduce(there, dist.ReduceOp.MAX)
        for p, wanted in zip(learning, there.array, strict=True):
            if wanted:
                if p.grad is None:
                    p.grad = make_tensor(p.array * 0)
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)

    def averages(self, model: Any, optimizers: Sequence[Any]) -> None:
        def average(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._average([p for group in optimizer.param_groups for p in group["params"]])

        for optimizer in optimizers:
            optimizer.register_step_pre_hook(average)

    def mean(self, value: float) -> float:
        from ox.tensor import make_tensor

        whole = make_tensor(np.array([value], np.float64))
        dist.all_reduce(whole, dist.ReduceOp.SUM)
        return float(whole.array[0]) / self.size

    def sampler(self, dataset: Any, seed: int) -> Any:
        from ox.data.distributed import DistributedSampler

        return DistributedSampler(dataset, self.size, self.rank, seed=seed)

    def joined(self, result: Result, metrics: Sequence[Metric] = ()) -> Result:
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, [asdict(result), [metric.state_dict() for metric in metrics]])
        whole = Result()
        for metric in metrics:
            metric.reset()
        for counted, states in every:
            whole.join(Result(**counted))
            for metric, state in zip(metrics, states, strict=True):
                metric.merge(state)
        whole.metrics = {metric.name: value_of(metric) for metric in metrics}
        return whole

    def decide(self, asked: Sequence[int], due: bool) -> tuple[int, bool]:
        from ox.tensor import make_tensor

        flags = make_tensor(np.array([asked[0] if asked else 0, due and self.first], np.int64))
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        signal, save = flags.tolist()
        return signal, bool(save)

    def gathered(self, own: Any) -> list[Any] | None:
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, own)
        return every

    def told(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]

    def follow(self, model: Any) -> None:
        from ox.distributed.coalesced import share

        share([*model.parameters(), *[b for _, b in model._dense_buffers()]], 0, None, "the trainer")


def team() -> Alone:
    """Those that this process trains with."""
    return Together() if dist.is_initialized() and dist.get_world_size() > 1 else Alone()
