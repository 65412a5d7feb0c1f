"""Texts over gRPC: requests for them from tensors, and their answers as tensors.

The tensors are those of Triton's backends for language models: `text_input`, `stream` and `sampling_parameters` go in,
`text_output` comes out, each with one element.
"""

from __future__ import annotations

from typing import Any

from ox.errors import ServeError
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.request_template import parameter_values
from ox.serve.protocol.grpc.wire import MessageParts
from ox.serve.protocol.text.fields import refuse_unknown
from ox.serve.protocol.text.generate import GenerateCall, read_generate
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.text_service import INLINE_BYTES
from ox.serve.protocol.v2.document import quote

TYPES = {
    "text_input": "BYTES", "stream": "BOOL", "sampling_parameters": "BYTES", "exclude_input_in_output": "BOOL"
}  # fmt: skip
FINAL = "triton_enable_empty_final_response"
FINAL_RESPONSE = "triton_final_response"


class TextRequest:
    """A request that was read, and whether its client wants an answer after the last one."""

    def __init__(self, call: GenerateCall, final: bool) -> None:
        self.call, self.final = call, final
        self._response = message("inference.ModelInferResponse")

    @property
    def has_form(self) -> bool:
        """Whether `check_form` may take long."""
        return self.call.options.constraint is not None

    def check_form(self) -> TextRequest:
        """Compiles the form of its text, if it has one; returns itself.

        Raises:
            ServeError: no text can be of the form.
        """
        self.call.options.check_form(self.call.model)
        return self

    def answer(self, text: str) -> bytes:
        """A serialised ModelInferResponse with a text."""
        answer = self._head(False)
        answer.outputs.add(name="text_output", datatype="BYTES", shape=[1])
        data = text.encode()
        answer.raw_output_contents.append(len(data).to_bytes(4, "little") + data)
        return bytes(answer.SerializeToString())

    def end(self) -> bytes:
        """The one without outputs that ends the answers."""
        return bytes(self._head(True).SerializeToString())

    def _head(self, last: bool) -> Any:
        parameters = {FINAL_RESPONSE: {"bool_param": last}} if self.final else {}
        model = self.call.model
        return self._response(
            model_name=model.name, model_version=model.version, id=self.call.id, parameters=parameters
        )


class UnreadText:
    """A request for a text whose tensors and parameters are not read yet.

    Args:
        head: the message without its id and its raw contents.
        body: the whole message.
        parts: where its raw contents are.
        model: makes the text.
        strict: unknown parameters are refused.
    """

    __slots__ = ("_body", "_head", "_parts", "_strict", "model")

    def __init__(self, head: Any, body: bytes, parts: MessageParts, model: TextModel, strict: bool) -> None:
        self._head, self._body, self._parts, self.model, self._strict = head, body, parts, model, strict

    @property
    def takes_long(self) -> bool:
        """Whether it should be read in a thread."""
        return len(self._body) > INLINE_BYTES

    def read(self) -> TextRequest:
        """Reads it and tokenises its prompt.

        Raises:
            ServeError: what `read_text_request` raises, or a parameter is unknown.
        """
        request = read_text_request(self._head, self._body, self._parts, self.model)
        if self._strict:
            refuse_unknown(request.call.options.remarks)
        return request


def read_text_request(head: Any, body: bytes, parts: MessageParts, model: TextModel) -> TextRequest:
    """Reads a ModelInferRequest.

    Args:
        head: the message without its id and its raw contents.
        body: the whole message.
        parts: where its raw contents are.
        model: makes the text.

    Raises:
        ServeError: a tensor is missing, unknown or wrong, or a parameter is.
    """
    if parts.raw and len(parts.raw) != len(head.inputs):
        got = f"{len(parts.raw)} for {len(head.inputs)} inputs"
        raise ServeError("raw_input_contents does not fit the inputs", expected="one for each input", got=got)
    document: dict[str, Any] = {"id": parts.id}
    for place, tensor in enumerate(head.inputs):
        kind = TYPES.get(tensor.name)
        if kind is None or tensor.name in document:
            what = f"there is no input {quote(tensor.name)}" if kind is None else f"two inputs '{tensor.name}'"
            raise ServeError(what, expected=", ".join(TYPES))
        count = 1
        for size in tensor.shape:
            count *= size
        if tensor.datatype != kind or count != 1:
            got = f"{tensor.datatype} {list(tensor.shape)}"[:80]
            raise ServeError(f"the input '{tensor.name}' is wrong", expected=f"{kind} [1]", got=got)
        if parts.raw:
            at, size = parts.raw[place]
            document[tensor.name] = _raw_value(tensor.name, kind, body[at : at + size])
        else:
            values = tensor.contents.bytes_contents if kind == "BYTES" else tensor.contents.bool_contents
            if len(values) != 1:
                raise ServeError(f"the input '{tensor.name}' is wrong", expected="1 value", got=str(len(values)))
            document[tensor.name] = _text(tensor.name, values[0]) if kind == "BYTES" else bool(values[0])
    parameters = parameter_values(head.parameters)
    final = parameters.pop(FINAL, False) is True
    for name in ("priority", "timeout"):  # tritonclient sends them with every request
        if parameters.get(name) == 0:
            del parameters[name]
    return TextRequest(read_generate({**document, "parameters": parameters}, model), final)


def _raw_value(name: str, kind: str, data: bytes) -> str | bool:
    if kind == "BOOL":
        if data not in (b"\0", b"\1"):
            raise ServeError(f"the input '{name}' is wrong", expected="one byte, 0 or 1", got=f"{len(data)} bytes")
        return data == b"\1"
    if len(data) < 4 or len(data) != 4 + int.from_bytes(data[:4], "little"):
        raise ServeError(f"the input '{name}' is wrong", expected="one string after its length in 4 bytes")
    return _text(name, data[4:])


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ServeError(f"the input '{name}' is not UTF-8", got=str(error)[:100]) from None
