"""What the head of a ModelInferRequest asks of one model: read once, used for every request that begins alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.grpc.wire import Parts
from ox.serve.repository.model import Model
from ox.serve.v2.document import quote
from ox.serve.v2.inputs import InputCodec
from ox.serve.v2.memory import REGION, SIZE, Regions
from ox.serve.v2.parameters import check
from ox.serve.v2.request import Request, Wanted

FINAL = "triton_enable_empty_final_response"
# Which list of InferTensorContents holds the elements of a datatype; FP16 and BF16 have none.
CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


class Plan:
    """The inputs, outputs and parameters of a request to a model.

    Args:
        model: whose.
        head: a ModelInferRequest without its id and its raw contents.
        regions: the shared memory that there is.

    Raises:
        ServeError: an input or output is unknown or named twice, or a parameter is wrong.
    """

    def __init__(self, model: Model, head: Any, regions: Regions) -> None:
        self.model = model
        signature = model.signature
        self.fed: dict[str, Array] = {}  # arrays of this request alone: from shared memory or from `contents`
        self.raw: list[tuple[InputCodec, dict[str, Any]]] = []
        names: dict[str, Any] = {}
        for tensor in head.inputs:
            codec = signature.input(tensor.name, names)
            names[codec.name] = None
            asked = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
            parameters = values(tensor.parameters) if tensor.parameters else {}
            if REGION in parameters or SIZE in parameters:
                window = regions.window(parameters, f"input '{codec.name}'")
                if tensor.HasField("contents"):
                    asked["data"] = None
                self.fed[codec.name] = codec.from_window(asked, window)
            elif tensor.HasField("contents"):
                self.fed[codec.name] = from_contents(codec, asked, tensor.contents)
            else:
                self.raw.append((codec, asked))
        wanted: dict[int, Wanted] = {}
        if len(head.outputs) > len(signature.outputs):
            got = f"{len(head.outputs)} outputs are asked for"
            raise ServeError(got, expected=f"at most {len(signature.outputs)}, each once")
        for output in head.outputs:
            signature.output(output.name, wanted, values(output.parameters) if output.parameters else {}, True, regions)
        self.outputs: Sequence[Wanted] = list(wanted.values()) or signature.all[True]
        parameters = values(head.parameters) if head.parameters else {}
        self.final = parameters.pop(FINAL, False) is True
        self.parameters: Mapping[str, Any] = check(parameters)
        self.plain = all(output.plain for output in self.outputs)
        self.lasting = self.plain and not self.fed  # good for other requests, too
        self.measured: tuple[int, tuple[Any, ...]] | None = None
        self.quick = [self._quick(codec, asked) for codec, asked in self.raw]
        self.forms: dict[tuple[Any, ...], list[bytes]] = {}  # of answers, by the shapes of their outputs
        self.single: tuple[str, int, tuple[int, ...], np.dtype[Any]] | None = None  # the only input, if it is quick

    @staticmethod
    def _quick(codec: InputCodec, asked: dict[str, Any]) -> tuple[int, tuple[int, ...], np.dtype[Any]] | None:
        """The bytes, shape and dtype of an input whose bytes can be taken as they are."""
        count = math.prod(asked["shape"])
        if not count or asked["datatype"] != codec.info.dtype or codec.dtype.kind not in "iuf":
            return None
        return count * codec.dtype.itemsize, tuple(asked["shape"]), codec.dtype

    def read(self, body: bytes, parts: Parts) -> Request:
        """The request whose parts those are.

        Raises:
            ServeError: its tensors are not what its head says, or not what the model takes.
        """
        raw = parts.raw
        if self.single is not None and len(raw) == 1:
            name, expected, shape, dtype = self.single
            at, size = raw[0]
            if size == expected:  # nearly always
                only: Array = np.ndarray(shape, dtype, body, at)
                if not only.flags.aligned:
                    only = only.copy()
                rows, key = self.measured  # type: ignore[misc]  # single is only set beside it
                return Request(parts.id, {name: only}, rows, key, self.outputs, self.parameters, self)
        if len(raw) != len(self.raw):
            raise self._miscounted(len(raw))
        feed = self.fed.copy()
        first = self.measured is None
        for (codec, asked), quick, (at, size) in zip(self.raw, self.quick, raw, strict=True):
            if first or quick is None or size != quick[0]:
                feed[codec.name] = codec.from_binary(asked, body, at, size)
            else:  # its shape was found to fit before
                array: Array = np.ndarray(quick[1], quick[2], body, at)
                feed[codec.name] = array if array.flags.aligned else array.copy()
        if self.measured is None:
            self.measured = self.model.signature.measure(feed)
            if len(self.raw) == 1 and not self.fed and self.quick[0] is not None:
                self.single = self.raw[0][0].name, *self.quick[0]
        rows, key = self.measured
        return Request(parts.id, feed, rows, key, self.outputs, self.parameters, self)

    def _miscounted(self, count: int) -> ServeError:
        named = ", ".join(f"'{codec.name}'" for codec, _ in self.raw) or "no inputs"
        what = f"raw_input_contents holds {count} tensors"
        if not count:
            return ServeError(f"input {named} has no data", hint="raw_input_contents, or contents in every input")
        return ServeError(what, expected=f"{len(self.raw)}, for {named}")


def values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as plain values."""
    plain = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is None:
            raise ServeError(f"the parameter {quote(name)} has no value")
        plain[name] = getattr(value, kind)
    return plain


def from_contents(codec: InputCodec, asked: dict[str, Any], contents: Any) -> Array:
    """The array of a tensor whose elements are written one by one.

    Raises:
        ServeError: they are in the wrong list, too few, too many or out of range.
    """
    field = CONTENTS.get(codec.info.dtype)
    if field is None:
        what = f"input '{codec.name}' is {codec.info.dtype}, which only raw_input_contents can carry"
        raise ServeError(what)
    others = [other.name for other, _ in contents.ListFields() if other.name != field]
    if others and asked["datatype"] == codec.info.dtype:
        got = ", ".join(others)
        raise ServeError(f"the elements of input '{codec.name}' are in the wrong list", expected=field, got=got)
    count = math.prod(codec.shape(asked))
    data: list[Any] = list(getattr(contents, field))
    if codec.info.dtype == "BYTES" and len(data) == count:  # else from_json refuses them
        try:
            data = [item.decode() for item in data]
        except UnicodeDecodeError as error:
            raise ServeError(f"the data of input '{codec.name}' is not all UTF-8", got=str(error)) from None
    return codec.from_json({**asked, "data": data}, codec.info.dtype == "BOOL")
