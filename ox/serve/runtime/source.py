"""Looks at a model file before a runtime does: is it whole, and does it stay inside its folder?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

from ox.dtypes import ONNX_TYPES, PACKED, int2, uint2
from ox.graph.reader.model_file import check_data, external_file, metadata_of, nodes_of, opset_of, parse, tensors_of
from ox.graph.training_statistics import keep_statistics, overwrites
from ox.serve.operator_kinds import KINDS, SIZED_BY
from ox.serve.runtime.constant_folding import largest_fold
from ox.serve.runtime.decoder_graph import PAST
from ox.serve.runtime.endless_loops import SHAPED, UNBOUNDED, suspect
from ox.serve.runtime.row_independence import rows_mix
from ox.serve.text.model_file import GENAI

# Operators whose work does not follow from the shapes of the inputs: the values can make it any length.
OPEN_ENDED = KINDS["control"] | set(SIZED_BY) | SHAPED | UNBOUNDED

# Of types of which a byte has several elements
BITS = {ONNX_TYPES[dtype]: 2 if dtype in (int2, uint2) else 4 for dtype in PACKED}


@dataclass(frozen=True)
class Source:
    """A model file that may be given to a runtime."""

    path: Path
    metadata: dict[str, str]
    opset: int
    operators: frozenset[str]
    weights: int = 0  # bytes
    largest_fold: int = 1 << 30  # bytes of one result that may be computed when it is loaded
    suspect: bool = False  # a single operator may run for ever: see ox.serve.runtime.endless_loops
    mixing: str | None = None  # why rows of a batch may depend on one another, from the graph
    decoder: bool = False  # generates texts: it has a cache of keys and values as inputs
    overwrites: bool = False  # runs would write over what they read: see ox.graph.training_statistics

    @property
    def may_run_long(self) -> bool:
        """Whether the values of an input, not only its shape, may decide how long a run takes."""
        return bool(self.operators & OPEN_ENDED)


def read(path: Path, decoder: bool | None = None) -> Source:
    """Parses the file without its external data and checks the paths of that data.

    Args:
        path: the file.
        decoder: whether it generates texts; None to see that from the names of its inputs and from what lies beside it.

    Raises:
        LoadError: missing, unreadable, damaged, external data outside the model's folder or of another file, or a
            file that grows without measure while it is loaded.
    """
    model = parse(path)
    check_data(path, model)
    files = {path, *filter(None, (external_file(path, tensor) for tensor in tensors_of(model)))}
    operators = frozenset(node.op_type for node in nodes_of(model))
    largest = largest_fold(model, sum(file.stat().st_size for file in files))
    may_be_unbounded = suspect(model, nodes_of(model))
    # the settings of onnxruntime-genai say how inputs are called
    if decoder is None:
        decoder = any(PAST.fullmatch(info.name) for info in model.graph.input) or (path.parent / GENAI).is_file()
    mixing = None if decoder else rows_mix(model, path.parent)
    weights = sum(map(_size, tensors_of(model)))
    return Source(
        path,
        metadata_of(model),
        opset_of(model),
        operators,
        weights,
        largest,
        may_be_unbounded,
        mixing,
        decoder,
        overwrites(model),
    )


def for_runtime(source: Source, options: Any) -> str | bytes:
    """What a session is made of: the path, or the bytes of a file that reads copies of what its runs write over.

    Args:
        options: ONNX Runtime's SessionOptions, which are told where external data lies.
    """
    if not source.overwrites:
        return str(source.path)
    model = parse(source.path)
    keep_statistics(model)
    folder = str(source.path.parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return model.SerializeToString()  # type: ignore[no-any-return]


def _size(tensor: TensorProto) -> int:
    """Bytes that a tensor takes in memory, also where its file stores elements wider, or another file has them."""
    if tensor.data_type == TensorProto.STRING or tensor.data_type not in TensorProto.DataType.values():
        return int(tensor.ByteSize())
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    bits = BITS.get(tensor.data_type, 8 * int(dtype.itemsize))
    return -(-bits * int(math.prod(tensor.dims)) // 8)
