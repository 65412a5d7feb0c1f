"""Writing a model whole or not at all; above the 2 GB that protobuf can hold, its weights go to one file beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from onnx import numpy_helper

from ox.dtypes import FLOAT8, PACKED, bfloat16, onnx_type
from ox.errors import ExportError
from ox.graph.ir import Array, Graph
from ox.serialization.files import write_whole

MAX_INLINE_BYTES = 2**31 - 2**24  # bytes of weights inside the file itself; protobuf ends at 2 GB
PAGE_BYTES = 4096  # where each tensor of a data file begins, so that it can be mapped into memory
SMALL = 1024  # bytes; what is smaller stays inside

T = TypeVar("T")


def check_writable(path: Path) -> None:
    """Raise ExportError where a file cannot appear, before any work is done."""
    if path.is_dir():
        raise ExportError(f"{path} is a folder", expected="the name of a file", hint=f"{path / 'model.onnx'}")
    if path.exists() and not path.is_file():
        raise ExportError(f"{path} is no regular file", expected="the name of a file, new or to be replaced")
    if not path.parent.is_dir():
        raise ExportError(
            f"cannot write {path}", got=f"there is no folder {path.parent}", hint=f"mkdir -p {path.parent}"
        )
    if not os.access(path.parent, os.W_OK):
        raise ExportError(f"cannot write {path}", got=f"no permission to write in {path.parent.resolve()}")


def write(
    model: Callable[[bool], onnx.ModelProto],
    graph: Graph,
    path: Path,
    prove: Callable[[Path], T],
    threshold: int,
    note: Callable[[T], Mapping[str, str]] = lambda _: {},
) -> tuple[T, Path | None]:
    """Write, prove what was written, and only then let it appear.

    Args:
        model: builds the model, with its weights or without.
        prove: called with the written file; what it raises leaves everything as it was.
        threshold: bytes of weights above which they go to a file of their own.
        note: metadata about what `prove` returned.

    Returns:
        What `prove` returned, and the data file if there is one.
    """
    results: list[T] = []
    try:
        if sum(graph.constants[v].nbytes for v in graph.owned) <= threshold:

            def whole(temporary: Path) -> None:
                onnx.save(model(True), temporary)
                results.append(prove(temporary))
                _append_metadata(temporary, note(results[0]))

            write_whole(path, whole)
            return results[0], None
        data = path.with_name(path.name + ".data")

        def apart(temporary: Path) -> None:
            bare = model(False)

            def weights(beside: Path) -> None:
                places = _write_data(graph, beside)
                onnx.save(_pointing(bare, graph, places, beside.name), temporary)
                results.append(prove(temporary))
                onnx.save(_pointing(bare, graph, places, data.name), temporary)
                _append_metadata(temporary, note(results[0]))

            write_whole(data, weights)

        write_whole(path, apart)
        return results[0], data
    except OSError as error:
        raise ExportError(f"cannot write {path}", got=error.strerror or str(error)) from error


def _append_metadata(path: Path, entries: Mapping[str, str]) -> None:
    """Further entries of `metadata_props`. Protobuf reads what follows a message as more of it, so that what was proven
    stays in the file byte for byte."""
    if entries:
        more = onnx.ModelProto()
        onnx.helper.set_model_props(more, dict(entries))
        with open(path, "ab") as file:
            file.write(more.SerializeToString())


def _write_data(graph: Graph, path: Path) -> dict[str, tuple[int, int]]:
    """The large weights one after another; where each begins, and its length."""
    places = {}
    with open(path, "wb") as f:
        for value, array in graph.constants.items():
            if value in graph.owned and array.nbytes >= SMALL:
                f.seek(-(-f.tell() // PAGE_BYTES) * PAGE_BYTES)
                data = _bytes(array)
                places[value.name] = (f.tell(), len(data))
                f.write(data)
    return places


def _bytes(array: Array) -> memoryview | bytes:
    """Little-endian, in row-major order, without a copy where NumPy can lend its memory."""
    if array.dtype in PACKED:  # two or four elements a byte
        return numpy_helper.from_array(np.ascontiguousarray(array)).raw_data
    if array.dtype == bfloat16 or array.dtype in FLOAT8:
        return array.tobytes()
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).data.cast("B")


def _pointing(
    bare: onnx.ModelProto, graph: Graph, places: dict[str, tuple[int, int]], location: str
) -> onnx.ModelProto:
    """The model with its weights: small ones inside, large ones as places in the data file."""
    from ox.graph.writer.write import tensor_proto

    model = onnx.ModelProto()
    model.CopyFrom(bare)
    owned = {v.name for v in graph.owned}
    owned -= {v.name for v in graph.overridable}
    kept = [info for info in model.graph.input if info.name not in owned]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for value, array in graph.constants.items():
        if value not in graph.owned:
            continue
        if value.name not in places:
            model.graph.initializer.append(tensor_proto(array, value.name))
            continue
        tensor = model.graph.initializer.add(name=value.name, data_type=onnx_type(array.dtype), dims=array.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        offset, length = places[value.name]
        for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=text)
    return model
