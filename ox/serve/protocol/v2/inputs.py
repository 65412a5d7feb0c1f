"""Checks and converts the tensors of one input of a model. Facts about the model are computed once."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import DTYPES, Array, TensorInfo, from_bytes, show_dims
from ox.serve.config.dimension_limits import DimensionLimits
from ox.serve.protocol.v2.document import quote
from ox.serve.protocol.v2.json_errors import element_error
from ox.serve.protocol.v2.shared_memory import RegionSlice

# struct refuses text, fractions for integers, and numbers out of range
CODES = {
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
INTEGERS = {int}
MAX_DIM = 1 << 40
MAX_RANK = 32


class InputCodec:
    """Checks and converts the tensors of one input.

    Args:
        info: the input.
        max_rows: the limit of a first dimension that varies.
        max_strings: the limit of elements, for strings.
        batched: whether the first dimension counts rows.
        limits: the limits of the other dimensions.
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
        self._fixed_sizes: list[int] | None = sizes if len(sizes) == len(info.dims[1:]) else None
        self._first_dim_varies = bool(info.dims) and not isinstance(info.dims[0], int)
        self._batched = batched
        self.limits = limits
        self._one_row = [1, *sizes] if self._first_dim_varies else None
        self._max_rows, self._max_strings = max_rows, max_strings if info.dtype == "BYTES" else None
        self._fast_path_rows = max_rows  # up to so many rows the fast path needs no further checks
        if self._max_strings is not None:
            self._fast_path_rows = min(max_rows, max_strings // max(1, math.prod(sizes)))
        for axis, most, _ in () if limits is None else limits.axes:
            if axis == 0:
                self._fast_path_rows = min(self._fast_path_rows, most)
        self._pack_row = None
        if self._one_row is not None and self._code is not None and self._fixed_sizes is not None:
            self._pack_row = struct.Struct(f"<{math.prod(self._fixed_sizes)}{self._code}").pack

    def shape(self, tensor: dict[str, Any]) -> list[int]:
        """Checks datatype and shape of a tensor against the model and the limits, and returns the shape.

        It runs before all work that depends on the number of elements.
        """
        if tensor.get("datatype") != self.info.dtype:
            got = quote(tensor.get("datatype"))
            raise ServeError(f"input '{self.name}' has datatype {got}", expected=self.info.dtype)
        shape = tensor.get("shape")
        if type(shape) is not list or not all(type(size) is int for size in shape):
            wrong = next((size for size in shape if type(size) is not int), None) if type(shape) is list else shape
            what = f"input '{self.name}' has no shape of whole numbers"
            raise ServeError(what, expected=show_dims(self.info.dims), got=quote(wrong))
        if (
            self._first_dim_varies
            and self._fixed_sizes is not None
            and shape[1:] == self._fixed_sizes
            and 0 < shape[0] <= self._fast_path_rows
        ):
            return shape  # the fast path
        if len(shape) > MAX_RANK:
            got = f"{len(shape)} dimensions"
            raise ServeError(f"input '{self.name}' has another rank", expected=show_dims(self.info.dims), got=got)
        fits = len(shape) == len(self.info.dims) and all(
            size == dim if isinstance(dim, int) else 0 <= size < MAX_DIM
            for size, dim in zip(shape, self.info.dims, strict=True)
        )
        if not fits:
            raise ServeError(
                f"input '{self.name}' has shape {shape}", expected=show_dims(self.info.dims), hint=self._suggest(shape)
            )
        if self._first_dim_varies and shape[0] > self._max_rows:
            raise ServeError(
                f"{shape[0]} samples in one request", status=413, expected=f"at most {self._max_rows} (--limit rows)"
            )
        if self.limits is not None:
            self.limits.check(shape)
        if self._max_strings is not None and math.prod(shape) > self._max_strings:
            what = f"input '{self.name}' has {math.prod(shape)} strings"
            raise ServeError(
                what,
                status=413,
                expected=f"at most {self._max_strings} (--limit strings)",
                hint="fewer samples in one request",
            )
        return shape

    def no_rows(self, shape: Sequence[int]) -> ServeError:
        """The error for a first dimension of 0, where it cannot be."""
        got = str(list(shape))
        return ServeError(f"input '{self.name}' has no rows", expected=show_dims(self.info.dims), got=got)

    def _suggest(self, shape: list[int]) -> str | None:
        """A hint: the shape with the same number of elements in rows of this model."""
        if not self._first_dim_varies or self._fixed_sizes is None:
            return None
        row, count = math.prod(self._fixed_sizes), math.prod(shape)
        if not row or count % row or not 0 < count // row < MAX_DIM:
            return None
        return f"shape {[count // row, *self._fixed_sizes]}"

    def from_json(self, tensor: dict[str, Any], has_booleans: bool) -> Array:
        """The array of a tensor with JSON data. `has_booleans`: it may contain true or false."""
        if (
            self._pack_row is not None
            and not has_booleans
            and type(shape := tensor.get("shape")) is list
            and shape == self._one_row
            and set(map(type, shape)) == INTEGERS
            and tensor.get("datatype") == self.info.dtype
        ):
            try:  # the fast path for one flat row; the code below handles everything else
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
                if has_booleans and any(type(item) is bool for item in data):
                    raise TypeError("true or false")
                return np.frombuffer(struct.pack(f"<{count}{self._code}", *data), self.dtype).reshape(shape)
            return self._objects(data).reshape(shape)
        except (struct.error, OverflowError, TypeError, ValueError):
            raise element_error(self.info, self._code, data) from None

    def _objects(self, data: list[Any]) -> Array:
        """Arrays of BOOL and BYTES, which struct does not check."""
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
        """Flattens nested lists in row-major order; they must match the shape."""
        for size in shape[1:]:
            if not all(type(item) is list and len(item) == size for item in data):
                raise ServeError(f"the nested data of input '{self.name}' does not have shape {shape}")
            data = list(chain.from_iterable(data))
        return data

    def from_binary(self, tensor: dict[str, Any], body: bytes | bytearray, at: int, size: int) -> Array:
        shape = self.shape(tensor)
        if self._code is None or size != math.prod(shape) * self.dtype.itemsize:
            return self._from_bytes(body[at : at + size], shape)
        if not size:
            return np.empty(shape, self.dtype)
        array = np.frombuffer(body, self.dtype, math.prod(shape), at).reshape(shape)
        return array if array.flags.aligned else array.copy()

    def _from_bytes(self, data: bytes | bytearray, shape: list[int]) -> Array:
        try:
            return from_bytes(data, self.info.dtype, tuple(shape))
        except UnicodeDecodeError as error:
            raise ServeError(
                f"input '{self.name}' has a string that is not UTF-8", expected="UTF-8, as strings in ONNX are",
                got=str(error), hint="text in base64, or a model with an input of UINT8",
            ) from None  # fmt: skip
        except ValueError as error:
            raise ServeError(f"the bytes of input '{self.name}' do not fit", got=str(error)) from None

    def from_raw(self, body: bytes | bytearray) -> Array:
        """The array of a raw body without JSON; its shape follows from the number of bytes.

        A first dimension that counts rows is 1 if another dimension varies, too.

        Raises:
            ServeError: no shape, or more than one shape, of this input has so many bytes.
        """
        dims, size = self.info.dims, len(body)
        free = [place for place, dim in enumerate(dims) if not isinstance(dim, int)]
        if self._first_dim_varies and self._batched and (len(free) > 1 or self.info.dtype == "BYTES"):
            free = free[1:]
        shape = [dim if isinstance(dim, int) else 1 for dim in dims]
        if self.info.dtype == "BYTES":
            if free or math.prod(shape) != 1:
                what = f"a body without JSON is one element, and input '{self.name}' has more"
                raise ServeError(what, expected=show_dims(dims), hint="Inference-Header-Content-Length with JSON")
            body = struct.pack("<I", size) + body
        elif len(free) > 1:
            what = f"more than one dimension of input '{self.name}' varies, so a body without JSON has no unique shape"
            raise ServeError(what, expected=show_dims(dims), hint="Inference-Header-Content-Length with JSON")
        elif free:
            step = math.prod(shape) * self.dtype.itemsize
            if not step or size % step:
                what = f"a body of {size} bytes does not fit input '{self.name}'"
                raise ServeError(what, expected=f"a multiple of {step} bytes, as {self.info.dtype} {show_dims(dims)}")
            shape[free[0]] = size // step
            if self._first_dim_varies and self._batched and not shape[0]:
                raise self.no_rows(shape)  # a body that was forgotten
        return self.from_binary({"datatype": self.info.dtype, "shape": shape}, body, 0, len(body))

    def from_shared_memory(self, tensor: dict[str, Any], window: RegionSlice) -> Array:
        """The array of a tensor in shared memory: a copy, which the client cannot change."""
        if "data" in tensor:
            raise ServeError(f"input '{self.name}' is in shared memory and has data as well", hint="one of the two")
        shape = self.shape(tensor)
        size = math.prod(shape) * self.dtype.itemsize
        if self.info.dtype != "BYTES" and window.size != size:
            raise ServeError(
                f"input '{self.name}' has {window.size} bytes in shared memory",
                expected=f"{size} for {self.info.dtype} of shape {shape}",
            )
        data = window.read()
        if self._code is None:
            return self._from_bytes(data.tobytes(), shape)
        return data.view(self.dtype).reshape(shape)
