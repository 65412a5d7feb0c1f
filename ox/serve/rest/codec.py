"""The Open Inference Protocol V2's inference request and reply over HTTP, compiled for one model.

A request is JSON, or JSON followed by the raw bytes of its tensors (the binary tensor data extension). Everything
that can be known from the model is prepared once, so a request costs a dictionary look-up and a comparison per input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from ox.errors import ServeError
from ox.graph.contract import Array, to_bytes
from ox.serve.v2.document import flag, identifier_of, load_json, parameters_of
from ox.serve.v2.inputs import InputCodec
from ox.serve.v2.request import Request, Wanted
from ox.serve.v2.signature import Signature

BINARY_OUTPUT = '"parameters": {"binary_data": true} on that output'


class Codec:
    """Reads requests for a model and writes its replies.

    Args:
        name, version: how the model is called in replies.
        signature: its interface.
        max_reply: the most bytes of one answer.
    """

    def __init__(self, name: str, version: str, signature: Signature, max_reply: int) -> None:
        self.name, self.version, self.signature, self.max_reply = name, version, signature, max_reply
        self.outputs = signature.outputs

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
        rows, key = self.signature.measure(feed)
        return Request(identifier_of(document), feed, rows, key, self._wanted(document))

    def _input(self, tensor: Any, feed: dict[str, Array]) -> InputCodec:
        if type(tensor) is not dict:
            raise ServeError("an input is not an object", expected=self._example())
        return self.signature.input(tensor.get("name"), feed)

    def _wanted(self, document: dict[str, Any]) -> Sequence[Wanted]:
        binary = "parameters" in document and flag(parameters_of(document), "binary_data_output")
        listed = document.get("outputs")
        if not listed:
            return self.signature.all[binary]
        if type(listed) is not list:
            raise ServeError("'outputs' is not a list")
        if len(listed) > len(self.outputs):
            raise ServeError(f"{len(listed)} outputs are asked for", expected=f"at most {len(self.outputs)}, each once")
        wanted: dict[int, Wanted] = {}
        for output in listed:
            name = output.get("name") if type(output) is dict else output
            parameters = parameters_of(output)
            own = flag(parameters, "binary_data") if "binary_data" in parameters else binary
            self.signature.output(name, wanted, parameters, own)
        return list(wanted.values())

    def _example(self) -> str:
        for codec in self.signature.inputs.values():
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
