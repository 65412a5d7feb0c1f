"""The inputs and outputs of a session of ONNX Runtime."""

from __future__ import annotations

import re
from typing import Any

from ox.errors import LoadError
from ox.graph.contract import DTYPES, TensorInfo
from ox.serve.runtime.source import Source

TYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "float": "FP32", "double": "FP64", "bfloat16": "BF16", "string": "BYTES",
}  # fmt: skip
ZIPMAP = "zipmap=False, so that probabilities are one tensor: skl2onnx.to_onnx(model, X, options={'zipmap': False})"
MOST_DEFAULTED = 16  # a file with more lists its weights among its inputs


def tensor_info(source: Source, entry: Any, role: str) -> TensorInfo:
    """An entry of a session. Raises LoadError for a type that the protocol does not have."""
    inner = re.fullmatch(r"tensor\((\w+)\)", entry.type)
    dtype = TYPES.get(inner[1]) if inner else None
    if dtype is None:
        raise LoadError(
            f"{source.path} cannot be served: the protocol carries only tensors of its own types",
            where=f"{role} '{entry.name}'",
            expected=", ".join(DTYPES),
            got=entry.type,
            hint=ZIPMAP if entry.type.startswith("seq(map(") else None,
        )
    dims = tuple(dim if isinstance(dim, int) and dim >= 0 else dim or None for dim in entry.shape or ())
    return TensorInfo(entry.name, dtype, dims)


def defaulted_inputs(source: Source, session: Any) -> tuple[TensorInfo, ...]:
    """The inputs that have an initializer, whose value a run may replace: none where there are many, which are weights
    that an exporter lists as inputs."""
    entries = session.get_overridable_initializers()
    return () if len(entries) > MOST_DEFAULTED else tuple(tensor_info(source, entry, "input") for entry in entries)
