"""Writes ModelInferResponse, and the answers of a stream, in protobuf's wire form.

All of an answer but its id and its tensors' bytes is the same for all answers to requests that began alike and
whose outputs have the same shapes, so it is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.errors import ServeError
from ox.graph.contract import Array, to_bytes
from ox.serve.answer_memory import LARGE, Body, Parts, raw
from ox.serve.grpc.plan import Plan
from ox.serve.grpc.proto import message
from ox.serve.grpc.wire import varint
from ox.serve.v2.outputs import prepare
from ox.serve.v2.parameters import echoed
from ox.serve.v2.request import Request

ID, RAW = b"\x1a", b"\x32"  # the tags of ModelInferResponse.id and .raw_output_contents
ERROR, RESPONSE = b"\x0a", b"\x12"  # those of ModelStreamInferResponse.error_message and .infer_response
MOST_FORMS = 64  # of one plan


class Writer:
    """Writes answers.

    Args:
        most: the most bytes of one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._response = message("inference.ModelInferResponse")

    def write(self, request: Request, arrays: Sequence[Array]) -> Body:
        """The answer to a request that a plan has read. Large tensors are not copied: the answer keeps them alive.

        Raises:
            ServeError: it is too large, or an output cannot be given as it was asked for.
        """
        plan: Plan = request.form
        identifier = b""
        if request.id:
            text = request.id.encode()
            identifier = ID + varint(len(text)) + text
        if not plan.plain:
            return self._each(plan, request, arrays) + identifier
        if len(request.outputs) == 1:
            array = arrays[request.outputs[0].place]
            form = plan.forms.get(array.shape)
            if form is not None and array.nbytes < LARGE:  # nearly always
                return form[0] + array.tobytes() + identifier
            shapes: tuple[Any, ...] = array.shape
        else:
            shapes = tuple([arrays[output.place].shape for output in request.outputs])
            form = plan.forms.get(shapes)
        if form is None:
            form = self._form(plan, request, arrays)
            if form is None:
                return self._each(plan, request, arrays) + identifier
            if len(plan.forms) < MOST_FORMS:
                plan.forms[shapes] = form
        parts: list[bytes | memoryview] = []
        size = 0
        for output, before in zip(request.outputs, form, strict=True):
            array = arrays[output.place]
            size += array.nbytes
            large = array.nbytes >= LARGE and array.flags.c_contiguous
            parts += [before, raw(array) if large else array.tobytes()]
        parts.append(identifier)
        return Parts(parts) if size >= LARGE else b"".join(parts)

    def _form(self, plan: Plan, request: Request, arrays: Sequence[Array]) -> list[bytes] | None:
        """What comes before the bytes of each output; None where their number depends on the values."""
        outputs = [(plan.model.outputs[output.place], arrays[output.place]) for output in request.outputs]
        if any(array.dtype.kind not in "biuf" for _, array in outputs):
            return None
        head = self._head(plan, request)
        for info, array in outputs:
            head.outputs.add(name=info.name, datatype=info.dtype, shape=array.shape)
        before = [RAW + varint(array.nbytes) for _, array in outputs]
        self._check(sum(array.nbytes for _, array in outputs))
        return [head.SerializeToString() + before[0], *before[1:]] if before else []

    def _each(self, plan: Plan, request: Request, arrays: Sequence[Array]) -> bytes:
        answer = self._head(plan, request)
        size = 0
        for wanted in request.outputs:
            output = prepare(wanted, plan.model.outputs[wanted.place], arrays[wanted.place])
            answer.outputs.add(
                name=output.name, datatype=output.datatype, shape=output.shape, parameters=_written(output.parameters)
            )
            if output.array is not None:
                data = to_bytes(output.array)
                size += len(data)
                self._check(size)
                answer.raw_output_contents.append(data)
        return bytes(answer.SerializeToString())

    def _head(self, plan: Plan, request: Request) -> Any:
        parameters = echoed(request.parameters)
        if plan.final:
            parameters["triton_final_response"] = True
        return self._response(
            model_name=plan.model.name, model_version=plan.model.version, parameters=_written(parameters)
        )

    def _check(self, size: int) -> None:
        if size > self._most:
            expected = f"at most {self._most} bytes (--limit reply)"
            raise ServeError("the answer is too large", status=413, expected=expected, hint="fewer rows")


def streamed(answer: Body) -> Body:
    """An answer as one of a stream."""
    start = RESPONSE + varint(len(answer))
    return start + answer if isinstance(answer, bytes) else answer.after(start)


def refused(error: str, identifier: str) -> bytes:
    """An error as one answer of a stream; the id says which request it answers."""
    text, name = error.encode(), identifier.encode()
    inner = ID + varint(len(name)) + name if name else b""
    return ERROR + varint(len(text)) + text + RESPONSE + varint(len(inner)) + inner


def _written(parameters: dict[str, Any]) -> dict[str, Any]:
    """Plain values as InferParameter."""
    made = {}
    for name, value in parameters.items():
        kind = {bool: "bool_param", str: "string_param", float: "double_param"}.get(type(value), "int64_param")
        if kind == "int64_param" and value >= 1 << 63:
            kind = "uint64_param"
        made[name] = {kind: value}
    return made
