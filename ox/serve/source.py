"""Looks at a model file before a runtime does: is it whole, and does it stay inside its folder?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ox.errors import LoadError

# Operators whose work does not follow from the shapes of the inputs: the values can make it any length.
OPEN_ENDED = {
    "Loop",
    "Scan",
    "Range",
    "Expand",
    "Tile",
    "ConstantOfShape",
    "Resize",
    "Pad",
    "RandomNormal",
    "RandomUniform",
}


@dataclass(frozen=True)
class Source:
    """A model file that may be given to a runtime."""

    path: Path
    metadata: dict[str, str]
    opset: int
    operators: frozenset[str]

    @property
    def open_ended(self) -> bool:
        """Whether the values of an input, not only its shape, may decide how long a run takes."""
        return bool(self.operators & OPEN_ENDED)


def read(path: Path) -> Source:
    """Parses the file without its external data and checks where that data lies.

    Raises:
        LoadError: missing, unreadable, damaged, or external data outside the model's folder.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError as error:
        raise LoadError(f"there is no file {path}", hint=_others(path)) from error
    except OSError as error:
        raise LoadError(f"{path} cannot be read", got=error.strerror or str(error)) from error
    except DecodeError as error:
        raise LoadError(f"{path} is not an ONNX file, or damaged", got=str(error)) from error
    if not model.graph.node and not model.graph.output:
        raise LoadError(f"{path} is not an ONNX file, or damaged", got="no graph in it")
    graphs = [model.graph, *(graph for function in model.functions for graph in _node_graphs(function.node))]
    every = [inner for graph in graphs for inner in _graphs(graph)]
    for tensor in _tensors(every, model):
        _stay_inside(path, tensor)
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    nodes = [node for graph in every for node in graph.node] + [n for f in model.functions for n in f.node]
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return Source(path, metadata, opset, frozenset(node.op_type for node in nodes))


def _others(path: Path) -> str | None:
    found = sorted(other.name for other in path.parent.glob("*.onnx")) if path.parent.is_dir() else []
    return f"one of {', '.join(found[:5])}" if found else "ox export model.onnx writes one"


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for inner in _node_graphs(graph.node):
        yield from _graphs(inner)


def _node_graphs(nodes: object) -> Iterator[onnx.GraphProto]:
    for node in nodes:  # type: ignore[attr-defined]  # protobuf's repeated fields have no common public type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def _tensors(graphs: list[onnx.GraphProto], model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in graphs:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for nodes in [graph.node for graph in graphs] + [function.node for function in model.functions]:
        for node in nodes:
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)


def _stay_inside(path: Path, tensor: onnx.TensorProto) -> None:
    """Refuses external data that is absolute, climbs out of the folder, or leaves it through a symbolic link."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    folder = path.parent.resolve()
    target = (folder / location).resolve()
    if not location or Path(location).is_absolute() or ".." in Path(location).parts or folder not in target.parents:
        raise LoadError(
            f"{path} keeps data outside its folder",
            where=f"tensor '{tensor.name}'",
            expected=f"a file inside {folder}",
            got=location or "no location",
            hint="ox export, which puts the data beside the model",
        )
    if not target.is_file():
        raise LoadError(
            f"{path} lacks its external data",
            where=f"tensor '{tensor.name}'",
            expected=str(target),
            hint="copy that file beside the model",
        )
