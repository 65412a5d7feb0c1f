"""The Open Inference Protocol V2's inference request and reply over HTTP, compiled for one model.

A request is JSON, or JSON followed by the raw bytes of its tensors (the binary tensor data extension). Everything
that can be known from the model is prepared once, and what can be known from a client's last requests once as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.rest.answer import Writer
from ox.serve.rest.plans import BinaryPlans, JsonPlans
from ox.serve.v2.document import flag, identifier_of, load_json, parameters_of
from ox.serve.v2.inputs import InputCodec
from ox.serve.v2.memory import REGION, SIZE, Regions
from ox.serve.v2.parameters import check
from ox.serve.v2.request import NONE, Request, Wanted
from ox.serve.v2.signature import Signature


class Codec:
    """Reads requests for a model and writes its replies.

    Args:
        name, version: how the model is called in replies.
        signature: its interface.
        max_reply: the most bytes of one answer.
        regions: the shared memory that requests may name.
        nan: whether JSON may hold NaN and the infinities.
    """

    def __init__(
        self, name: str, version: str, signature: Signature, max_reply: int, regions: Regions, nan: bool = False
    ) -> None:
        self._nan = nan
        self.signature, self.regions = signature, regions
        self.outputs = signature.outputs
        self.encode = Writer(name, version, signature.outputs, max_reply, nan).write
        self._binary, self._json = BinaryPlans(), JsonPlans()
        self._forms: dict[bool, Any] = {binary: {} for binary in (False, True)}
        self._single = len(signature.inputs) == 1

    def decode(self, body: bytes | bytearray, header_length: int | None = None) -> Request:
        """Reads a body; `header_length` is where its JSON ends and binary tensors begin, None for JSON alone.

        With 0 there is no JSON: the body is the only input, and all outputs are answered as binary.

        Raises:
            ServeError: whatever is wrong with it, with the status for the reply.
        """
        if header_length is None:
            known = self._json.read(body)
        elif header_length:
            known = self._binary.read(body, header_length)
        else:
            return self._raw(body)
        return known or self._read(body, header_length)

    def _raw(self, body: bytes | bytearray) -> Request:
        if not self._single:
            what = "only a model of one input takes a body without JSON"
            raise ServeError(what, expected=self.signature.names(), got=f"{len(self.signature.inputs)} inputs")
        (codec,) = self.signature.inputs.values()
        feed = {codec.name: codec.from_raw(body)}
        rows, key = self.signature.measure(feed)
        return Request(None, feed, rows, key, self.signature.all[True], NONE, self._forms[True])

    def _read(self, body: bytes | bytearray, header_length: int | None) -> Request:
        text = body if header_length is None else body[:header_length]
        document = load_json(text, self._nan)
        truths = b"true" in text or b"false" in text  # quicker to ask the text than every element
        tensors = document.get("inputs")
        if type(tensors) is not list:
            raise ServeError("the request has no list 'inputs'", hint=f'{{"inputs": [{self._example()}]}}')
        feed: dict[str, Array] = {}
        at = header_length
        for tensor in tensors:
            codec = self._input(tensor, feed)
            parameters = parameters_of(tensor) if "parameters" in tensor else {}
            size = parameters.get("binary_data_size")
            if REGION in parameters or SIZE in parameters:
                if size is not None:
                    raise ServeError(f"input '{codec.name}' is announced both as binary and in shared memory")
                feed[codec.name] = codec.from_window(tensor, self.regions.window(parameters, f"input '{codec.name}'"))
            elif size is None:
                feed[codec.name] = codec.from_json(tensor, truths)
            else:
                if at is None:
                    raise ServeError(
                        f"input '{codec.name}' is announced as binary",
                        hint="the header Inference-Header-Content-Length",
                    )
                if "data" in tensor:
                    raise ServeError(
                        f"input '{codec.name}' is announced as binary and has data as well", hint="one of the two"
                    )
                if type(size) is not int or not 0 <= size <= len(body) - at:
                    got = f"binary_data_size {size!r}, {len(body) - at} bytes left"
                    raise ServeError(f"the bytes of input '{codec.name}' are not all there", got=got)
                feed[codec.name] = codec.from_binary(tensor, body, at, size)
                at += size
        if at is not None and at != len(body):
            raise ServeError(f"{len(body) - at} bytes follow the last binary tensor")
        rows, key = self.signature.measure(feed)
        request = Request(identifier_of(document), feed, rows, key, *self._wanted(document))
        if header_length is not None:
            self._binary.learn(body, header_length, request)
        elif self._single and "data" in tensors[0]:
            self._json.learn(body, document, request)
        return request

    def _input(self, tensor: Any, feed: dict[str, Array]) -> InputCodec:
        if type(tensor) is not dict:
            raise ServeError("an input is not an object", expected=self._example())
        return self.signature.input(tensor.get("name"), feed)

    def _wanted(self, document: dict[str, Any]) -> tuple[Sequence[Wanted], Mapping[str, Any], Any]:
        """The outputs that are asked for, the request's parameters, and where the answer's form is remembered."""
        parameters, binary = NONE, False
        if "parameters" in document:
            given = parameters_of(document)
            binary = flag(given, "binary_data_output")
            parameters = check(given)
        listed = document.get("outputs")
        if not listed:
            return self.signature.all[binary], parameters, self._forms[binary]
        if type(listed) is not list:
            raise ServeError("'outputs' is not a list")
        if len(listed) > len(self.outputs):
            raise ServeError(f"{len(listed)} outputs are asked for", expected=f"at most {len(self.outputs)}, each once")
        wanted: dict[int, Wanted] = {}
        for output in listed:
            name = output.get("name") if type(output) is dict else output
            own = parameters_of(output)
            raw = flag(own, "binary_data") if "binary_data" in own else binary
            self.signature.output(name, wanted, own, raw, self.regions)
        return list(wanted.values()), parameters, {}

    def _example(self) -> str:
        for codec in self.signature.inputs.values():
            shape = [size if isinstance(size, int) else 1 for size in codec.info.dims]
            return f'{{"name": "{codec.name}", "shape": {shape}, "datatype": "{codec.info.dtype}", "data": [...]}}'
        return ""
