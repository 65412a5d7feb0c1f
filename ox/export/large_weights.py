"""The proof of a file with large weights, without further copies of them: what the file holds is compared with the
arrays byte by byte, and ONNX Runtime computes with the arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

from ox.errors import ExportError
from ox.export.files import Written
from ox.graph.array_bytes import pieces
from ox.graph.ir import Array, Graph
from ox.temporary_files import file_beside

LARGE = 1 << 28  # bytes of weights; below, ONNX Runtime reads the file as a user's session does
NATIVE = tuple(np.dtype(kind) for kind in "?bhilqBHILQefd")  # what ONNX Runtime takes as a NumPy array


@contextmanager
def to_run(written: Written, graph: Graph) -> Iterator[tuple[Path, dict[str, Array]]]:
    """The file for a session, and the weights that the session gets as arrays, because they are large.

    Raises:
        ExportError: the file does not hold what was written.
    """
    arrays = {v.name: graph.constants[v] for v in graph.owned if v.name in written.places}
    if sum(length for _, length in written.places.values()) <= LARGE:
        yield written.path, {}
        return
    _compare(written, arrays)
    arrays = {name: a for name, a in arrays.items() if a.dtype in NATIVE and a.flags.c_contiguous}
    if written.data != written.path:
        yield written.path, arrays
        return
    with file_beside(written.path) as outline:
        onnx.save(written.outline, outline)
        yield outline, arrays


def _compare(written: Written, arrays: dict[str, Array]) -> None:
    with open(written.data, "rb") as file:
        for name, (offset, _) in written.places.items():
            file.seek(offset)
            for piece in pieces(arrays[name]):
                if file.read(len(piece)) != piece:
                    raise ExportError(
                        f"the file does not hold the values of '{name}' that were written",
                        got=f"other bytes in {written.data}",
                        hint="another disk",
                    )
