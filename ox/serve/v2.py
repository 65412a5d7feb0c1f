"""The Open Inference Protocol V2's inference request and reply, compiled for one model.

A request is JSON, or JSON followed by the raw bytes of its tensors (the binary tensor data extension). Everything
that can be known from the model is prepared once, so a request costs a dictionary look-up and a comparison per input.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson

from ox.errors import ServeError
from ox.graph.contract import DTYPES, Array, TensorInfo, from_bytes, show_dims, to_bytes
from ox.serve.document import flag, identifier_of, load_json, nearest, parameters_of, quote

# struct refuses what does not fit: text, fractions for an integer, numbers out of range
CODES = {
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
INTEGERS = {int}
LARGEST_DIM = 1 << 40
MOST_DIMS = 32
UNSUPPORTED = ("classification", "shared_memory_region")  # parameters that change the meaning of a tensor


class Wanted(NamedTuple):
    """An output that the client asks for: its place among the model's outputs, and whether as raw bytes."""

    place: int
    binary: bool


@dataclass(slots=True)
class Request:
    """What a request asks: arrays by input name, all with `rows` rows; requests of equal `key` may share a batch."""

    id: str | None
    feed: dict[str, Array]
    rows: int
    key: tuple[Any, ...]
    outputs: Sequence[Wanted]


class Codec:
    """Reads requests for a model and writes its replies.

    Args:
        name, version: how the model is called in replies.
        inputs, outputs: its interface.
        max_rows: the most rows of one request.
        max_reply: the most bytes of one answer.
    """

    def __init__(
        self,
        name: str,
        version: str,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        max_rows: int,
        max_reply: int,
    ) -> None:
        self.name, self.version = name, version
        self.outputs = outputs
        self.max_rows, self.max_reply = max_rows, max_reply
        self._inputs = {info.name: InputCodec(info) for info in inputs}
        self._places = {info.name: place for place, info in enumerate(outputs)}
        self._all = {binary: [Wanted(place, binary) for place in range(len(outputs))] for binary in (False, True)}
        # One varying size at most means that each input can be checked alone, and batches need no grouping.
        tails = [info.dims[1:] for info in inputs]
        self._named = any(not isinstance(size, int) for tail in tails for size in tail) or len(inputs) > 1
        self._grouped = any(not isinstance(size, int) for tail in tails for size in tail)

    def decode(self, body: bytes, header_length: int | None = None) -> Request:
        """Reads a body; `header_length` is where its JSON ends and binary tensors begin, None for JSON alone.

        Raises:
            ServeError: whatever is wrong with it, with the status for the reply.
        """
        text = body if header_length is None else body[:header_length]
        document = load_json(text)
        truths = b"true" in text or b"false" in text  # quicker to ask the text than every element
        tensors = document.get("inputs")
        if type(tensors) is not list:
            raise ServeError("the request has no list 'inputs'", hint=f'{{"inputs": [{self._example()}]}}')
        feed: dict[str, Array] = {}
        at = header_length
        for tensor in tensors:
            codec = self._input(tensor, feed)
            size = parameters_of(tensor).get("binary_data_size") if "parameters" in tensor else None
            if size is None:
                feed[codec.name] = codec.from_json(tensor, truths)
            else:
                if at is None:
                    raise ServeError(
                        f"input '{codec.name}' is announced as binary",
                        hint="the header Inference-Header-Content-Length",
                    )
                if type(size) is not int or not 0 <= size <= len(body) - at:
                    got = f"binary_data_size {size!r}, {len(body) - at} bytes left"
                    raise ServeError(f"the bytes of input '{codec.name}' are not all there", got=got)
                feed[codec.name] = codec.from_binary(tensor, body, at, size)
                at += size
        if at is not None and at != len(body):
            raise ServeError(f"{len(body) - at} bytes follow the last binary tensor")
        if len(feed) != len(self._inputs):
            missing = ", ".join(f"'{name}'" for name in self._inputs if name not in feed)
            raise ServeError(f"input {missing} is missing", expected=self._names())
        rows, key = self._measure(feed)
        return Request(identifier_of(document), feed, rows, key, self._wanted(document))

    def _measure(self, feed: dict[str, Array]) -> tuple[int, tuple[Any, ...]]:
        """Rows and grouping key; sizes of one name must agree."""
        if self._named:
            sizes: dict[str, tuple[int, str]] = {}
            for name, array in feed.items():
                for dim, size in zip(self._inputs[name].info.dims, array.shape, strict=True):
                    if isinstance(dim, str) and sizes.setdefault(dim, (size, name))[0] != size:
                        other, where = sizes[dim]
                        raise ServeError(
                            f"'{dim}' is {size} in input '{name}'", expected=f"{other}, as in input '{where}'"
                        )
        first = next(iter(feed.values()), None)
        rows = first.shape[0] if first is not None and first.ndim else 1
        if rows > self.max_rows:
            raise ServeError(f"{rows} rows in one request", status=413, expected=f"at most {self.max_rows}")
        # In the model's order: two clients may list the same inputs differently.
        return rows, tuple(feed[name].shape[1:] for name in self._inputs) if self._grouped else ()

    def _input(self, tensor: Any, feed: dict[str, Array]) -> InputCodec:
        if type(tensor) is not dict:
            raise ServeError("an input is not an object", expected=self._example())
        name = tensor.get("name")
        codec = self._inputs.get(name) if type(name) is str else None
        if codec is None:
            raise ServeError(
                f"there is no input {quote(name)}", expected=self._names(), hint=nearest(name, self._inputs)
            )
        if name in feed:
            raise ServeError(f"input '{name}' appears twice")
        return codec

    def _wanted(self, document: dict[str, Any]) -> Sequence[Wanted]:
        binary = "parameters" in document and flag(parameters_of(document), "binary_data_output")
        listed = document.get("outputs")
        if not listed:
            return self._all[binary]
        if type(listed) is not list:
            raise ServeError("'outputs' is not a list")
        if len(listed) > len(self.outputs):
            raise ServeError(f"{len(listed)} outputs are asked for", expected=f"at most {len(self.outputs)}, each once")
        wanted: dict[int, Wanted] = {}
        for output in listed:
            name = output.get("name") if type(output) is dict else output
            place = self._places.get(name) if type(name) is str else None
            if place is None:
                names = ", ".join(f"'{info.name}'" for info in self.outputs)
                raise ServeError(f"there is no output {quote(name)}", expected=names, hint=nearest(name, self._places))
            if place in wanted:
                raise ServeError(f"output '{name}' is asked for twice")
            parameters = parameters_of(output)
            for unsupported in UNSUPPORTED:
                if parameters.get(unsupported):
                    raise ServeError(f"output '{name}' asks for {unsupported}, which this server does not have")
            own = flag(parameters, "binary_data") if "binary_data" in parameters else binary
            wanted[place] = Wanted(place, own)
        return list(wanted.values())

    def _names(self) -> str:
        return ", ".join(str(codec.info) for codec in self._inputs.values()) or "no inputs"

    def _example(self) -> str:
        for codec in self._inputs.values():
            shape = [size if isinstance(size, int) else 1 for size in codec.info.dims]
            return f'{{"name": "{codec.name}", "shape": {shape}, "datatype": "{codec.info.dtype}", "data": [...]}}'
        return ""

    def encode(self, request: Request, arrays: Sequence[Array]) -> tuple[bytes, int | None]:
        """The body of the reply, and the length of its JSON part if binary tensors follow it.

        Raises:
            ServeError: an output cannot be written as JSON (bfloat16, NaN, infinities), or the answer is too large.
        """
        outputs: list[dict[str, Any]] = []
        blobs: list[bytes] = []
        least = 0  # bytes of the answer, as far as they can be told before it is written
        for place, binary in request.outputs:
            info, array = self.outputs[place], arrays[place]
            least += array.nbytes if binary else 2 * array.size
            if least > self.max_reply:
                raise self._too_large()
            tensor: dict[str, Any] = {"name": info.name, "datatype": info.dtype, "shape": array.shape}
            if binary:
                blob = to_bytes(array)
                tensor["parameters"] = {"binary_data_size": len(blob)}
                blobs.append(blob)
            elif info.dtype == "BF16":
                raise ServeError(f"output '{info.name}' is BF16, which JSON cannot carry", hint=BINARY_OUTPUT)
            else:
                tensor["data"] = array.ravel().tolist() if info.dtype == "BYTES" else array.ravel()
            outputs.append(tensor)
        reply: dict[str, Any] = {"model_name": self.name, "model_version": self.version, "outputs": outputs}
        if request.id is not None:
            reply["id"] = request.id
        text = orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY)
        if b"null" in text:  # what orjson makes of NaN; looking at the text first is cheaper than at every array
            self._refuse_nan(request, arrays)
        if len(text) + sum(map(len, blobs)) > self.max_reply:
            raise self._too_large()
        return (text + b"".join(blobs), len(text)) if blobs else (text, None)

    def _too_large(self) -> ServeError:
        expected = f"at most {self.max_reply} bytes"
        return ServeError("the answer is too large", expected=expected, hint="fewer rows, or outputs as binary data")

    def _refuse_nan(self, request: Request, arrays: Sequence[Array]) -> None:
        for place, binary in request.outputs:
            if not binary and arrays[place].dtype.kind == "f" and not np.isfinite(arrays[place]).all():
                raise ServeError(
                    f"output '{self.outputs[place].name}' holds NaN or an infinity, which JSON cannot carry",
                    status=500,
                    hint=BINARY_OUTPUT,
                )


BINARY_OUTPUT = '"parameters": {"binary_data": true} on that output'


class InputCodec:
    """Checks and converts one input's tensors."""

    def __init__(self, info: TensorInfo) -> None:
        self.info, self.name = info, info.name
        self.dtype = DTYPES[info.dtype]
        self._code = CODES.get(info.dtype)
        sizes = [size for size in info.dims[1:] if isinstance(size, int)]
        self._fixed: list[int] | None = sizes if len(sizes) == len(info.dims[1:]) else None
        self._free_first = bool(info.dims) and not isinstance(info.dims[0], int)
        self._one_row = [1, *sizes] if self._free_first else None
        self._pack_row = None
        if self._one_row is not None and self._code is not None and self._fixed is not None:
            self._pack_row = struct.Struct(f"<{math.prod(self._fixed)}{self._code}").pack

    def _shape(self, tensor: dict[str, Any]) -> list[int]:
        """The tensor's shape, checked against the model's, and its datatype on the way."""
        if tensor.get("datatype") != self.info.dtype:
            got = quote(tensor.get("datatype"))
            raise ServeError(f"input '{self.name}' has datatype {got}", expected=self.info.dtype)
        shape = tensor.get("shape")
        if type(shape) is not list or not all(type(size) is int for size in shape):
            raise ServeError(f"input '{self.name}' has no shape", expected=show_dims(self.info.dims), got=quote(shape))
        if self._free_first and self._fixed is not None and shape[1:] == self._fixed and 0 < shape[0] < LARGEST_DIM:
            return shape  # nearly always
        if len(shape) > MOST_DIMS:
            got = f"{len(shape)} dimensions"
            raise ServeError(f"input '{self.name}' has another rank", expected=show_dims(self.info.dims), got=got)
        if self._free_first and shape and shape[0] == 0:
            raise ServeError(f"input '{self.name}' has no rows", expected=show_dims(self.info.dims), got=str(shape))
        fits = len(shape) == len(self.info.dims) and all(
            size == dim if isinstance(dim, int) else 0 <= size < LARGEST_DIM
            for size, dim in zip(shape, self.info.dims, strict=True)
        )
        if not fits:
            raise ServeError(
                f"input '{self.name}' has shape {shape}", expected=show_dims(self.info.dims), hint=self._suggest(shape)
            )
        return shape

    def _suggest(self, shape: list[int]) -> str | None:
        """The shape that the client probably meant: the same elements in rows of this model."""
        if not self._free_first or self._fixed is None:
            return None
        row, count = math.prod(self._fixed), math.prod(shape)
        if not row or count % row or not 0 < count // row < LARGEST_DIM:
            return None
        return f"shape {[count // row, *self._fixed]}"

    def from_json(self, tensor: dict[str, Any], truths: bool) -> Array:
        """The array of a tensor with data; `truths` is whether true or false may be among them: numbers to struct."""
        if (
            self._pack_row is not None
            and not truths
            and type(shape := tensor.get("shape")) is list
            and shape == self._one_row
            and set(map(type, shape)) == INTEGERS
            and tensor.get("datatype") == self.info.dtype
        ):
            try:  # one flat row, nearly always; whatever else it is, the careful way below accepts or explains it
                return np.frombuffer(self._pack_row(*tensor["data"]), self.dtype).reshape(self._one_row)
            except (struct.error, OverflowError, TypeError, KeyError):
                pass
        shape = self._shape(tensor)
        data = tensor.get("data")
        if type(data) is not list:
            for parameter in UNSUPPORTED:
                if parameter in parameters_of(tensor):
                    raise ServeError(f"input '{self.name}' asks for {parameter}, which this server does not have")
            raise ServeError(f"input '{self.name}' has no list 'data'")
        count = math.prod(shape)
        if data and type(data[0]) is list:
            data = self._flatten(data, shape)
        if len(data) != count:
            raise ServeError(f"input '{self.name}' has {len(data)} elements", expected=f"{count} for shape {shape}")
        try:
            if self._code is not None:
                if truths and any(type(item) is bool for item in data):
                    raise TypeError("true or false")
                return np.frombuffer(struct.pack(f"<{count}{self._code}", *data), self.dtype).reshape(shape)
            return self._objects(data).reshape(shape)
        except (struct.error, OverflowError, TypeError, ValueError) as error:
            raise ServeError(f"the data of input '{self.name}' is not all {self.info.dtype}", got=str(error)) from None

    def _objects(self, data: list[Any]) -> Array:
        """BOOL and BYTES, which struct does not check."""
        if self.info.dtype == "BF16":
            raise TypeError("JSON; BF16 exists only as binary data")
        allowed: tuple[type, ...] = (str,) if self.info.dtype == "BYTES" else (bool,)
        for item in data:
            if type(item) not in allowed:
                raise TypeError(quote(item))
        array = np.empty(len(data), self.dtype)
        array[:] = data
        return array

    def _flatten(self, data: list[Any], shape: list[int]) -> list[Any]:
        """Nested lists in row-major order; they must nest exactly as the shape says."""
        for size in shape[1:]:
            if not all(type(item) is list and len(item) == size for item in data):
                raise ServeError(f"the nested data of input '{self.name}' does not have shape {shape}")
            data = list(chain.from_iterable(data))
        return data

    def from_binary(self, tensor: dict[str, Any], body: bytes, at: int, size: int) -> Array:
        shape = self._shape(tensor)
        if self._code is None or size != math.prod(shape) * self.dtype.itemsize:
            try:
                return from_bytes(body[at : at + size], self.info.dtype, tuple(shape))
            except ValueError as error:
                raise ServeError(f"the bytes of input '{self.name}' do not fit", got=str(error)) from None
        if not size:
            return np.empty(shape, self.dtype)
        array = np.frombuffer(body, self.dtype, math.prod(shape), at).reshape(shape)
        return array if array.flags.aligned else array.copy()
