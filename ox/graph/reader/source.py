"""A model file with all its data, for loading as a module."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from ox.dtypes import FROM_ONNX, PACKED
from ox.errors import LoadError
from ox.graph.ir import Array
from ox.graph.reader.model_file import check_data, external_file, parse, tensors_of


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """A file with its external data.

    Raises:
        LoadError: missing, damaged, not ONNX, or with data that is missing, outside the file's folder, or of another
            file.
    """
    path = Path(path)
    model = parse(path)
    check_data(path, model)
    for tensor in tensors_of(model):
        _bring_in(path, tensor)
    return model


def read_apart(path: str | os.PathLike[str]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A file, and by name those of its initializers that are external data. These go straight into arrays: in the
    model they would be in memory twice.

    Raises:
        LoadError: as `read_model`.
    """
    path = Path(path)
    model = parse(path)
    check_data(path, model)
    arrays = {}
    for tensor in model.graph.initializer:
        array = _array(path, tensor)
        if array is not None:
            arrays[tensor.name] = array
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    for tensor in tensors_of(model):
        _bring_in(path, tensor)
    return model, arrays


def _array(path: Path, tensor: TensorProto) -> Array | None:
    """External data as an array of its own; None where it is no external data, or not that of whole elements."""
    dtype = FROM_ONNX.get(tensor.data_type)
    target = external_file(path, tensor)
    if target is None or dtype is None or dtype in PACKED or any(d < 0 for d in tensor.dims):
        return None
    offset, length = _extent(path, tensor, target)
    if length != prod(tensor.dims) * dtype.itemsize:
        return None
    array = np.empty(tuple(tensor.dims), dtype.newbyteorder("<"))
    try:
        with open(target, "rb") as f:
            f.seek(offset)
            if f.readinto(array.reshape(-1).view(np.uint8).data) != length:
                raise OSError("it became shorter")
    except OSError as error:
        raise _unreadable(tensor, target, error) from error
    return array.astype(dtype, copy=False)


def _bring_in(path: Path, tensor: TensorProto) -> None:
    """External data of one tensor into the model."""
    target = external_file(path, tensor)
    if target is None:
        return
    offset, length = _extent(path, tensor, target)
    try:
        with open(target, "rb") as f:
            f.seek(offset)
            tensor.raw_data = f.read(length)
    except OSError as error:
        raise _unreadable(tensor, target, error) from error
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _extent(path: Path, tensor: TensorProto, target: Path) -> tuple[int, int]:
    """Where the data of a tensor begins, and its bytes; no more than the file has."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        size = target.stat().st_size
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else size - offset
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"{size} bytes")
    except ValueError as error:
        wanted = f"{entries.get('length')} bytes at {entries.get('offset', 0)}"
        what, where = f"{target.name} does not hold the data of {path}", f"tensor '{tensor.name}'"
        raise LoadError(what, where=where, expected=wanted, got=str(error)) from error
    except OSError as error:
        raise _unreadable(tensor, target, error) from error
    return offset, length


def _unreadable(tensor: TensorProto, target: Path, error: OSError) -> LoadError:
    got = error.strerror or str(error)
    return LoadError(f"{target.name} cannot be read", where=f"tensor '{tensor.name}'", got=got)
