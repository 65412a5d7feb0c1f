"""A model file with all its data, for loading as a module."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from onnx import TensorProto

from ox.errors import LoadError
from ox.graph.reader.model_file import external_file, parse, tensors_of


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """A file with its external data.

    Raises:
        LoadError: missing, damaged, not ONNX, or with data that is missing or outside the file's folder.
    """
    path = Path(path)
    model = parse(path)
    for tensor in tensors_of(model):
        target = external_file(path, tensor)
        if target is not None:
            _bring_in(path, tensor, target)
    return model


def _bring_in(path: Path, tensor: TensorProto, target: Path) -> None:
    """External data of one tensor into memory, and no more than the file has."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    where = f"tensor '{tensor.name}'"
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else target.stat().st_size - offset
        if offset < 0 or length < 0 or offset + length > target.stat().st_size:
            raise ValueError(f"{target.stat().st_size} bytes")
        with open(target, "rb") as f:
            f.seek(offset)
            tensor.raw_data = f.read(length)
    except ValueError as error:
        wanted = f"{entries.get('length')} bytes at {entries.get('offset', 0)}"
        raise LoadError(
            f"{target.name} does not hold the data of {path}", where=where, expected=wanted, got=str(error)
        ) from error
    except OSError as error:
        raise LoadError(f"{target.name} cannot be read", where=where, got=error.strerror or str(error)) from error
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]
