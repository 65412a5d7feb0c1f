"""The tables that ship with ox, as arrays; `data/ATTRIBUTION.txt` lists their sources."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.data import TensorDataset
from ox.data.datasets.columns import read_columns

Array = NDArray[Any]


def table(name: str) -> dict[str, Array]:
    """The columns of ``data/<name>.csv``: float64 [rows], or strings."""
    with as_file(files("ox_models") / "data" / f"{name}.csv") as path:
        return read_columns(path)


def split(*arrays: Array) -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Three fifths of the rows for training, a fifth for validation, a fifth for testing; the same in every run.

    The shuffle uses `RandomState`, whose stream NumPy has frozen, and not a run's seed: with another seed, rows of the
    test set would be used for training.
    """
    count = len(arrays[0])
    order = np.random.RandomState(0).permutation(count)
    first, second = count * 3 // 5, count * 4 // 5
    train, validation, held_back = order[:first], order[first:second], order[second:]
    return (
        TensorDataset(*(array[train] for array in arrays)),
        TensorDataset(*(array[validation] for array in arrays)),
        TensorDataset(*(array[held_back] for array in arrays)),
    )
