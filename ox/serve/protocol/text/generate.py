"""Requests of Triton's extension for texts: /generate, /generate_stream, and tensors over gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ox.serve.generation.request import GenerationRequest
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.parameters import parameters_in
from ox.serve.protocol.text.sampling import TextOptions, read_options
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.v2.document import load_json, parameters_of, quote

DEFAULT_TOKENS = 16


@dataclass(frozen=True)
class GenerateCall:
    """A request that was read."""

    model: TextModel
    id: str
    prompt: Sequence[int]
    options: TextOptions
    stream: bool

    def requests(self, client: str) -> list[GenerationRequest]:
        """The one that it is."""
        return self.options.requests(self.prompt, client)


def read_generate(document: Mapping[str, Any], model: TextModel) -> GenerateCall:
    """Reads a request: `text_input`, and parameters of sampling in `parameters`, or as JSON in `sampling_parameters`.

    Raises:
        ServeError: a field is missing or wrong.
    """
    outer = Fields(document)
    identifier, prompt = outer.text("id"), outer.take("text_input")
    if type(prompt) is not str:
        raise outer.wrong("text_input", "a string", prompt)
    parameters = dict(parameters_of(document))
    encoded = outer.text("sampling_parameters")
    if encoded:
        parameters = _joined(load_json(encoded.encode()), parameters)
    stream = outer.flag("stream", parameters.pop("stream", False))
    outer.only("exclude_input_in_output", (True,), "the answer is the new text alone")
    declared = parameters_in("generate")
    beside = {name: outer.take(name) for name in outer.left() if name in declared}  # as TensorRT-LLM's clients do
    outer.take("parameters")
    fields = Fields(_joined(beside, parameters), remarks=outer.remarks)
    outer.finish(declared)
    options, _ = read_options(fields, model, declared)
    fields.finish(declared)
    tokens = model.encode(prompt)
    options.check_length(tokens, model, "text_input")
    return GenerateCall(model, identifier, tokens, options.with_default(DEFAULT_TOKENS), stream)


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters from two places of a request, where null counts as absent."""
    joined = {name: value for name, value in one.items() if value is not None}
    for name, value in other.items():
        if value is not None and joined.setdefault(name, value) != value:
            what = f"'{name}' has two values in the request"
            raise ParameterError(name, what, expected="one", got=f"{quote(joined[name])} and {quote(value)}")
    return joined
