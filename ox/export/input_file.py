"""Inputs for a file that somebody gives: arrays by name, or an .npz or .npy file of them."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ox.core.tensor import is_tensor
from ox.devices import cpu
from ox.errors import ArgumentError, LoadError, first_line
from ox.graph.contract import DTYPES, Array, TensorInfo

Feed = dict[str, Array]


def read_arrays(data: Any, names: Sequence[str]) -> Feed:
    """Arrays by input name.

    Args:
        data: the path of an .npz file with an array for each input, or of an .npy file for the only one; a dict of
            arrays or tensors by name; or an array or tensor for the only input.
        names: of the inputs.

    Raises:
        LoadError: the file is missing, or no file of arrays.
        ArgumentError: it has other names.
    """
    if isinstance(data, (str, os.PathLike)):
        data = _read(Path(data))
    if not isinstance(data, Mapping):
        if len(names) != 1:
            raise ArgumentError(
                "one array is given for several inputs", expected=", ".join(names), hint="a dict, or an .npz file"
            )
        data = {names[0]: data}
    if set(data) != set(names):
        raise ArgumentError(
            "the inputs have other names than those of the file",
            expected=", ".join(names),
            got=", ".join(map(str, data)) or "none",
        )
    return {name: np.asarray(cpu(data[name].array) if is_tensor(data[name]) else data[name]) for name in names}


def read_inputs(data: Any, inputs: Sequence[TensorInfo]) -> Feed:
    """Arrays by input name, of the types and sizes that a file declares; as `read_arrays`.

    Raises:
        LoadError: the file is missing, or no file of arrays.
        ArgumentError: other names, types or sizes.
    """
    arrays = read_arrays(data, [info.name for info in inputs])
    sizes: dict[str, tuple[int, str]] = {}
    for info in inputs:
        array = arrays[info.name]
        fits = not info.ranked or (
            len(info.dims) == array.ndim
            and all(n == dim or not isinstance(dim, int) for dim, n in zip(info.dims, array.shape, strict=True))
        )
        if not fits or (info.dtype in DTYPES and info.dtype != "BYTES" and array.dtype != DTYPES[info.dtype]):
            raise ArgumentError(
                f"the array for '{info.name}' does not fit the input of the file",
                expected=str(info),
                got=f"{array.dtype} {list(array.shape)}",
            )
        for dim, n in zip(info.dims, array.shape, strict=False):
            first = sizes.setdefault(str(dim), (n, info.name)) if isinstance(dim, str) else (n, info.name)
            if first[0] != n:
                raise ArgumentError(
                    f"the size '{dim}' has two values in the inputs",
                    got=f"{first[0]} in '{first[1]}', {n} in '{info.name}'",
                )
    return arrays


def _read(path: Path) -> Any:
    if path.suffix.lower() not in (".npz", ".npy"):
        raise LoadError(f"{path} has an unknown file type", expected=".npz or .npy", got=path.suffix or "no extension")
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return {name: loaded[name] for name in loaded.files} if path.suffix.lower() == ".npz" else loaded
    except FileNotFoundError as error:
        raise LoadError(f"there is no input file {path}", expected="an .npz file of arrays by input name") from error
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise LoadError(f"{path} is no file of arrays, or damaged", got=first_line(error)) from error
