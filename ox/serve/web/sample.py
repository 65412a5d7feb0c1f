"""A golden sample as a request that can be sent as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from ox.errors import ServeError
from ox.graph.contract import Array, Sample, dtype_name


def sample(golden: Sample) -> bytes:
    """The JSON of a V2 inference request, and beside it under `expected` what the exporter's run gave. Elements of
    BF16, which the protocol has no JSON for, are numbers.

    Raises:
        ServeError: JSON cannot carry the sample (501).
    """
    document = {"inputs": tensors(golden.inputs), "expected": tensors(golden.outputs)}
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def tensors(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Arrays as tensors of the V2 protocol with their elements in row-major order; those of BF16 as numbers.

    Raises:
        ServeError: NaN or an infinity (501).
    """
    return [
        {"name": name, "shape": array.shape, "datatype": dtype_name(array.dtype), "data": _data(name, array)}
        for name, array in arrays.items()
    ]


def _data(name: str, array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ServeError(f"JSON cannot carry '{name}' of this sample", status=501, got="NaN or an infinity")
    return array.ravel().tolist() if array.dtype.kind in "USO" else np.ascontiguousarray(array).ravel()
