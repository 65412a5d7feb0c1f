"""Opens model files, which may be damaged or malicious; every reader of ONNX files uses it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from ox.errors import LoadError, MissingFileError, cannot_open
from ox.graph.contract import DATA, DATA_MARK

MAX_SUBGRAPH_DEPTH = 8  # subgraphs inside subgraphs
MAX_MESSAGE_BYTES = (1 << 31) - 1  # bytes of a protobuf message


def parse(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The file without its external data.

    Raises:
        LoadError: missing, unreadable, damaged, or not ONNX.
    """
    path = Path(path)
    try:
        model = onnx.load_model_from_string(_bytes(path))
    except LoadError:  # which is a ValueError as well
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file {path}", hint=others(path)) from error
    except OSError as error:
        raise cannot_open(path, error, "cannot be read") from error
    except (DecodeError, UnicodeDecodeError) as error:
        raise LoadError(f"{path} is not an ONNX file, or damaged", got=str(error)) from error
    except ValueError as error:  # a zero byte in the name
        raise LoadError(f"{str(path)!r} is no path", got=str(error)) from error
    if not model.graph.output:
        raise LoadError(f"{path} is not an ONNX file, or damaged", got="a graph without outputs")
    return model


def _bytes(path: Path) -> bytes:
    """The contents of a regular file: a pipe or a device might never end, or block."""
    with open(path, "rb", opener=_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise LoadError(f"{path} cannot be read", expected="a regular file", got="a pipe or a device")
        if status.st_size > MAX_MESSAGE_BYTES:
            hint = "weights in a file of their own, as external data"
            got = f"{status.st_size / 2**30:.1f} GiB"
            raise LoadError(f"{path} is too large", expected="less than 2 GiB, as of any protobuf", got=got, hint=hint)
        return file.read()


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def opset_of(model: onnx.ModelProto) -> int:
    """The version of `ai.onnx` of a file; 0 if it is missing."""
    return max((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), default=0)


def metadata_of(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node: of the graph, of subgraphs at any depth, of functions. Raises LoadError past `MAX_SUBGRAPH_DEPTH`."""
    yield from _nodes(model.graph.node, 0)
    for function in model.functions:
        yield from _nodes(function.node, 0)


def _nodes(nodes: Iterable[onnx.NodeProto], depth: int) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        if depth > MAX_SUBGRAPH_DEPTH:
            raise LoadError(
                "subgraphs nested too deeply", where=node.name or node.op_type, expected=f"at most {MAX_SUBGRAPH_DEPTH}"
            )
        yield node
        for graph in subgraphs(node):
            yield from _nodes(graph.node, depth + 1)


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those inside, at any depth."""
    yield graph
    for node in graph.node:
        for inside in subgraphs(node):
            yield from graphs_of(inside)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors_of(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor: initializers and attributes, at any depth."""
    yield from _initializers(model.graph)
    for node in nodes_of(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
        for graph in subgraphs(node):
            yield from _initializers(graph)


def _initializers(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)


def external_file(path: Path, tensor: TensorProto) -> Path | None:
    """The path of a tensor's external data; None if it is inside the model.

    Raises:
        LoadError: no file there, or a place that is absolute, climbs out of the model's folder, or leaves it through a
            symbolic link, other than to the blobs of the Hugging Face cache that the folder is in.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    folder = path.parent.resolve()
    where = f"tensor '{tensor.name}'"
    try:
        target = (folder / location).resolve()
        there = target.is_file()
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{path} keeps data in what is no file", where=where, expected=f"a file inside {folder}", got=repr(location)
        ) from error
    if not location or Path(location).is_absolute() or ".." in Path(location).parts or not holds(folder, target):
        raise LoadError(
            f"{path} keeps data outside its folder",
            where=where,
            expected=f"a file inside {folder}",
            got=location or "no location",
            hint="ox export, which puts the data beside the model",
        )
    if not there:
        raise LoadError(
            f"{path} lacks its external data", where=where, expected=str(target), hint="copy that file beside the model"
        )
    return target


def holds(folder: Path, target: Path) -> bool:
    """Whether a file is in a folder, or among the blobs of the Hugging Face cache that the folder is in: each file of
    ``snapshots/REVISION`` is a link to one of ``blobs`` beside it. Both paths are without links."""
    if folder in target.parents:
        return True
    snapshots = next((each for each in (folder, *folder.parents) if each.name == "snapshots"), None)
    return snapshots is not None and target.parent == snapshots.parent / "blobs"


def check_data(path: Path, model: onnx.ModelProto) -> None:
    """Raise LoadError where the file beside a model holds the weights of another: a save was stopped between the two
    files, or one of them was copied alone. A data file without a checksum, of another program, is not judged."""
    mark = metadata_of(model).get(DATA)
    if mark is None:
        return
    for target in {external_file(path, tensor) for tensor in tensors_of(model)} - {None}:
        try:
            with open(target, "rb") as file:  # type: ignore[arg-type]
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - len(DATA_MARK) - len(mark)))
                end = file.read()
        except OSError:  # whoever reads the weights says so
            continue
        if end.startswith(DATA_MARK) and end != DATA_MARK + mark.encode():
            raise LoadError(
                f"{target.name} holds the weights of another file than {path}",  # type: ignore[union-attr]
                expected=f"the checksum {mark} at its end",
                got=repr(end.removeprefix(DATA_MARK).decode(errors="replace")),
                hint="export it again, or copy both files together",
            )


def others(path: Path) -> str:
    """What to try instead of a file that is not there."""
    found = sorted(other.name for other in path.parent.glob("*.onnx")) if path.parent.is_dir() else []
    return f"one of {', '.join(found[:5])}" if found else "ox export model.onnx writes one"
