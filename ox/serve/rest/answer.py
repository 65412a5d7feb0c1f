"""The reply to an inference request: JSON, and the raw bytes of the outputs that were asked for so.

All of a reply's text but its numbers follows from the outputs' shapes. So it is written once, and kept with what is
remembered of the request (`Request.form`); the next reply of these shapes only puts its numbers in between.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from ox.errors import ServeError
from ox.graph.contract import Array, TensorInfo, to_bytes
from ox.serve.answer_memory import LARGE, Body, Parts, raw
from ox.serve.v2.outputs import Output, prepare
from ox.serve.v2.parameters import echoed
from ox.serve.v2.request import Request

BINARY_OUTPUT = '"parameters": {"binary_data": true} on that output'
NAN_OUTPUT = f"{BINARY_OUTPUT}, or ox serve --json-nan"
HOLE = b'["\\u0000"]'  # where numbers go: a list of a zero character, which nothing else in a reply is
NATIVE = sys.byteorder == "little"
MOST_FORMS = 16  # shapes that are remembered of one kind of request
Pieces = list[bytes]
Blobs = list[bytes | memoryview]


class Writer:
    """Writes one model's replies.

    Args:
        name, version: how the model is called in them.
        outputs: those of the model.
        largest: the most bytes of one reply.
        nan: whether NaN and the infinities are written, in words that JSON does not have.
    """

    def __init__(self, name: str, version: str, outputs: Sequence[TensorInfo], largest: int, nan: bool = False) -> None:
        self._nan = nan
        self._head = {"model_name": name, "model_version": version}
        self._outputs, self._largest = outputs, largest

    def write(self, request: Request, arrays: Sequence[Array]) -> tuple[Body, int | None]:
        """The body of the reply, and the length of its JSON part if binary tensors follow it. Large tensors are not
        copied: the body keeps them alive.

        Raises:
            ServeError: an output cannot be written as JSON (bfloat16, NaN, infinities) or as is asked for, or the
                answer is too large.
        """
        form = None if request.parameters else request.form  # which an answer may have to repeat
        wanted = request.outputs
        if len(wanted) == 1:
            shapes: Any = arrays[wanted[0].place].shape
        else:
            shapes = tuple([arrays[place].shape for place, _, _, _, _ in wanted])
        pieces = form.get(shapes) if form is not None else None
        if pieces is None:
            return self._write(request, arrays, shapes, form)
        parts = [pieces[0]]
        blobs: Blobs = []
        at = 0
        for place, binary, _, _, _ in wanted:
            array = arrays[place]
            if binary:
                if array.nbytes >= LARGE:
                    blobs.append(_large(array))
                else:
                    blobs.append(array.tobytes() if NATIVE else to_bytes(array))
            else:
                at += 1
                text = orjson.dumps(array.ravel(), option=orjson.OPT_SERIALIZE_NUMPY)
                parts += named(text, array) if self._nan and b"null" in text else text, pieces[at]
        return self._join(request, arrays, parts, blobs)

    def _write(self, request: Request, arrays: Sequence[Array], shapes: Any, form: Any) -> tuple[Body, int | None]:
        """The careful way, which remembers what it can."""
        least = 0  # bytes of the answer, as far as they can be told before it is written
        steady = form is not None
        outputs: list[Output] = []
        for wanted in request.outputs:
            info = self._outputs[wanted.place]
            if info.dtype == "BF16" and not wanted.binary and wanted.plain:
                raise ServeError(f"output '{info.name}' is BF16, which JSON cannot carry", hint=BINARY_OUTPUT)
            output = prepare(wanted, info, arrays[wanted.place])
            steady = steady and wanted.plain and info.dtype != "BYTES"
            if output.array is not None:
                least += output.array.nbytes if wanted.binary else 2 * output.array.size
                if least > self._largest:
                    raise self._too_large()
            outputs.append(output)
        texts: Pieces = []
        blobs: Blobs = []
        described = []
        for wanted, (name, datatype, shape, array, parameters) in zip(request.outputs, outputs, strict=True):
            entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
            if array is not None and wanted.binary:
                blobs.append(_large(array) if array.nbytes >= LARGE else to_bytes(array))
                parameters = {"binary_data_size": len(blobs[-1])}
            if parameters:
                entry["parameters"] = parameters
            if array is not None and not wanted.binary:
                entry["data"] = ["\0"]
                flat = array.ravel()
                text = orjson.dumps(flat.tolist() if datatype == "BYTES" else flat, option=orjson.OPT_SERIALIZE_NUMPY)
                if self._nan and datatype != "BYTES" and b"null" in text:
                    text = named(text, flat)
                texts.append(text)
            described.append(entry)
        reply: dict[str, Any] = dict(self._head)
        if echo := echoed(request.parameters):
            reply["parameters"] = echo
        pieces = orjson.dumps({**reply, "outputs": described}).split(HOLE)
        pieces[-1] = pieces[-1][:-1]  # without the brace that ends it: the id comes last
        if steady and len(form) < MOST_FORMS:
            form[shapes] = pieces
        parts = [pieces[0]]
        for text, piece in zip(texts, pieces[1:], strict=True):
            parts += text, piece
        return self._join(request, arrays, parts, blobs)

    def _join(self, request: Request, arrays: Sequence[Array], parts: Pieces, blobs: Blobs) -> tuple[Body, int | None]:
        parts.append(b"}" if request.id is None else b',"id":%s}' % orjson.dumps(request.id))
        text = b"".join(parts)
        if (
            not self._nan and b"null" in text
        ):  # what orjson makes of NaN; looking at the text first is cheaper than at every array
            self._refuse_nan(request, arrays)
        if not blobs:
            if len(text) > self._largest:
                raise self._too_large()
            return text, None
        size = length = len(text)
        for blob in blobs:
            size += len(blob)
        if size > self._largest:
            raise self._too_large()
        if size >= LARGE:
            return Parts([text, *blobs]), length
        return text + (blobs[0] if len(blobs) == 1 else b"".join(blobs)), length

    def _too_large(self) -> ServeError:
        expected = f"at most {self._largest} bytes (--limit reply)"
        hint = "fewer rows, or outputs as binary data"
        return ServeError("the answer is too large", status=413, expected=expected, hint=hint)

    def _refuse_nan(self, request: Request, arrays: Sequence[Array]) -> None:
        for wanted in request.outputs:
            array = arrays[wanted.place]
            if not wanted.binary and wanted.plain and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ServeError(
                    f"output '{self._outputs[wanted.place].name}' holds NaN or an infinity, which JSON cannot carry",
                    status=500,
                    hint=NAN_OUTPUT,
                )


def named(text: bytes, array: Array) -> bytes:
    """The JSON list of an array's numbers, with the words of Triton and Python where orjson has written null."""
    pieces = text.split(b"null")
    flat = array.ravel()
    words = [
        b"NaN" if value != value else b"Infinity" if value > 0 else b"-Infinity" for value in flat[~np.isfinite(flat)]
    ]
    return b"".join(piece for pair in zip(pieces, [*words, b""], strict=True) for piece in pair)


def _large(array: Array) -> bytes | memoryview:
    """A tensor's bytes, where it can be without a copy."""
    if not NATIVE or array.dtype.kind in "USO" or not array.flags.c_contiguous:
        return to_bytes(array)
    return raw(array)
