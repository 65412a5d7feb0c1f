"""Ranks that run out of batches at different times."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import distributed as dist
from ox.distributed.coalesced import share
from ox.errors import ArgumentError, DistributedError
from ox.ops.mode import switched

AWAY, PLAIN, SYNCS, BUFFERS = 0, 1, 2, 4


class Join:
    """What `DistributedDataParallel.join` does: before each forward the ranks tell each other what they are about to
    do, so one that is done knows what it has to take part in."""

    def __init__(self, model: Any, divide_by_initial: bool, throw: bool) -> None:
        self.model, self.group = model, model.process_group
        self.divide_by_initial, self.throw = divide_by_initial, throw

    def meet(self, syncs: bool, buffers: bool) -> int:
        """Before a forward. Returns the rank whose buffers count: the first that still works."""
        told = self._told(PLAIN | SYNCS * syncs | BUFFERS * buffers)
        here = [int(say) for say in told if say != AWAY]
        if any(say != here[0] for say in here):
            raise ArgumentError(
                "the ranks' forwards differ inside join()", got=str(told.tolist()),
                hint="no_sync(), no_grad() and eval() at the same batches on all ranks",
            )  # fmt: skip
        self._average(told)
        return int(np.flatnonzero(told)[0])

    def follow(self) -> None:
        """When this rank is done: take part in what the others do, until they are."""
        module, reducer = self.model.module, self.model.reducer
        last = dist.get_rank(self.group)
        while True:
            told = self._told(AWAY)
            working = np.flatnonzero(told)
            if not len(working):
                break
            last = int(working[0])
            self._average(told)
            say = int(told[last])
            with switched(grad=False):
                if say & BUFFERS:
                    share([b for _, b in module._dense_buffers()], last, self.group, "DistributedDataParallel.join")
                if say & SYNCS:
                    reducer.shadow()
        # those who came last end the loop at once and take themselves for the last
        lasts = self._gathered(last)
        came_last = [rank for rank, other in enumerate(lasts) if rank == other]
        with switched(grad=False):
            everything = [*module.parameters(), *[b for _, b in module._dense_buffers()]]
            share(everything, came_last[-1], self.group, "DistributedDataParallel.join")

    def _told(self, say: int) -> Any:
        told = self._gathered(say)
        if self.throw and (told == AWAY).any():
            raise DistributedError(
                f"rank {int(np.flatnonzero(told == AWAY)[0])} has no more batches",
                hint="throw_on_early_termination=False goes on without it",
            )
        return told

    def _gathered(self, value: int) -> Any:
        there = self.model.reducer.there
        out = there(np.zeros(dist.get_world_size(self.group), np.int32))
        dist.all_gather_into_tensor(out, there(np.array([value], np.int32)), group=self.group)
        return out.cpu().array

    def _average(self, told: Any) -> None:
        if not self.divide_by_initial:
            self.model.reducer.share = int((told != AWAY).sum())
