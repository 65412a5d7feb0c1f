"""Fingerprints of datasets: they show whether a dataset is the one that a run was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ox.core.tensor import is_tensor
from ox.data import ConcatDataset, StackDataset, Subset
from ox.data.checksum import checksum
from ox.train import rng_state
from ox.train.recipe.datasets import length

MAX_PROBES, MIN_PROBES = 256, 8  # samples of a dataset that cannot be read at once
PROBED_BYTES = 1 << 22  # after so many bytes of samples, MIN_PROBES are enough
TRANSFORM_PROBES = 4  # samples that show the transform of a dataset with a fingerprint of its own


def fingerprint(dataset: Any) -> str | None:
    """A checksum of the samples of a dataset: 16 hexadecimal digits, the same in all processes.

    A dataset with a method ``fingerprint()`` gives its own, as `TensorDataset`, `TableDataset` and `DatasetFolder` do.
    Of another, up to `MAX_PROBES` samples are read, at even distances. Random augmentation is seeded for it.

    Returns:
        None for a stream, and for samples that cannot be read.
    """
    if length(dataset) is None:
        return None
    try:
        return checksum(_content(dataset))
    except Exception:  # a sample that cannot be read: training reports it, with its index
        return None


def _content(dataset: Any) -> Any:
    if type(dataset) is Subset:
        return ["subset", _content(dataset.dataset), np.asarray([int(i) for i in dataset.indices], np.int64)]
    if type(dataset) is ConcatDataset:
        return ["concatenation", *map(_content, dataset.datasets)]
    if type(dataset) is StackDataset:
        several = dataset.datasets
        named = several.items() if isinstance(several, Mapping) else enumerate(several)
        return ["stack", *([str(name), _content(each)] for name, each in named)]
    own = getattr(dataset, "fingerprint", None)
    if callable(own):
        transformed = any(getattr(dataset, name, None) is not None for name in ("transform", "target_transform"))
        return [str(own()), _probe(dataset, TRANSFORM_PROBES if transformed else 0)]
    if isinstance(dataset, list | tuple):
        return dataset
    return [len(dataset), _probe(dataset, MAX_PROBES)]


def _probe(dataset: Any, count: int) -> str:
    """The checksum of `count` samples; "varies" if a second reading gives others."""

    def read() -> str:
        with rng_state.fork_rng():
            rng_state.seed(0)
            return checksum(_samples(dataset, count))

    first = read()
    return first if not count or first == read() else "varies"


def _samples(dataset: Any, count: int) -> Iterator[Any]:
    total, size = len(dataset), 0
    indices = np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64)).tolist()
    for number, index in enumerate(indices, 1):
        sample = dataset[index]
        size += _size(sample)
        yield sample
        if size > PROBED_BYTES and number >= MIN_PROBES:
            return


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return int(getattr(value.array if is_tensor(value) else value, "nbytes", 8))
