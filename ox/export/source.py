"""Reading a model file that may be damaged or hostile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from ox.errors import LoadError

DEEPEST = 8  # subgraphs inside subgraphs


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """A file with its external data.

    Raises:
        LoadError: missing, damaged, not ONNX, or with data that is missing or lies outside the file's folder.
    """
    path = Path(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError as error:
        raise LoadError(f"there is no file {path}", hint=_others(path)) from error
    except OSError as error:
        raise LoadError(f"{path} cannot be read", got=error.strerror or str(error)) from error
    except DecodeError as error:
        raise LoadError(f"{path} is not an ONNX file, or damaged", got=str(error)) from error
    if not model.graph.output:
        raise LoadError(f"{path} is not an ONNX file, or damaged", got="a graph without outputs")
    for tensor in _tensors(model):
        _bring_in(path, tensor)
    return model


def opset_of(model: onnx.ModelProto) -> int:
    """The version of `ai.onnx` that a file is written in; 0 when it does not say."""
    return max((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), default=0)


def metadata_of(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def _others(path: Path) -> str:
    found = sorted(other.name for other in path.parent.glob("*.onnx")) if path.parent.is_dir() else []
    return f"one of {', '.join(found[:5])}" if found else "ox export model.onnx writes one"


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    yield from _tensors_of(model.graph, 0)
    for function in model.functions:
        for node in function.node:
            yield from _tensors_of_node(node, 0)


def _tensors_of(graph: onnx.GraphProto, depth: int) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from _tensors_of_node(node, depth)


def _tensors_of_node(node: onnx.NodeProto, depth: int) -> Iterator[TensorProto]:
    if depth > DEEPEST:
        raise LoadError("subgraphs nested too deeply", where=node.name or node.op_type, expected=f"at most {DEEPEST}")
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            yield from _tensors_of(inner, depth + 1)


def _bring_in(path: Path, tensor: TensorProto) -> None:
    """External data of one tensor into memory: from inside the model's folder only, and no more than the file has."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    folder = path.parent.resolve()
    target = (folder / location).resolve()
    where = f"tensor '{tensor.name}'"
    if not location or Path(location).is_absolute() or ".." in Path(location).parts or folder not in target.parents:
        raise LoadError(
            f"{path} keeps data outside its folder", where=where, expected=f"a file inside {folder}",
            got=location or "no location",
        )  # fmt: skip
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else target.stat().st_size - offset
        if offset < 0 or length < 0 or offset + length > target.stat().st_size:
            raise ValueError(f"{target.stat().st_size} bytes")
        with open(target, "rb") as f:
            f.seek(offset)
            tensor.raw_data = f.read(length)
    except FileNotFoundError as error:
        raise LoadError(
            f"{path} lacks its external data", where=where, expected=str(target), hint="copy that file beside the model"
        ) from error
    except ValueError as error:
        wanted = f"{entries.get('length')} bytes at {entries.get('offset', 0)}"
        raise LoadError(
            f"{location} does not hold the data of {path}", where=where, expected=wanted, got=str(error)
        ) from error
    except OSError as error:
        raise LoadError(f"{location} cannot be read", where=where, got=error.strerror or str(error)) from error
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]
