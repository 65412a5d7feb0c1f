"""Writes ModelInferResponse and ModelStreamInferResponse in protobuf's wire format.

Responses to requests with the same head and the same output shapes differ only in id and tensor bytes, so the rest is
serialised once and cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.errors import ServeError
from ox.graph.contract import Array, to_bytes
from ox.protobuf import varint
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.request_template import RequestTemplate
from ox.serve.protocol.v2.outputs import prepare
from ox.serve.protocol.v2.parameters import echoed_parameters
from ox.serve.protocol.v2.request import Request
from ox.serve.response_memory import LARGE, Body, Buffers, buffer_of

ID, RAW = b"\x1a", b"\x32"  # the tags of ModelInferResponse.id and .raw_output_contents
ERROR, RESPONSE = b"\x0a", b"\x12"  # tags of ModelStreamInferResponse.error_message and .infer_response
MAX_CACHED_FORMS = 64  # cached forms per request template


class ResponseWriter:
    """Writes responses.

    Args:
        max_bytes: the limit of one response.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._response = message("inference.ModelInferResponse")

    def write(self, request: Request, arrays: Sequence[Array]) -> Body:
        """The response to a request of a `RequestTemplate`. Large tensors are not copied: the response refers to them.

        Raises:
            ServeError: it is too large, or an output cannot be encoded as requested.
        """
        plan: RequestTemplate = request.writer_state
        identifier = b""
        if request.id:
            text = request.id.encode()
            identifier = ID + varint(len(text)) + text
        if not plan.plain:
            return self._write_uncached(plan, request, arrays) + identifier
        if len(request.outputs) == 1:
            array = arrays[request.outputs[0].position]
            form = plan.response_forms.get(array.shape)
            if form is not None and array.nbytes < LARGE:  # the fast path
                return form[0] + array.tobytes() + identifier
            shapes: tuple[Any, ...] = array.shape
        else:
            shapes = tuple([arrays[output.position].shape for output in request.outputs])
            form = plan.response_forms.get(shapes)
        if form is None:
            form = self._form(plan, request, arrays)
            if form is None:
                return self._write_uncached(plan, request, arrays) + identifier
            if len(plan.response_forms) < MAX_CACHED_FORMS:
                plan.response_forms[shapes] = form
        parts: list[bytes | memoryview] = []
        size = 0
        for output, before in zip(request.outputs, form, strict=True):
            array = arrays[output.position]
            size += array.nbytes
            large = array.nbytes >= LARGE and array.flags.c_contiguous
            parts += [before, buffer_of(array) if large else array.tobytes()]
        parts.append(identifier)
        return Buffers(parts) if size >= LARGE else b"".join(parts)

    def _form(self, plan: RequestTemplate, request: Request, arrays: Sequence[Array]) -> list[bytes] | None:
        """The bytes before each output's data; None if the size of the data depends on its values."""
        outputs = [(plan.model.outputs[output.position], arrays[output.position]) for output in request.outputs]
        if any(array.dtype.kind not in "biuf" for _, array in outputs):
            return None
        head = self._head(plan, request)
        for info, array in outputs:
            head.outputs.add(name=info.name, datatype=info.dtype, shape=array.shape)
        before = [RAW + varint(array.nbytes) for _, array in outputs]
        self._check(sum(array.nbytes for _, array in outputs))
        return [head.SerializeToString() + before[0], *before[1:]] if before else []

    def _write_uncached(self, plan: RequestTemplate, request: Request, arrays: Sequence[Array]) -> bytes:
        answer = self._head(plan, request)
        size = 0
        for wanted in request.outputs:
            output = prepare(wanted, plan.model.outputs[wanted.position], arrays[wanted.position])
            answer.outputs.add(
                name=output.name,
                datatype=output.datatype,
                shape=output.shape,
                parameters=_infer_parameters(output.parameters),
            )
            if output.array is not None:
                data = to_bytes(output.array)
                size += len(data)
                self._check(size)
                answer.raw_output_contents.append(data)
        return bytes(answer.SerializeToString())

    def _head(self, plan: RequestTemplate, request: Request) -> Any:
        parameters = echoed_parameters(request.parameters)
        if plan.final_response:
            parameters["triton_final_response"] = True
        return self._response(
            model_name=plan.model.name, model_version=plan.model.version, parameters=_infer_parameters(parameters)
        )

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            expected = f"at most {self._max_bytes} bytes (--limit reply)"
            raise ServeError("the response is too large", status=413, expected=expected, hint="fewer samples")


def stream_response(answer: Body) -> Body:
    """Wraps a response for a stream."""
    start = RESPONSE + varint(len(answer))
    return start + answer if isinstance(answer, bytes) else answer.with_prefix(start)


def stream_error(error: str, identifier: str) -> bytes:
    """An error as a response of a stream, with the id of its request."""
    text, name = error.encode(), identifier.encode()
    inner = ID + varint(len(name)) + name if name else b""
    return ERROR + varint(len(text)) + text + RESPONSE + varint(len(inner)) + inner


def _infer_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Python values as InferParameter."""
    written = {}
    for name, value in parameters.items():
        kind = {bool: "bool_param", str: "string_param", float: "double_param"}.get(type(value), "int64_param")
        if kind == "int64_param" and value >= 1 << 63:
            kind = "uint64_param"
        written[name] = {kind: value}
    return written
