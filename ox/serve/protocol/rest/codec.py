"""Reads inference requests and writes responses over HTTP, prepared for one model.

A request is JSON, or JSON followed by the raw bytes of its tensors (the binary tensor data extension). Facts about the
model are computed once; parsed requests are cached as templates for similar ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ox.errors import ServeError
from ox.graph.contract import Array
from ox.serve.protocol.rest.request_templates import BinaryTemplates, JsonTemplates
from ox.serve.protocol.rest.response import ResponseWriter
from ox.serve.protocol.v2.document import flag, identifier_of, load_json, parameters_of
from ox.serve.protocol.v2.inputs import InputCodec
from ox.serve.protocol.v2.parameters import check
from ox.serve.protocol.v2.request import NO_PARAMETERS, Request, RequestedOutput
from ox.serve.protocol.v2.shared_memory import REGION, SIZE, Regions
from ox.serve.protocol.v2.signature import Signature


class Codec:
    """Reads requests for a model and writes its responses.

    Args:
        name, version: the model's name and version in responses.
        signature: the model's inputs and outputs.
        max_reply: the limit of one response in bytes.
        regions: the shared memory regions.
        nan: allow NaN, Infinity and -Infinity in JSON.
    """

    def __init__(
        self, name: str, version: str, signature: Signature, max_reply: int, regions: Regions, nan: bool = False
    ) -> None:
        self._nan = nan
        self.signature, self.regions = signature, regions
        self.outputs = signature.outputs
        self.encode = ResponseWriter(name, version, signature.outputs, max_reply, nan).write
        self._binary_templates, self._json_templates = BinaryTemplates(), JsonTemplates()
        self._forms: dict[bool, Any] = {binary: {} for binary in (False, True)}
        self._single = len(signature.inputs) == 1

    def decode(self, body: bytes | bytearray, header_length: int | None = None) -> Request:
        """Reads a body; `header_length` is the length of its JSON before binary tensors, None for JSON alone.

        With 0 there is no JSON: the body is the only input, and all outputs are binary.

        Raises:
            ServeError: the request is invalid; with the status for the response.
        """
        if header_length is None:
            known = self._json_templates.read(body)
        elif header_length:
            known = self._binary_templates.read(body, header_length)
        else:
            return self._decode_raw(body)
        return known or self._decode_uncached(body, header_length)

    def _decode_raw(self, body: bytes | bytearray) -> Request:
        if not self._single:
            what = "a body without JSON needs a model with one input"
            raise ServeError(what, expected=self.signature.names(), got=f"{len(self.signature.inputs)} inputs")
        (codec,) = self.signature.inputs.values()
        feed = {codec.name: codec.from_raw(body)}
        rows, key = self.signature.rows_and_key(feed)
        return Request(None, feed, rows, key, self.signature.all_outputs[True], NO_PARAMETERS, self._forms[True])

    def _decode_uncached(self, body: bytes | bytearray, header_length: int | None) -> Request:
        text = body if header_length is None else body[:header_length]
        document = load_json(text, self._nan, tensors=True)
        has_booleans = b"true" in text or b"false" in text  # faster than checking every element
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
                feed[codec.name] = codec.from_shared_memory(
                    tensor, self.regions.slice(parameters, f"input '{codec.name}'")
                )
            elif size is None:
                feed[codec.name] = codec.from_json(tensor, has_booleans)
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
        rows, key = self.signature.rows_and_key(feed)
        request = Request(identifier_of(document), feed, rows, key, *self._requested_outputs(document))
        if self.signature.gives_defaulted(feed):
            return request
        if header_length is not None:
            self._binary_templates.remember(body, header_length, request)
        elif self._single and "data" in tensors[0]:
            self._json_templates.remember(body, document, request)
        return request

    def _input(self, tensor: Any, feed: dict[str, Array]) -> InputCodec:
        if type(tensor) is not dict:
            raise ServeError("an input is not an object", expected=self._example())
        return self.signature.input(tensor.get("name"), feed)

    def _requested_outputs(self, document: dict[str, Any]) -> tuple[Sequence[RequestedOutput], Mapping[str, Any], Any]:
        """The requested outputs, the request's parameters, and the cache of response forms."""
        parameters, binary = NO_PARAMETERS, False
        if "parameters" in document:
            unchecked = parameters_of(document)
            binary = flag(unchecked, "binary_data_output")
            parameters = check(unchecked)
        listed = document.get("outputs")
        if not listed:
            return self.signature.all_outputs[binary], parameters, self._forms[binary]
        if type(listed) is not list:
            raise ServeError("'outputs' is not a list")
        if len(listed) > len(self.outputs):
            raise ServeError(f"{len(listed)} outputs are requested", expected=f"at most {len(self.outputs)}, each once")
        requested: dict[int, RequestedOutput] = {}
        for output in listed:
            name = output.get("name") if type(output) is dict else output
            options = parameters_of(output)
            raw = flag(options, "binary_data") if "binary_data" in options else binary
            self.signature.output(name, requested, options, raw, self.regions)
        return list(requested.values()), parameters, {}

    def _example(self) -> str:
        for codec in self.signature.inputs.values():
            shape = [size if isinstance(size, int) else 1 for size in codec.info.dims]
            return f'{{"name": "{codec.name}", "shape": {shape}, "datatype": "{codec.info.dtype}", "data": [...]}}'
        return ""
