"""Ranks that run out of batches at different times."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import distributed as dist
from ox.core.mode import switch_mode
from ox.distributed.coalesced import broadcast_coalesced
from ox.errors import ArgumentError, DistributedError

EXHAUSTED, PLAIN, SYNCS, BUFFERS = 0, 1, 2, 4


class Join:
    """What `DistributedDataParallel.join` does: before each forward the ranks exchange what they are about to
    do, so that a rank without batches takes part in the same collectives."""

    def __init__(self, model: Any, divide_by_initial: bool, throw: bool) -> None:
        self.model, self.group = model, model.process_group
        self.divide_by_initial, self.throw = divide_by_initial, throw

    def before_forward(self, syncs: bool, buffers: bool) -> int:
        """Before a forward. Returns the rank whose buffers count: the first that still works."""
        states = self._gather_state(PLAIN | SYNCS * syncs | BUFFERS * buffers)
        active_states = [int(state) for state in states if state != EXHAUSTED]
        if any(state != active_states[0] for state in active_states):
            raise ArgumentError(
                "the ranks' forwards differ inside join()", got=str(states.tolist()),
                hint="no_sync(), no_grad() and eval() at the same batches on all ranks",
            )  # fmt: skip
        self._average(states)
        return int(np.flatnonzero(states)[0])

    def join_others(self) -> None:
        """When this rank has no more batches: take part in the collectives of the others until they end."""
        module, reducer = self.model.module, self.model.reducer
        last = dist.get_rank(self.group)
        while True:
            states = self._gather_state(EXHAUSTED)
            working = np.flatnonzero(states)
            if not len(working):
                break
            last = int(working[0])
            self._average(states)
            state = int(states[last])
            with switch_mode(grad=False):
                if state & BUFFERS:
                    broadcast_coalesced(
                        [b for _, b in module._dense_buffers()], last, self.group, "DistributedDataParallel.join"
                    )
                if state & SYNCS:
                    reducer.shadow()
        # the last ranks end the loop together and each names itself
        last_of = self._all_gather(last)
        last_ranks = [rank for rank, other in enumerate(last_of) if rank == other]
        with switch_mode(grad=False):
            everything = [*module.parameters(), *[b for _, b in module._dense_buffers()]]
            broadcast_coalesced(everything, last_ranks[-1], self.group, "DistributedDataParallel.join")

    def _gather_state(self, state: int) -> Any:
        states = self._all_gather(state)
        if self.throw and (states == EXHAUSTED).any():
            raise DistributedError(
                f"rank {int(np.flatnonzero(states == EXHAUSTED)[0])} has no more batches",
                hint="throw_on_early_termination=False goes on without it",
            )
        return states

    def _all_gather(self, value: int) -> Any:
        there = self.model.reducer.to_device_of_gradients
        out = there(np.zeros(dist.get_world_size(self.group), np.int32))
        dist.all_gather_into_tensor(out, there(np.array([value], np.int32)), group=self.group)
        return out.cpu().array

    def _average(self, states: Any) -> None:
        if not self.divide_by_initial:
            self.model.reducer.divisor = int((states != EXHAUSTED).sum())
