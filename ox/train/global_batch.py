"""How the ranks share the samples of a step. A run keeps its samples per step on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ox.data.sampler import Sampler
from ox.errors import TrainError
from ox.train.run.train_config import TrainConfig

SHOWN = 12  # numbers of processes that an error lists


@dataclass(frozen=True)
class Share:
    """What each rank does in a step: `accumulate` batches of `batch_size` samples.

    With a `batch_sampler`, whose batches cannot be divided, `unit` is 1, and the ranks share whole batches."""

    batch_size: int
    accumulate: int
    processes: int
    batched: bool = False

    @property
    def unit(self) -> int:
        """The samples of one batch of all ranks; with a `batch_sampler`, the batches."""
        return self.processes * (1 if self.batched else self.batch_size)

    def __str__(self) -> str:
        parts = "" if self.batched else f" × batch size {self.batch_size}"
        total = f"{self.unit * self.accumulate} {'batches' if self.batched else 'samples'}"
        count = f"{self.processes} process{'es' * (self.processes > 1)}"
        return f"{total}: {count}{parts} × accumulate {self.accumulate}"


def share(options: TrainConfig, begun: int, now: int, batched: bool = False, one_batch: bool = False) -> Share:
    """The share of each rank, if the run began on `begun` ranks and there are `now`.

    The batches become no larger than those of the options, unless `one_batch`.

    Args:
        batched: the batches are those of a `batch_sampler`.
        one_batch: a step cannot accumulate: a recipe's `step(model, batch, optimizers)`.

    Raises:
        TrainError: `now` ranks cannot share a step evenly; says which numbers can.
    """
    size, accumulate = options.batch_size, options.accumulate
    if begun == now:
        return Share(size, accumulate, now, batched)
    total = begun * accumulate * (1 if batched else size)
    if total % now or (batched and one_batch and total != now):
        unit = "batches of the batch_sampler" if batched else "samples"
        even = [str(n) for n in range(1, total + 1) if not total % n] if not (batched and one_batch) else [str(begun)]
        raise TrainError(
            f"{now} processes cannot share the {total} {unit} of each step of this run evenly",
            expected=f"{', '.join(even[:SHOWN])}{', ...' * (len(even) > SHOWN)} processes",
            got=f"{now}; the run began on {begun}, with batch size {size} and accumulate {accumulate}",
            hint=f"ox train --resume RUN --nproc {begun}, or --nnodes and --nproc-per-node that make such a number",
        )
    own = total // now
    if batched:
        return Share(size, own, now, batched)
    parts = 1 if one_batch else next(parts for parts in range(-(-own // size), own + 1) if not own % parts)
    return Share(own // parts, parts, now)


def used(options: TrainConfig, begun: int, entries: int, batched: bool = False) -> int:
    """How many entries of an epoch's order are used in all: with `drop_last`, `begun` ranks left out their last
    batches."""
    if not options.drop_last or batched:
        return entries
    return -(-entries // begun) // options.batch_size * options.batch_size * begun


def divide(order: Sequence[Any], rank: int, size: int) -> list[Any]:
    """Every `size`-th entry from number `rank` on. The first entries are repeated, so that all ranks get as many."""
    missing = -len(order) % size
    whole = [*order, *(order[i % len(order)] for i in range(missing))] if len(order) else []
    return whole[rank::size]


class DividedSampler(Sampler):
    """The order of a sampler that is equal on all ranks, divided among them.

    Step k of any number of ranks has the same samples, because the ranks take turns.

    Args:
        source: draws the order of all ranks.
        total: how many of its entries are used.
    """

    def __init__(self, source: Any, rank: int, size: int, total: int) -> None:
        self.source, self.rank, self.size, self.total = source, rank, size, total
        self.drawn: list[int] = []

    def __len__(self) -> int:
        return -(-self.total // self.size)

    def __iter__(self) -> Iterator[int]:
        order = self.source.order().tolist()
        order = [*order, *order[: self.total - len(order)]][: self.total]
        self.drawn = divide(order, self.rank, self.size)
        return iter(self.drawn)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of a `DistributedSampler`."""
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)

    @property
    def epoch_state(self) -> Any:
        """The generator's state at the start of the epoch, for the state of the loader."""
        return getattr(self.source, "epoch_state", None)

    @property
    def resume(self) -> Any:
        """Such a state, of an epoch to repeat."""
        return getattr(self.source, "resume", None)

    @resume.setter
    def resume(self, state: Any) -> None:
        self.source.resume = state


def convert_loader(state: dict[str, Any], before: int, share: Share, length: int | None) -> dict[str, Any]:
    """The state of a loader for another number of ranks: the position in the order of all ranks stays.

    Args:
        before: the `unit` of the share with which it was saved.
        length: batches per pass; None if unknown.

    Raises:
        TrainError: several workers read a stream.
    """
    position = state["position"] * before // share.unit
    if length is not None:
        position = min(position, length)
    converted = {name: value for name, value in state.items() if name not in ("beyond", "streams")}
    streams = state.get("streams")
    if streams is not None:
        if len(streams) > 1:
            raise TrainError(
                "the position of several workers in a stream is that of one number of processes",
                expected="as many processes as before, workers=0, or a stop between two epochs",
            )
        converted["streams"] = [{**streams[0], "given": position}]
    if isinstance(state.get("sampler"), dict) and "num_replicas" in state["sampler"]:
        del converted["sampler"]  # the epoch says it all
    return converted | {"position": position}
