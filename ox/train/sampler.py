"""Wraps a sampler of the user so that its orders can be repeated in a resumed run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ox.data.sampler import Sampler
from ox.errors import RecipeError
from ox.train import rng_state
from ox.train.global_batch import divide, used
from ox.train.ranks import Ranks
from ox.train.run.train_config import TrainConfig


class ReplayedSampler(Sampler):
    """Draws the whole order of a pass when it begins, and remembers the random state it began with. A resumed run sets
    that state and draws again; a sampler with its own random numbers or counters computes its earlier orders again
    first, or, where it has `state_dict` and `load_state_dict`, gets its state back.

    Several ranks share out the first one's order; where it does not come out even, the first entries come twice.

    Args:
        user_sampler: an iterable of indices, or of lists of indices if `batched`; each `iter(user_sampler)` is a pass.
        count: how many entries of a sampler without a length make a pass.

    Raises:
        RecipeError: it is no sampler, or it has no length.
    """

    def __init__(self, user_sampler: Any, ranks: Ranks, batched: bool = False, count: int | None = None) -> None:
        name = "batch_sampler" if batched else "sampler"
        if not hasattr(user_sampler, "__iter__") or isinstance(user_sampler, Iterator):
            raise RecipeError(
                f"the {name} cannot be iterated {'more than once' if hasattr(user_sampler, '__iter__') else 'over'}",
                expected="a Sampler, or a list of indices", got=type(user_sampler).__name__,
            )  # fmt: skip
        if not hasattr(user_sampler, "__len__") and count is None:
            raise RecipeError(
                f"the {name} has no length", got=type(user_sampler).__name__,
                hint="def __len__(self) in it, or steps_per_epoch in defaults",
            )  # fmt: skip
        self.user_sampler, self.ranks, self.batched, self.count = user_sampler, ranks, batched, count
        self.used: int | None = None  # how many entries of a pass are used, if not all
        self.passes = 0
        self.drawn: list[Any] = []
        self._resume: dict[str, Any] | None = None
        if batched:
            self.sampler = self  # a loader reads the state of its `sampler`

    def __len__(self) -> int:
        return -(-(self.entries if self.used is None else self.used) // self.ranks.size)

    def continue_run_of(self, begun: int, options: TrainConfig) -> None:
        """Draws what ranks of this number would: the run to resume began with them."""
        if self.count is not None:
            self.count = self.count // self.ranks.size * begun
        self.used = used(options, begun, self.entries, self.batched)

    @property
    def entries(self) -> int:
        """The entries of a pass, of all ranks."""
        whole = len(self.user_sampler) if hasattr(self.user_sampler, "__len__") else self.count
        assert whole is not None
        return int(whole)

    def __iter__(self) -> Iterator[Any]:
        state, self._resume = self._resume, None
        if state is None:
            drawn = self._draw_pass()
        else:
            with rng_state.fork_rng():
                self._rewind(state)
                rng_state.set_state(state["random"])
                drawn = self._draw_pass()
        if self.used is not None:
            drawn = [*drawn, *drawn[: self.used - len(drawn)]][: self.used]
        if self.ranks.size > 1:
            drawn = divide(self.ranks.broadcast(drawn), self.ranks.rank, self.ranks.size)
        self.drawn = drawn
        return iter(drawn)

    def _draw_pass(self) -> list[Any]:
        if hasattr(self.user_sampler, "set_epoch"):
            self.user_sampler.set_epoch(self.passes)
        self.passes += 1
        entries = (
            iter(self.user_sampler) if hasattr(self.user_sampler, "__len__") else islice(self.user_sampler, self.count)
        )
        if self.batched:
            return [[int(i) for i in batch] for batch in entries]
        return [int(i) for i in entries]

    def _rewind(self, state: dict[str, Any]) -> None:
        """Brings the sampler of a new process to its state at the start of the pass."""
        if state.get("own") is not None:
            self.user_sampler.load_state_dict(state["own"])
            self.passes = state["passes"]
        while self.passes < state["passes"]:
            self._draw_pass()

    def skip_finished_pass(self) -> None:
        """The loaded state was saved after a finished pass: skip that pass, the next is drawn as usual."""
        state, self._resume = self._resume, None
        if state is not None:
            with rng_state.fork_rng():
                self._rewind(state)

    def batch(self, number: int, size: int) -> list[int]:
        """The indices of a batch of the current pass."""
        return list(self.drawn[number] if self.batched else self.drawn[number * size : (number + 1) * size])

    def state_dict(self) -> dict[str, Any]:
        """The state from which the next pass is drawn."""
        if self._resume is not None:
            return self._resume
        keeps = hasattr(self.user_sampler, "state_dict") and hasattr(self.user_sampler, "load_state_dict")
        return {
            "passes": self.passes,
            "random": rng_state.get_state(),
            "own": self.user_sampler.state_dict() if keeps else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._resume = state
