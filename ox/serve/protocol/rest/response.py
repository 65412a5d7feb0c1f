"""The response to an inference request: JSON, followed by the raw bytes of binary outputs.

The text of a response, except for its numbers, follows from the output shapes. It is written once and cached with the
request's template (`Request.writer_state`); later responses with the same shapes insert their numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from ox.errors import ServeError
from ox.graph.contract import Array, TensorInfo, to_bytes
from ox.serve.protocol.v2.outputs import Output, prepare
from ox.serve.protocol.v2.parameters import echoed_parameters
from ox.serve.protocol.v2.request import Request
from ox.serve.response_memory import LARGE, Body, Buffers, buffer_of

BINARY_OUTPUT = '"parameters": {"binary_data": true} on that output'
NAN_OUTPUT = f"{BINARY_OUTPUT}, or ox serve --json-nan"
PLACEHOLDER = b'["\\u0000"]'  # stands for the numbers: a list of a NUL character, which occurs nowhere else
NATIVE = sys.byteorder == "little"
MAX_CACHED_FORMS = 16  # cached forms per request template
Pieces = list[bytes]
Blobs = list[bytes | memoryview]


class ResponseWriter:
    """Writes the responses of one model.

    Args:
        name, version: the model's name and version in responses.
        outputs: the model's outputs.
        max_bytes: the limit of one response.
        nan: write NaN, Infinity and -Infinity, which are not valid JSON.
    """

    def __init__(
        self, name: str, version: str, outputs: Sequence[TensorInfo], max_bytes: int, nan: bool = False
    ) -> None:
        self._nan = nan
        self._head = {"model_name": name, "model_version": version}
        self._outputs, self._max_bytes = outputs, max_bytes

    def write(self, request: Request, arrays: Sequence[Array]) -> tuple[Body, int | None]:
        """The body of the response, and the length of its JSON part if binary tensors follow. Large tensors are not
        copied: the body refers to them.

        Raises:
            ServeError: an output cannot be written as JSON (bfloat16, NaN, infinities) or as requested, or the
                response is too large.
        """
        form = None if request.parameters else request.writer_state  # the response may have to repeat them
        requested = request.outputs
        if len(requested) == 1:
            shapes: Any = arrays[requested[0].position].shape
        else:
            shapes = tuple([arrays[position].shape for position, _, _, _, _ in requested])
        pieces = form.get(shapes) if form is not None else None
        if pieces is None:
            return self._write_uncached(request, arrays, shapes, form)
        parts = [pieces[0]]
        blobs: Blobs = []
        at = 0
        for position, binary, _, _, _ in requested:
            array = arrays[position]
            if binary:
                if array.nbytes >= LARGE:
                    blobs.append(_tensor_bytes(array))
                else:
                    blobs.append(array.tobytes() if NATIVE else to_bytes(array))
            else:
                at += 1
                text = orjson.dumps(array.ravel(), option=orjson.OPT_SERIALIZE_NUMPY)
                parts += write_non_finite(text, array) if self._nan and b"null" in text else text, pieces[at]
        return self._join(request, arrays, parts, blobs)

    def _write_uncached(
        self, request: Request, arrays: Sequence[Array], shapes: Any, form: Any
    ) -> tuple[Body, int | None]:
        """Writes a response without a cached form, and caches its form if possible."""
        min_size = 0  # a lower bound of the response size, before anything is written
        reusable = form is not None
        outputs: list[Output] = []
        for requested in request.outputs:
            info = self._outputs[requested.position]
            if info.dtype == "BF16" and not requested.binary and requested.plain:
                raise ServeError(f"output '{info.name}' is BF16, which JSON cannot carry", hint=BINARY_OUTPUT)
            output = prepare(requested, info, arrays[requested.position])
            reusable = reusable and requested.plain and info.dtype != "BYTES"
            if output.array is not None:
                min_size += output.array.nbytes if requested.binary else 2 * output.array.size
                if min_size > self._max_bytes:
                    raise self._too_large()
            outputs.append(output)
        texts: Pieces = []
        blobs: Blobs = []
        described = []
        for requested, (name, datatype, shape, array, parameters) in zip(request.outputs, outputs, strict=True):
            entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
            if array is not None and requested.binary:
                blobs.append(_tensor_bytes(array) if array.nbytes >= LARGE else to_bytes(array))
                parameters = {"binary_data_size": len(blobs[-1])}
            if parameters:
                entry["parameters"] = parameters
            if array is not None and not requested.binary:
                entry["data"] = ["\0"]
                flat = array.ravel()
                text = orjson.dumps(flat.tolist() if datatype == "BYTES" else flat, option=orjson.OPT_SERIALIZE_NUMPY)
                if self._nan and datatype != "BYTES" and b"null" in text:
                    text = write_non_finite(text, flat)
                texts.append(text)
            described.append(entry)
        reply: dict[str, Any] = dict(self._head)
        if echo := echoed_parameters(request.parameters):
            reply["parameters"] = echo
        pieces = orjson.dumps({**reply, "outputs": described}).split(PLACEHOLDER)
        pieces[-1] = pieces[-1][:-1]  # without the closing brace: the id comes last
        if reusable and len(form) < MAX_CACHED_FORMS:
            form[shapes] = pieces
        parts = [pieces[0]]
        for text, piece in zip(texts, pieces[1:], strict=True):
            parts += text, piece
        return self._join(request, arrays, parts, blobs)

    def _join(self, request: Request, arrays: Sequence[Array], parts: Pieces, blobs: Blobs) -> tuple[Body, int | None]:
        parts.append(b"}" if request.id is None else b',"id":%s}' % orjson.dumps(request.id))
        text = b"".join(parts)
        # orjson writes NaN as null; checking the text first is faster than checking all arrays
        if not self._nan and b"null" in text:
            self._check_nan(request, arrays)
        if not blobs:
            if len(text) > self._max_bytes:
                raise self._too_large()
            return text, None
        size = length = len(text)
        for blob in blobs:
            size += len(blob)
        if size > self._max_bytes:
            raise self._too_large()
        if size >= LARGE:
            return Buffers([text, *blobs]), length
        return text + (blobs[0] if len(blobs) == 1 else b"".join(blobs)), length

    def _too_large(self) -> ServeError:
        expected = f"at most {self._max_bytes} bytes (--limit reply)"
        hint = "fewer samples, or outputs as binary data"
        return ServeError("the response is too large", status=413, expected=expected, hint=hint)

    def _check_nan(self, request: Request, arrays: Sequence[Array]) -> None:
        for requested in request.outputs:
            array = arrays[requested.position]
            if not requested.binary and requested.plain and array.dtype.kind == "f" and not np.isfinite(array).all():
                name = self._outputs[requested.position].name
                what = f"output '{name}' holds NaN or an infinity, which JSON cannot carry"
                raise ServeError(what, status=500, hint=NAN_OUTPUT)


def write_non_finite(text: bytes, array: Array) -> bytes:
    """A JSON list with NaN, Infinity and -Infinity, as Triton and Python write them, in place of orjson's null."""
    pieces = text.split(b"null")
    flat = array.ravel()
    words = [
        b"NaN" if value != value else b"Infinity" if value > 0 else b"-Infinity" for value in flat[~np.isfinite(flat)]
    ]
    return b"".join(piece for pair in zip(pieces, [*words, b""], strict=True) for piece in pair)


def _tensor_bytes(array: Array) -> bytes | memoryview:
    """The bytes of a tensor, without a copy if possible."""
    if not NATIVE or array.dtype.kind in "USO" or not array.flags.c_contiguous:
        return to_bytes(array)
    return buffer_of(array)
