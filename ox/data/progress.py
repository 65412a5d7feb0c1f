"""How far an epoch has come: what a loader's state is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ox.data.seeds import mix
from ox.errors import LoadError
from ox.ops.explain import place


@dataclass
class Progress:
    """One epoch: where it stands, and what it began with."""

    epoch: int  # epochs begun before
    seed: int  # what the workers' seeds come from
    order: dict[str, Any] | None = None  # the state of the generator that its order was drawn from
    sampler: Any = None  # the sampler's own state when it began
    given: int = 0  # batches given
    beyond: list[int] = field(default_factory=list)  # and those given out of order, behind one that was not
    streams: list[dict[str, Any]] | None = None  # by worker: batches given, whether it ended, its dataset's state
    turn: int = 0  # the worker whose stream is next
    running: bool = True

    def gave(self, batch: int) -> None:
        """Note a batch as given."""
        if batch != self.given:
            self.beyond = sorted([*self.beyond, batch])
            return
        self.given += 1
        while self.beyond and self.beyond[0] == self.given:
            self.beyond.pop(0)
            self.given += 1

    def state(self) -> dict[str, Any]:
        """Plain numbers, and what sampler and datasets gave as their state."""
        state: dict[str, Any] = {
            "position": self.given,
            "epoch_state": self.order,
            "epoch": self.epoch,
            "seed": self.seed,
        }
        if self.sampler is not None:
            state["sampler"] = self.sampler
        if self.beyond:
            state["beyond"] = list(self.beyond)
        if self.streams is not None:
            state |= {"streams": [dict(stream) for stream in self.streams], "turn": self.turn}
        return state


def fresh(epoch: int, generator: dict[str, int], rank: int) -> Progress:
    """A new epoch. The generator is not drawn from: the order of samples does not depend on the number of workers.
    Ranks that began with the same seed draw different numbers in their workers."""
    return Progress(epoch, mix(generator["seed"], generator["counter"], epoch, rank))


def resumed(state: dict[str, Any], length: int | None, workers: int, stream: bool) -> Progress:
    """The epoch that `state` is of.

    Args:
        length: batches an epoch; None where nobody knows.
        workers: how many streams there are.

    Raises:
        LoadError: it is not a state of such a loader.
    """
    if not isinstance(state, dict):
        raise LoadError(
            "this is no state of a loader", where=place(), expected="what state_dict() gave", got=type(state).__name__
        )
    position, streams = state.get("position"), state.get("streams")
    if not isinstance(position, int) or position < 0 or (length is not None and position > length):
        raise LoadError(
            "the loader's state does not fit",
            where=place(),
            expected=f"a position of 0 to {length} batches" if length is not None else "a position",
            got=repr(position),
            hint="the same dataset and batch size as when it was saved",
        )
    if streams is not None and (not stream or len(streams) != workers):
        raise LoadError(
            "the loader's state does not fit",
            where=place(),
            expected=f"streams of {workers} workers" if stream else "a state of a dataset with indices",
            got=f"{len(streams)} streams",
            hint=f"num_workers={len(streams)}, as when it was saved",
        )
    return Progress(
        epoch=int(state.get("epoch") or 0),
        seed=int(state.get("seed") or 0),
        order=state.get("epoch_state"),
        sampler=state.get("sampler"),
        given=position,
        beyond=list(state.get("beyond") or []),
        streams=[dict(each) for each in streams] if streams is not None else None,
        turn=int(state.get("turn") or 0),
    )
