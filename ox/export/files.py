"""Writing a model whole or not at all; above the 2 GB that protobuf can hold, its weights go to one file beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import onnx

from ox.errors import ExportError
from ox.graph.contract import DATA
from ox.graph.ir import Graph
from ox.graph.writer.weights import Places, pointing, without_weights, write_beside, write_inside
from ox.serialization.files import write_whole

MAX_INLINE_BYTES = 2**31 - 2**24  # bytes of weights inside the file itself; protobuf ends at 2 GB

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


@dataclass(frozen=True)
class Written:
    """A model that was written, and is to be proven.

    Attributes:
        data: the file that holds the bytes of the large weights: the model's, or one beside it.
        places: where they are in it.
        outline: the model with these places in place of the bytes.
    """

    path: Path
    data: Path
    places: Places
    outline: onnx.ModelProto


def write(
    model: Callable[[], onnx.ModelProto],
    graph: Graph,
    path: Path,
    prove: Callable[[Written], T],
    threshold: int,
    note: Callable[[T], Mapping[str, str]] = lambda _: {},
) -> tuple[T, Path | None]:
    """Write, prove what was written, and only then let it appear.

    Args:
        model: builds the model without its weights.
        prove: called with what was written; what it raises leaves everything as it was.
        threshold: bytes of weights above which they go to a file of their own.
        note: metadata about what `prove` returned.

    Returns:
        What `prove` returned, and the data file if there is one.
    """
    results: list[T] = []
    data = path.with_name(path.name + ".data")
    apart = sum(graph.constants[v].nbytes for v in graph.owned) > threshold

    def whole(temporary: Path) -> None:
        bare = without_weights(model(), graph)
        with open(temporary, "wb") as file:
            places = write_inside(bare, graph, file)
        outline = pointing(bare, graph, places, temporary.name)
        results.append(prove(Written(temporary, temporary, places, outline)))
        _append_metadata(temporary, note(results[0]))

    def two_files(temporary: Path) -> None:
        bare = without_weights(model(), graph)

        def weights(beside: Path) -> None:
            with open(beside, "wb") as file:
                places, mark = write_beside(graph, file)
            outline = pointing(bare, graph, places, beside.name)
            onnx.save(outline, temporary)
            results.append(prove(Written(temporary, beside, places, outline)))
            onnx.save(pointing(bare, graph, places, data.name), temporary)
            _append_metadata(temporary, {**note(results[0]), DATA: mark})

        write_whole(data, weights)

    try:
        write_whole(path, two_files if apart else whole)
    except OSError as error:
        raise ExportError(f"cannot write {path}", got=error.strerror or str(error)) from error
    return results[0], data if apart else None


def _append_metadata(path: Path, entries: Mapping[str, str]) -> None:
    """Further entries of `metadata_props`. Protobuf reads what follows a message as more of it, so that what was proven
    stays in the file byte for byte."""
    if entries:
        more = onnx.ModelProto()
        onnx.helper.set_model_props(more, dict(entries))
        with open(path, "ab") as file:
            file.write(more.SerializeToString())
