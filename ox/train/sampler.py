"""A sampler of the user's own, whose orders can be drawn again: what a resumed run needs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ox.data.sampler import Sampler
from ox.errors import RecipeError
from ox.train import chance
from ox.train.team import Alone


class ReplayedSampler(Sampler):
    """Draws the whole order of a pass when it begins, and remembers the random state it began with. A resumed run sets
    that state and draws again; a sampler with random numbers or counters of its own is asked for its earlier orders
    first, or, where it has `state_dict` and `load_state_dict`, gets its state back.

    Several ranks share out the first one's order; where it does not come out even, the first entries come twice.

    Args:
        own: gives indices, or lists of indices where `batched`; each `iter(own)` is a pass.
        count: how many entries of a sampler without a length make a pass.

    Raises:
        RecipeError: it is no sampler, or nobody knows its length.
    """

    def __init__(self, own: Any, team: Alone, batched: bool = False, count: int | None = None) -> None:
        name = "batch_sampler" if batched else "sampler"
        if not hasattr(own, "__iter__") or isinstance(own, Iterator):
            raise RecipeError(
                f"the {name} cannot be iterated {'more than once' if hasattr(own, '__iter__') else 'over'}",
                expected="a Sampler, or a list of indices", got=type(own).__name__,
            )  # fmt: skip
        if not hasattr(own, "__len__") and count is None:
            raise RecipeError(
                f"the {name} has no length", got=type(own).__name__,
                hint="def __len__(self) in it, or steps_per_epoch in defaults",
            )  # fmt: skip
        self.own, self.team, self.batched, self.count = own, team, batched, count
        self.passes = 0
        self.drawn: list[Any] = []
        self._resume: dict[str, Any] | None = None
        if batched:
            self.sampler = self  # whom a loader asks for the state

    def __len__(self) -> int:
        whole = len(self.own) if hasattr(self.own, "__len__") else self.count
        assert whole is not None
        return -(-int(whole) // self.team.size)

    def __iter__(self) -> Iterator[Any]:
        state, self._resume = self._resume, None
        if state is None:
            drawn = self._drawn()
        else:
            with chance.kept():
                self._rewind(state)
                chance.set_state(state["random"])
                drawn = self._drawn()
        if self.team.size > 1:
            drawn = self.team.told(drawn)
            drawn = [*drawn, *drawn[: -len(drawn) % self.team.size]][self.team.rank :: self.team.size]
        self.drawn = drawn
        return iter(drawn)

    def _drawn(self) -> list[Any]:
        if hasattr(self.own, "set_epoch"):
            self.own.set_epoch(self.passes)
        self.passes += 1
        entries = iter(self.own) if hasattr(self.own, "__len__") else islice(self.own, self.count)
        if self.batched:
            return [[int(i) for i in batch] for batch in entries]
        return [int(i) for i in entries]

    def _rewind(self, state: dict[str, Any]) -> None:
        """Bring a sampler of a new process to where it stood when the pass began."""
        if state.get("own") is not None:
            self.own.load_state_dict(state["own"])
            self.passes = state["passes"]
        while self.passes < state["passes"]:
            self._drawn()

    def between(self) -> None:
        """The state that was loaded is one between two passes: the next is drawn like any other."""
        state, self._resume = self._resume, None
        if state is not None:
            with chance.kept():
                self._rewind(state)

    def batch(self, number: int, size: int) -> list[int]:
        """The indices of a batch of the pass that began last."""
        return list(self.drawn[number] if self.batched else self.drawn[number * size : (number + 1) * size])

    def state_dict(self) -> dict[str, Any]:
        """What the pass that begins now is drawn from."""
        if self._resume is not None:
            return self._resume
        keeps = hasattr(self.own, "state_dict") and hasattr(self.own, "load_state_dict")
        return {
            "passes": self.passes,
            "random": chance.get_state(),
            "own": self.own.state_dict() if keeps else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._resume = state
