"""A parsed ModelInferRequest head for one model, reused for all requests with the same head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.protocol.grpc.wire import MessageParts
from ox.serve.protocol.v2.inputs import InputCodec
from ox.serve.protocol.v2.parameters import check
from ox.serve.protocol.v2.request import Request, RequestedOutput
from ox.serve.protocol.v2.shared_memory import REGION, SIZE, Regions
from ox.serve.repository.model import Model

FINAL_RESPONSE = "triton_enable_empty_final_response"
# The field of InferTensorContents for each datatype; FP16 and BF16 have none.
CONTENTS_FIELD = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


class RequestTemplate:
    """The inputs, outputs and parameters of a request to a model.

    Args:
        model: the model.
        head: a ModelInferRequest without id and raw contents.
        regions: the shared memory regions.

    Raises:
        ServeError: an input or output is unknown or appears twice, or a parameter is invalid.
    """

    def __init__(self, model: Model, head: Any, regions: Regions) -> None:
        self.model = model
        signature = model.signature
        self.fixed_inputs: dict[str, Array] = {}  # arrays of this request only: from shared memory or `contents`
        self.raw_inputs: list[tuple[InputCodec, dict[str, Any]]] = []
        names: dict[str, Any] = {}
        for tensor in head.inputs:
            codec = signature.input(tensor.name, names)
            names[codec.name] = None
            description = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
            parameters = parameter_values(tensor.parameters) if tensor.parameters else {}
            if REGION in parameters or SIZE in parameters:
                window = regions.slice(parameters, f"input '{codec.name}'")
                if tensor.HasField("contents"):
                    description["data"] = None
                self.fixed_inputs[codec.name] = codec.from_shared_memory(description, window)
            elif tensor.HasField("contents"):
                self.fixed_inputs[codec.name] = from_contents(codec, description, tensor.contents)
            else:
                self.raw_inputs.append((codec, description))
        requested: dict[int, RequestedOutput] = {}
        if len(head.outputs) > len(signature.outputs):
            got = f"{len(head.outputs)} outputs are requested"
            raise ServeError(got, expected=f"at most {len(signature.outputs)}, each once")
        for output in head.outputs:
            signature.output(
                output.name, requested, parameter_values(output.parameters) if output.parameters else {}, True, regions
            )
        self.outputs: Sequence[RequestedOutput] = list(requested.values()) or signature.all_outputs[True]
        parameters = parameter_values(head.parameters) if head.parameters else {}
        self.final_response = parameters.pop(FINAL_RESPONSE, False) is True
        self.parameters: Mapping[str, Any] = check(parameters)
        self.plain = all(output.plain for output in self.outputs)
        # reusable for other requests
        self.reusable = (
            self.plain and not self.fixed_inputs and not signature.gives_defaulted(each.name for each in head.inputs)
        )
        self.rows_and_key: tuple[int, tuple[Any, ...]] | None = None
        self.raw_layouts = [self._raw_layout(codec, description) for codec, description in self.raw_inputs]
        self.response_forms: dict[tuple[Any, ...], list[bytes]] = {}  # response forms by output shapes
        self.single_input: tuple[str, int, tuple[int, ...], np.dtype[Any]] | None = (
            None  # the layout of the only input, for the fast path
        )

    @staticmethod
    def _raw_layout(
        codec: InputCodec, description: dict[str, Any]
    ) -> tuple[int, tuple[int, ...], np.dtype[Any]] | None:
        """Size, shape and dtype of an input whose bytes need no conversion; otherwise None."""
        count = math.prod(description["shape"])
        if not count or description["datatype"] != codec.info.dtype or codec.dtype.kind not in "iuf":
            return None
        return count * codec.dtype.itemsize, tuple(description["shape"]), codec.dtype

    def read(self, body: bytes, parts: MessageParts) -> Request:
        """The request of a message in parts.

        Raises:
            ServeError: the tensors do not match the head or the model.
        """
        raw = parts.raw
        if self.single_input is not None and len(raw) == 1:
            name, expected, shape, dtype = self.single_input
            at, size = raw[0]
            if size == expected:  # the fast path
                single: Array = np.ndarray(shape, dtype, body, at)
                if not single.flags.aligned:
                    single = single.copy()
                rows, key = self.rows_and_key  # type: ignore[misc]  # single is only set beside it
                return Request(parts.id, {name: single}, rows, key, self.outputs, self.parameters, self)
        if len(raw) != len(self.raw_inputs):
            raise self._count_error(len(raw))
        feed = self.fixed_inputs.copy()
        first = self.rows_and_key is None
        for (codec, description), layout, (at, size) in zip(self.raw_inputs, self.raw_layouts, raw, strict=True):
            if first or layout is None or size != layout[0]:
                feed[codec.name] = codec.from_binary(description, body, at, size)
            else:  # its shape was checked before
                array: Array = np.ndarray(layout[1], layout[2], body, at)
                feed[codec.name] = array if array.flags.aligned else array.copy()
        if self.rows_and_key is None:
            self.rows_and_key = self.model.signature.rows_and_key(feed)
            if len(self.raw_inputs) == 1 and not self.fixed_inputs and self.raw_layouts[0] is not None:
                self.single_input = self.raw_inputs[0][0].name, *self.raw_layouts[0]
        rows, key = self.rows_and_key
        return Request(parts.id, feed, rows, key, self.outputs, self.parameters, self)

    def _count_error(self, count: int) -> ServeError:
        named = ", ".join(f"'{codec.name}'" for codec, _ in self.raw_inputs) or "no inputs"
        what = f"raw_input_contents holds {count} tensors"
        if not count:
            return ServeError(f"input {named} has no data", hint="raw_input_contents, or contents in every input")
        return ServeError(what, expected=f"{len(self.raw_inputs)}, for {named}")


def parameter_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as Python values. One without a value counts as absent, as null over HTTP."""
    kinds = {name: value.WhichOneof("parameter_choice") for name, value in parameters.items()}
    return {name: getattr(parameters[name], kind) for name, kind in kinds.items() if kind is not None}


def from_contents(codec: InputCodec, description: dict[str, Any], contents: Any) -> Array:
    """The array of a tensor in InferTensorContents.

    Raises:
        ServeError: wrong field, wrong number of elements, or elements out of range.
    """
    field = CONTENTS_FIELD.get(codec.info.dtype)
    if field is None:
        what = f"input '{codec.name}' is {codec.info.dtype}, which only raw_input_contents can carry"
        raise ServeError(what)
    others = [other.name for other, _ in contents.ListFields() if other.name != field]
    if others and description["datatype"] == codec.info.dtype:
        got = ", ".join(others)
        raise ServeError(f"the elements of input '{codec.name}' are in the wrong list", expected=field, got=got)
    count = math.prod(codec.shape(description))
    data: list[Any] = list(getattr(contents, field))
    if codec.info.dtype == "BYTES" and len(data) == count:  # otherwise from_json refuses them
        try:
            data = [item.decode() for item in data]
        except UnicodeDecodeError as error:
            raise ServeError(f"the data of input '{codec.name}' is not all UTF-8", got=str(error)) from None
    return codec.from_json({**description, "data": data}, codec.info.dtype == "BOOL")
