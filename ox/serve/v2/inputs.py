"""Checks and converts the tensors of one input of a model. What can be known from the model is prepared once."""

from __future__ import annotations

import math
import struct
from itertools import chain
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import DTYPES, Array, TensorInfo, from_bytes, show_dims
from ox.serve.dimension_limits import DimensionLimits
from ox.serve.v2.document import quote
from ox.serve.v2.memory import Window
from ox.serve.v2.misfit import misfit

# struct refuses what does not fit: text, fractions for an integer, numbers out of range
CODES = {
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
INTEGERS = {int}
LARGEST_DIM = 1 << 40
MOST_DIMS = 32


class InputCodec:
    """Checks and converts one input's tensors.

    Args:
        info: the input.
        max_rows: the most that a first dimension that varies may be.
        max_strings: the most elements, if they are strings.
        batched: whether the first dimension counts rows, of which there must be one.
        limits: the most that dimensions may be.
    """

    def __init__(
        self,
        info: TensorInfo,
        max_rows: int,
        max_strings: int,
        batched: bool = True,
        limits: DimensionLimits | None = None,
    ) -> None:
        self.info, self.name = info, info.name
        self.dtype = DTYPES[info.dtype]
        self._code = CODES.get(info.dtype)
        sizes = [size for size in info.dims[1:] if isinstance(size, int)]
        self._fixed: list[int] | None = sizes if len(sizes) == len(info.dims[1:]) else None
        self._free_first = bool(info.dims) and not isinstance(info.dims[0], int)
        self._batched = batched
        self.limits = limits
        self._one_row = [1, *sizes] if self._free_first else None
        self._max_rows, self._max_strings = max_rows, max_strings if info.dtype == "BYTES" else None
        self._usual_rows = max_rows  # as many need no second look
        if self._max_strings is not None:
            self._usual_rows = min(max_rows, max_strings // max(1, math.prod(sizes)))
        for axis, most, _ in () if limits is None else limits.axes:
            if axis == 0:
                self._usual_rows = min(self._usual_rows, most)
        self._pack_row = None
        if self._one_row is not None and self._code is not None and self._fixed is not None:
            self._pack_row = struct.Struct(f"<{math.prod(self._fixed)}{self._code}").pack

    def shape(self, tensor: dict[str, Any]) -> list[int]:
        """The tensor's shape, checked against the model's and the limits, and its datatype on the way.

        It comes before all work that takes the longer the more elements there are.
        """
        if tensor.get("datatype") != self.info.dtype:
            got = quote(tensor.get("datatype"))
            raise ServeError(f"input '{self.name}' has datatype {got}", expected=self.info.dtype)
        shape = tensor.get("shape")
        if type(shape) is not list or not all(type(size) is int for size in shape):
            raise ServeError(f"input '{self.name}' has no shape", expected=show_dims(self.info.dims), got=quote(shape))
        if (
            self._free_first
            and self._fixed is not None
            and shape[1:] == self._fixed
            and 0 < shape[0] <= self._usual_rows
        ):
            return shape  # nearly always
        if len(shape) > MOST_DIMS:
            got = f"{len(shape)} dimensions"
            raise ServeError(f"input '{self.name}' has another rank", expected=show_dims(self.info.dims), got=got)
        if self._free_first and self._batched and shape and shape[0] == 0:
            raise ServeError(f"input '{self.name}' has no rows", expected=show_dims(self.info.dims), got=str(shape))
        fits = len(shape) == len(self.info.dims) and all(
            size == dim if isinstance(dim, int) else 0 <= size < LARGEST_DIM
            for size, dim in zip(shape, self.info.dims, strict=True)
        )
        if not fits:
            raise ServeError(
                f"input '{self.name}' has shape {shape}", expected=show_dims(self.info.dims), hint=self._suggest(shape)
            )
        if self._free_first and shape[0] > self._max_rows:
            raise ServeError(
                f"{shape[0]} rows in one request", status=413, expected=f"at most {self._max_rows} (--limit rows)"
            )
        if self.limits is not None:
            self.limits.check(shape)
        if self._max_strings is not None and math.prod(shape) > self._max_strings:
            what = f"input '{self.name}' has {math.prod(shape)} strings"
            raise ServeError(
                what,
                status=413,
                expected=f"at most {self._max_strings} (--limit strings)",
                hint="fewer rows in one request",
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
        shape = self.shape(tensor)
        data = tensor.get("data")
        if type(data) is not list:
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
        except (struct.error, OverflowError, TypeError, ValueError):
            raise misfit(self.info, self._code, data) from None

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

    def from_binary(self, tensor: dict[str, Any], body: bytes | bytearray, at: int, size: int) -> Array:
        shape = self.shape(tensor)
        if self._code is None or size != math.prod(shape) * self.dtype.itemsize:
            try:
                return from_bytes(body[at : at + size], self.info.dtype, tuple(shape))
            except ValueError as error:
                raise ServeError(f"the bytes of input '{self.name}' do not fit", got=str(error)) from None
        if not size:
            return np.empty(shape, self.dtype)
        array = np.frombuffer(body, self.dtype, math.prod(shape), at).reshape(shape)
        return array if array.flags.aligned else array.copy()

    def from_raw(self, body: bytes | bytearray) -> Array:
        """The array whose bytes are the whole body, with no word about it: the shape follows from their number.

        A first dimension that counts rows is 1 where another one varies as well.

        Raises:
            ServeError: no shape of this input has so many bytes, or more than one might.
        """
        dims, size = self.info.dims, len(body)
        free = [place for place, dim in enumerate(dims) if not isinstance(dim, int)]
        if self._free_first and self._batched and (len(free) > 1 or self.info.dtype == "BYTES"):
            free = free[1:]
        shape = [dim if isinstance(dim, int) else 1 for dim in dims]
        if self.info.dtype == "BYTES":
            if free or math.prod(shape) != 1:
                what = f"a body without JSON is one element, and input '{self.name}' has more"
                raise ServeError(what, expected=show_dims(dims), hint="Inference-Header-Content-Length with JSON")
            body = struct.pack("<I", size) + body
        elif len(free) > 1:
            what = f"more than one dimension varies of input '{self.name}', so that a body without JSON has no shape"
            raise ServeError(what, expected=show_dims(dims), hint="Inference-Header-Content-Length with JSON")
        elif free:
            step = math.prod(shape) * self.dtype.itemsize
            if not step or size % step:
                what = f"a body of {size} bytes is no input '{self.name}'"
                raise ServeError(what, expected=f"a multiple of {step} bytes, as {self.info.dtype} {show_dims(dims)}")
            shape[free[0]] = size // step
        return self.from_binary({"datatype": self.info.dtype, "shape": shape}, body, 0, len(body))

    def from_window(self, tensor: dict[str, Any], window: Window) -> Array:
        """The array of a tensor that lies in shared memory: a copy, which its owner can no longer change."""
        if "data" in tensor:
            raise ServeError(f"input '{self.name}' lies in shared memory and has data as well", hint="one of the two")
        shape = self.shape(tensor)
        size = math.prod(shape) * self.dtype.itemsize
        if self.info.dtype != "BYTES" and window.size != size:
            raise ServeError(
                f"input '{self.name}' has {window.size} bytes in shared memory",
                expected=f"{size} for {self.info.dtype} of shape {shape}",
            )
        data = window.read()
        if self._code is None:
            try:
                return from_bytes(data.tobytes(), self.info.dtype, tuple(shape))
            except ValueError as error:
                raise ServeError(f"the bytes of input '{self.name}' do not fit", got=str(error)) from None
        return data.view(self.dtype).reshape(shape)
