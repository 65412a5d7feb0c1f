"""Communication between the ranks of a training run: one process, or a process group.

`Ranks` is the interface and its implementation for one process; `DistributedRanks` uses `ox.distributed`. So the
trainer has the same code for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ox import distributed as dist
from ox.errors import TrainError
from ox.train.evaluation import Result, value_of
from ox.train.metrics import Metric

STRIDE = 1_000_003  # between the seeds of ranks; large, because the seeds of one rank's generators differ by one


class Ranks:
    """One process: rank 0 of 1."""

    rank, size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes the run folder and prints the progress."""
        return self.rank == 0

    def check_equal(self, items: Mapping[str, Any]) -> None:
        """Raise a TrainError, with rank and item, if the values of `items` differ between ranks."""

    def wrap_model(self, model: Any, user_step: bool) -> Any:
        """The model that a training step calls: wrapped in `DistributedDataParallel` for several ranks.

        Args:
            user_step: the recipe has its own `step`; the model is not wrapped then.
        """
        return model

    def no_sync(self, model: Any, last: bool) -> AbstractContextManager[Any]:
        """A context for forward and backward of one batch of a step: gradients are exchanged only in the last one."""
        return nullcontext()

    def average_gradients(self, model: Any) -> None:
        """After backward: replaces the gradients by their mean over ranks, if the model was not wrapped."""

    def average_before_step(self, model: Any, optimizers: Sequence[Any]) -> None:
        """Registers a hook that averages the gradients over ranks before each step of these optimizers."""

    def sum(self, value: float) -> float:
        """The sum of a number over ranks."""
        return value

    def rank_seed(self, number: int) -> int:
        """The seed of a random generator that differs between ranks."""
        return (number + STRIDE * self.rank) % 2**63

    def sampler(self, dataset: Any, seed: int) -> Any:
        """The sampler that distributes the training data over ranks; None for one process."""
        return None

    def all_reduce_result(self, result: Result, metrics: Sequence[Metric] = ()) -> Result:
        """The sum of the results of all ranks, the same on each; `metrics` are merged in place."""
        return result

    def agree(self, signals: Sequence[int], due: bool, wanted: bool) -> tuple[int, bool, bool]:
        """The signal to stop that any rank received, or 0; whether rank 0 has a checkpoint `due`; and whether any rank
        was asked for one."""
        return (signals[0] if signals else 0), due, wanted

    def all_gather(self, state: Any) -> list[Any] | None:
        """The states of all ranks, for a checkpoint; None for one process."""
        return None

    def own_state(self, states: Sequence[Any]) -> dict[str, Any]:
        """The state of this rank, from those of all ranks of a checkpoint.

        Of another number of ranks, the sums over the current epoch are shared out, and a rank that was not there
        before has no random states."""
        if len(states) == self.size:
            return dict(states[self.rank])
        own = dict(states[self.rank]) if self.rank < len(states) else {"random": None, "augmentation": None}
        running = Result()
        for other in states[self.rank :: self.size]:
            running.join(Result(**other["running"]))
        return own | {"running": asdict(running)}

    def broadcast(self, value: Any) -> Any:
        """The value of rank 0."""
        return value

    def broadcast_weights(self, model: Any) -> None:
        """Copies the parameters and buffers of rank 0 into the model."""


_host_groups: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by the default group


def _host_group() -> Any:
    """A group of all ranks that exchanges what is on the host: with NCCL, each such exchange would wait for the GPU."""
    world = dist.GroupMember.WORLD
    if dist.get_backend() == "mpi":
        return world
    if world not in _host_groups:
        _host_groups[world] = dist.new_group(backend="gloo")
    return _host_groups[world]


class DistributedRanks(Ranks):
    """A rank of the default process group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._wrapped, self._host = False, _host_group()

    def check_equal(self, items: Mapping[str, Any]) -> None:
        all_items: list[Any] = [None] * self.size
        dist.all_gather_object(all_items, dict(items), group=self._host)
        for name, value in all_items[0].items():
            for rank, other in enumerate(all_items):
                if other.get(name) != value:
                    raise TrainError(
                        f"rank {rank} has another {name} than rank 0",
                        where=f"rank {self.rank}",
                        extra={"rank 0": str(value), f"rank {rank}": str(other.get(name))},
                        hint="start all ranks with the same command, recipe file and data",
                    )

    def wrap_model(self, model: Any, user_step: bool) -> Any:
        from ox.nn.parallel import DistributedDataParallel
        from ox.nn.parallel.model_check import check_same_on_all_ranks

        self._wrapped = not user_step and any(p.requires_grad for p in model.parameters())
        if self._wrapped:
            # a parameter that the loss does not reach is not an error in one process, so it is none here
            return DistributedDataParallel(model, find_unused_parameters=True)
        # a step() of the recipe may call any part of the model; a wrapper does not have these parts
        check_same_on_all_ranks([*model.named_parameters(), *model._dense_buffers()], None, "the trainer")
        self.broadcast_weights(model)
        return model

    def no_sync(self, model: Any, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last or not self._wrapped else model.no_sync()

    def average_gradients(self, model: Any) -> None:
        if not self._wrapped:
            self._average([p for p in model.parameters() if p.requires_grad])

    def _average(self, parameters: list[Any]) -> None:
        """Replaces the gradients by their mean over ranks. Missing gradients count as zero if another rank has one."""
        from ox.tensors.tensor import make_tensor

        has_gradient = make_tensor(np.array([p.grad is not None for p in parameters], np.uint8))
        dist.all_reduce(has_gradient, dist.ReduceOp.MAX, group=self._host)
        for p, needed in zip(parameters, has_gradient.array, strict=True):
            if needed:
                if p.grad is None:
                    p.grad = make_tensor(p.array * 0)
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)

    def average_before_step(self, model: Any, optimizers: Sequence[Any]) -> None:
        def average(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._average([p for group in optimizer.param_groups for p in group["params"]])

        for optimizer in optimizers:
            optimizer.register_step_pre_hook(average)

    def sum(self, value: float) -> float:
        from ox.tensors.tensor import make_tensor

        total = make_tensor(np.array([value], np.float64))
        dist.all_reduce(total, dist.ReduceOp.SUM, group=self._host)
        return float(total.array[0])

    def sampler(self, dataset: Any, seed: int) -> Any:
        from ox.data.distributed import DistributedSampler

        return DistributedSampler(dataset, self.size, self.rank, seed=seed)

    def all_reduce_result(self, result: Result, metrics: Sequence[Metric] = ()) -> Result:
        results: list[Any] = [None] * self.size
        dist.all_gather_object(results, [asdict(result), [metric.state_dict() for metric in metrics]], group=self._host)
        total = Result()
        for metric in metrics:
            metric.reset()
        for counts, states in results:
            total.join(Result(**counts))
            for metric, state in zip(metrics, states, strict=True):
                metric.merge(state)
        total.metrics = {metric.name: value_of(metric) for metric in metrics}
        return total

    def agree(self, signals: Sequence[int], due: bool, wanted: bool) -> tuple[int, bool, bool]:
        from ox.tensors.tensor import make_tensor

        flags = make_tensor(np.array([signals[0] if signals else 0, due and self.is_first, wanted], np.int64))
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._host)
        number, due, wanted = flags.tolist()
        return number, bool(due), bool(wanted)

    def all_gather(self, state: Any) -> list[Any] | None:
        states: list[Any] = [None] * self.size
        dist.all_gather_object(states, state, group=self._host)
        return states

    def broadcast(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, group=self._host)
        return values[0]

    def broadcast_weights(self, model: Any) -> None:
        from ox.distributed.coalesced import broadcast_coalesced

        broadcast_coalesced([*model.parameters(), *[b for _, b in model._dense_buffers()]], 0, None, "the trainer")


def current_ranks() -> Ranks:
    """The ranks of the default process group; one process if there is no group."""
    return DistributedRanks() if dist.is_initialized() and dist.get_world_size() > 1 else Ranks()
