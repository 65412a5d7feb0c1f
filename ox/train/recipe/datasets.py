"""The parts of a recipe's data: datasets with a length, or streams without one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ox.data import IterableDataset, Subset


@dataclass(frozen=True)
class Data:
    """The parts of a recipe's data. A dataset returns one sample per index: a tuple with the target last, or a dict; an
    `IterableDataset` yields samples in order. `held_back` is the test set."""

    train: Any
    validation: Any | None
    held_back: Any | None

    def parts(self) -> dict[str, Any]:
        """The datasets that are not None, by the names that are printed."""
        named = {"train": self.train, "validation": self.validation, "test": self.held_back}
        return {name: part for name, part in named.items() if part is not None}

    def trial_part(self) -> Any:
        """The dataset whose first samples are used to try the model: the validation set if there is one."""
        return self.train if self.validation is None else self.validation

    def first(self, count: int | None) -> Data:
        """The first `count` samples of each part; None for all."""
        if count is None:
            return self
        parts = (self.train, self.validation, self.held_back)
        return Data(*(None if p is None else first(p, count) for p in parts))


def full_name(part: str) -> str:
    """``test set`` of ``test``, ``validation data`` of ``validation``."""
    return "test set" if part == "test" else f"{part} data"


def is_stream(part: Any) -> bool:
    return isinstance(part, IterableDataset)


def length(part: Any) -> int | None:
    """The number of samples; None for a stream without a length."""
    try:
        return len(part)
    except TypeError:
        return None


def first(part: Any, count: int) -> Any:
    """The first `count` samples."""
    if is_stream(part):
        return Strided(part, stop=count)
    return part if len(part) <= count else Subset(part, range(count))


def share(part: Any, rank: int, size: int) -> Any:
    """Every `size`-th sample, starting at `rank`."""
    if size == 1:
        return part
    return Strided(part, rank, size) if is_stream(part) else Subset(part, range(rank, len(part), size))


class Strided(IterableDataset):
    """Every `step`-th sample of a stream, starting at `start`.

    Args:
        stop: read only this number of samples; None for all.
        whole: leave out an incomplete last group of `step` samples, so that all ranks get the same number.
    """

    def __init__(
        self, stream: Any, start: int = 0, step: int = 1, stop: int | None = None, *, whole: bool = False
    ) -> None:
        self.stream, self.start, self.step, self.stop, self.whole = stream, start, step, stop, whole
        if stop is None and hasattr(stream, "state_dict") and hasattr(stream, "load_state_dict"):
            self.state_dict, self.load_state_dict = stream.state_dict, stream.load_state_dict

    def __iter__(self) -> Iterator[Any]:
        samples = islice(iter(self.stream), self.stop)
        while chosen := list(islice(samples, self.step)):
            if len(chosen) == self.step or (not self.whole and len(chosen) > self.start):
                yield chosen[self.start]

    def __len__(self) -> int:
        count = len(self.stream)
        count = count if self.stop is None else min(count, self.stop)
        return count // self.step if self.whole else len(range(self.start, count, self.step))
