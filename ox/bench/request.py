"""The bytes of a request: written once, sent as often as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from ox.bench.address import Address
from ox.bench.inputs import InputArrays, to_bytes
from ox.bench.model import Model
from ox.bench.protobuf import framed, packed
from ox.errors import ArgumentError
from ox.protobuf import field

INFER = "/inference.GRPCInferenceService/ModelInfer"


def build(
    address: Address, model: Model, feed: InputArrays, binary: bool, parameters: Mapping[str, Any] | None = None
) -> bytes:
    """One inference: a whole HTTP request, which may have parameters, or a message as gRPC frames it."""
    if address.grpc:
        return framed(_message(model, feed))
    body, length = _document(model, feed, binary, parameters or {})
    lines = [
        f"POST {address.root}/v2/models/{model.name}/infer HTTP/1.1",
        f"host: {address.authority}",
        f"content-type: {'application/octet-stream' if binary else 'application/json'}",
        f"content-length: {len(body)}",
    ]
    if binary:
        lines.append(f"inference-header-content-length: {length}")
    if address.key is not None:
        lines.append(f"authorization: Bearer {address.key}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _document(model: Model, feed: InputArrays, binary: bool, parameters: Mapping[str, Any]) -> tuple[bytes, int]:
    """The JSON with the tensors' bytes behind it, and how long the JSON is."""
    entries: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for tensor in model.inputs:
        array = feed[tensor.name]
        entry: dict[str, Any] = {"name": tensor.name, "shape": array.shape, "datatype": tensor.datatype}
        if binary:
            parts.append(to_bytes(array))
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        elif tensor.datatype == "BF16":
            raise ArgumentError(f"{tensor.name!r} is BF16, which JSON cannot carry", hint="--binary")
        else:
            entry["data"] = _plain(array)
        entries.append(entry)
    parameters = {**parameters, **({"binary_data_output": True} if binary else {})}
    document: dict[str, Any] = {"parameters": parameters} if parameters else {}
    document["inputs"] = entries
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return text + b"".join(parts), len(text)


def _plain(array: Any) -> list[Any]:
    if array.dtype.hasobject:
        return [text.decode() if isinstance(text, bytes) else str(text) for text in array.ravel()]
    if array.dtype == np.float32:  # four digits: what a person would send, and not the sixteen of the same number
        return [float(text) for text in np.char.mod("%.4f", array.ravel())]
    values: list[Any] = array.ravel().tolist()
    return values


def _message(model: Model, feed: InputArrays) -> bytes:
    """ModelInferRequest: 1 model_name, 5 inputs (1 name, 2 datatype, 3 shape), 7 raw_input_contents."""
    parts = [field(1, model.name)]
    for tensor in model.inputs:
        shape = packed(3, feed[tensor.name].shape)
        parts.append(field(5, field(1, tensor.name) + field(2, tensor.datatype) + shape))
    parts += [field(7, to_bytes(feed[tensor.name])) for tensor in model.inputs]
    return b"".join(parts)
