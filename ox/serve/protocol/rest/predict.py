"""KServe's V1 protocol: `:predict` after the name of a model. A request becomes one of V2, and its outputs rows."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.rest.body import json_length, read_body
from ox.serve.protocol.rest.inference import HttpPending
from ox.serve.protocol.rest.routing import Context, Fields, PathParameters
from ox.serve.protocol.v2.document import load_json, quote
from ox.serve.protocol.v2.inputs import InputCodec
from ox.serve.protocol.v2.request import Request
from ox.serve.protocol.v2.signature import Signature
from ox.serve.response_memory import Body
from ox.serve.transport.http import Exchange

REQUEST: Fields = {
    "instances": {"type": "array", "description": "rows: of one input as they are, of several as objects by name"},
    "inputs": {"description": "in place of instances: the same, or an object of whole tensors by name"},
}
REPLY: Fields = {"predictions": {"type": "array", "description": "rows: of several outputs as objects by name"}}
EXPECTED = '{"instances": [...]} or {"inputs": [...]}'
BASE64 = "b64"  # the name of the only field of an object that is a string
Columns = dict[str, Any]  # the whole tensor of each input, as JSON


def predict(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Answers a request.

    Raises:
        ServeError: there is no such model, a wrong request, or a limit is reached.
    """
    model = context.service.repository.find(names["model"])
    try:
        if model.sequences is not None:
            hint = f"POST /v2/models/{model.name}/infer with sequence_id"
            raise ServeError(f"model '{model.name}' has sequences, which KServe's V1 protocol lacks", hint=hint)
        request = _read(exchange, model.signature, context.limits)
    except ServeError as error:
        model.stages.failed(error, exchange.received_at, exchange.headers)
        raise
    write = partial(_write, model.signature, context.limits.reply)
    pending = HttpPending(request, model, write, exchange, exchange.received_at, exchange.headers)
    pending.submit()
    exchange.on_cancel = pending.abandon


def _read(exchange: Exchange, signature: Signature, limits: RequestLimits) -> Request:
    body = read_body(exchange, limits)
    json_length({}, len(body), limits)
    columns, whole = _columns(load_json(body), signature)
    has_booleans = b"true" in body or b"false" in body
    feed: dict[str, Array] = {}
    unbatched = False  # the outputs are one instance
    for name, data in columns.items():
        codec = signature.input(name, feed)
        if codec.info.dtype == "BYTES":
            data = _decoded(data, len(codec.info.dims) + 1)
        shape = _shape(data)
        own = len(shape) == len(codec.info.dims) + 1  # each instance has a whole tensor
        if name in signature.defaulted:  # which has no rows: one tensor for all of them
            if own and not whole:
                data, shape = _shared(name, data), shape[1:]
        elif own and shape[0] == 1 and not signature.batched:  # the only instance
            data, shape, unbatched = data[0], shape[1:], True
        else:
            if _is_flat(codec, shape):
                shape += [1] * (len(codec.info.dims) - 1)
            unbatched |= whole and all(isinstance(size, int) for size in codec.info.dims[:1])
        tensor = {"datatype": codec.info.dtype, "shape": shape, "data": data if type(data) is list else [data]}
        feed[name] = codec.from_json(tensor, has_booleans)
    rows, key = signature.rows_and_key(feed)
    return Request(None, feed, rows, key, signature.all_outputs[False], writer_state=unbatched)


def _columns(document: dict[str, Any], signature: Signature) -> tuple[Columns, bool]:
    """The inputs, in whichever form they came, and whether they came as whole tensors."""
    given = [name for name in ("instances", "inputs") if document.get(name) is not None]
    if len(given) != 1:
        got = " and ".join(given) or quote(document)
        raise ServeError("the request has no list of instances", expected=EXPECTED, got=got)
    value = document[given[0]]
    if type(value) is dict and given == ["inputs"]:
        return value, True
    if type(value) is not list or not value:
        raise ServeError(f"'{given[0]}' is not a list of instances", expected=EXPECTED, got=quote(value))
    strings = BASE64 not in signature.inputs
    if not any(type(instance) is dict and not (strings and instance.keys() == {BASE64}) for instance in value):
        name = next(iter(signature.inputs), "")
        if len(signature.inputs) > 1 and signature.add_optional_inputs is None:
            what = "the model has several inputs, so an instance is an object"
            raise ServeError(what, expected=signature.names(), got=quote(value[0]))
        return {name: value}, False
    names = list(value[0]) if type(value[0]) is dict else []
    for place, instance in enumerate(value):
        if type(instance) is not dict or instance.keys() != set(names):
            got = f"in instance {place} {', '.join(instance) if type(instance) is dict else quote(instance)}"
            raise ServeError("the instances have different inputs", expected=", ".join(names) or "lists", got=got[:200])
    return {name: [instance[name] for instance in value] for name in names}, False


def _shared(name: str, data: list[Any]) -> Any:
    """The tensor of an input without rows, which all instances give."""
    place = next((place for place, each in enumerate(data) if each != data[0]), None)
    if place is not None:
        what = f"the instances have different values of '{name}', which is for the whole request"
        raise ServeError(what, expected="one value", got=f"another one in instance {place}", hint="several requests")
    return data[0]


def _decoded(data: Any, levels: int) -> Any:
    """Strings in place of objects of base64, in so many levels of lists."""
    if type(data) is list and levels:
        return [_decoded(each, levels - 1) for each in data]
    if type(data) is not dict or data.keys() != {BASE64}:
        return data
    text = data[BASE64]
    try:
        return base64.b64decode(text, validate=True).decode()
    except (TypeError, ValueError):
        expected = '{"b64": base64 of a text in UTF-8}'
        raise ServeError("a string is wrong", expected=expected, got=quote(text)) from None


def _shape(data: Any) -> list[int]:
    """The shape of nested lists, by the first of each; what reads them compares the others."""
    shape = []
    while type(data) is list:
        shape.append(len(data))
        data = data[0] if data else None
    return shape


def _is_flat(codec: InputCodec, shape: list[int]) -> bool:
    """Whether rows of one number or string came without the lists around each."""
    row = codec.info.dims[1:]
    return len(shape) == 1 and len(row) > 0 and all(size == 1 for size in row)


def _write(signature: Signature, limit: int, request: Request, arrays: Sequence[Array]) -> tuple[Body, None]:
    size, values = 0, dict[str, Any]()
    for info, array in zip(signature.outputs, arrays, strict=True):
        size += 2 * array.size  # no number is shorter
        if size > limit:
            raise _too_large(limit)
        if info.dtype == "BF16":
            array = array.astype(np.float32)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            what = f"output '{info.name}' holds NaN or an infinity, which JSON cannot carry"
            raise ServeError(what, status=500, hint="inference in V2 with binary outputs")
        values[info.name] = array.tolist() if info.dtype == "BYTES" or not array.ndim else array.copy(order="C")
    body = orjson.dumps({"predictions": _predictions(request, values, arrays)}, option=orjson.OPT_SERIALIZE_NUMPY)
    if len(body) > limit:
        raise _too_large(limit)
    return body, None


def _predictions(request: Request, values: dict[str, Any], arrays: Sequence[Array]) -> Any:
    """The rows of one output, or objects of the rows of several."""
    rows = {array.shape[0] if array.ndim else 0 for array in arrays}
    if request.writer_state or rows != {request.rows}:  # not one for each row: all of them for the whole request
        return [next(iter(values.values())) if len(values) == 1 else values]
    if len(values) == 1:
        return next(iter(values.values()))
    return [{name: value[row] for name, value in values.items()} for row in range(request.rows)]


def _too_large(limit: int) -> ServeError:
    expected = f"at most {limit} bytes (--limit reply)"
    return ServeError("the response is too large", status=413, expected=expected, hint="fewer instances")
