"""The progress of a loader in an epoch, from which its state is made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ox.core.random_stream import NEWEST, checked
from ox.data.loading.worker_seeds import mix
from ox.data.sampler import random_seed
from ox.errors import LoadError
from ox.random import Generator


@dataclass
class Progress:
    """The position in an epoch, and the random states at its start."""

    epoch: int  # number of earlier epochs
    seed: int  # the base of the seeds of the workers
    version: int = NEWEST  # of the random numbers of the workers
    order: dict[str, Any] | None = None  # the generator state from which the order was drawn
    sampler: Any = None  # the state_dict of the sampler at the start
    generator: dict[str, Any] | None = None  # of a stream's loader, after the seed was drawn; others: see `order`
    done: int = 0  # batches returned: those numbered below this
    done_ahead: list[int] = field(default_factory=list)  # batches returned out of order, with numbers above `done`
    # per worker: batches returned ("given"), whether it ended, the dataset's state
    streams: list[dict[str, Any]] | None = None
    next_worker: int = 0  # the number of the worker whose stream is next
    running: bool = True

    def add(self, batch: int) -> None:
        """Counts a returned batch."""
        if batch != self.done:
            self.done_ahead = sorted([*self.done_ahead, batch])
            return
        self.done += 1
        while self.done_ahead and self.done_ahead[0] == self.done:
            self.done_ahead.pop(0)
            self.done += 1

    def copy(self) -> Progress:
        """Another one, which does not follow this one."""
        streams = None if self.streams is None else [dict(stream) for stream in self.streams]
        return replace(self, done_ahead=list(self.done_ahead), streams=streams)

    def state(self) -> dict[str, Any]:
        """Plain numbers, and the states of sampler and datasets."""
        state: dict[str, Any] = {
            "position": self.done,
            "epoch_state": self.order,
            "epoch": self.epoch,
            "seed": self.seed,
            "version": self.version,
        }
        if self.sampler is not None:
            state["sampler"] = self.sampler
        if self.generator is not None:
            state["generator"] = self.generator
        if self.done_ahead:
            state["beyond"] = list(self.done_ahead)
        if self.streams is not None:
            state |= {"streams": [dict(stream) for stream in self.streams], "turn": self.next_worker}
        return state


def new_epoch(epoch: int, generator: Generator, rank: int) -> Progress:
    """A new epoch. The base of the workers' seeds is drawn from the generator, with any number of workers, so the order
    of samples does not depend on it. Workers of different ranks get different seeds."""
    if generator.version == 1:  # drew none
        state = generator.get_state()
        return Progress(epoch, mix(state["seed"], state["counter"], epoch, rank), version=1)
    seed = random_seed(generator)
    return Progress(epoch, mix(seed, rank) if rank else seed)


def from_state(state: dict[str, Any], length: int | None, workers: int, stream: bool) -> Progress:
    """The progress that a `state_dict` describes.

    Args:
        length: batches per epoch; None if unknown.
        workers: number of streams.

    Raises:
        LoadError: not a state of such a loader.
    """
    if not isinstance(state, dict):
        raise LoadError("invalid state of a loader", expected="what state_dict() gave", got=type(state).__name__)
    position, streams = state.get("position"), state.get("streams")
    if not isinstance(position, int) or position < 0 or (length is not None and position > length):
        raise LoadError(
            "the loader's state does not fit",
            expected=f"a position of 0 to {length} batches" if length is not None else "a position",
            got=repr(position),
            hint="the same dataset and batch size as when it was saved",
        )
    if streams is not None and (not stream or len(streams) != workers):
        raise LoadError(
            "the loader's state does not fit",
            expected=f"streams of {workers} workers" if stream else "a state of a dataset with indices",
            got=f"{len(streams)} streams",
            hint=f"num_workers={len(streams)}, as when it was saved",
        )
    return Progress(
        epoch=int(state.get("epoch") or 0),
        seed=int(state.get("seed") or 0),
        version=checked(state.get("version", 1)),
        order=state.get("epoch_state"),
        sampler=state.get("sampler"),
        generator=state.get("generator"),
        done=position,
        done_ahead=list(state.get("beyond") or []),
        streams=[dict(each) for each in streams] if streams is not None else None,
        next_worker=int(state.get("turn") or 0),
    )
