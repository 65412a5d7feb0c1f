"""Requests of Triton's extension for texts: /generate, /generate_stream, and tensors over gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ox.errors import ServeError
from ox.serve.generation.request import GenerationRequest
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.sampling import MAX_TOKENS, TextOptions, read_options
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
        ServeError: a field is missing, wrong or unknown.
    """
    fields = Fields(document)
    identifier, prompt = fields.text("id"), fields.take("text_input")
    if type(prompt) is not str:
        raise fields.wrong("text_input", "a string", prompt)
    parameters = dict(parameters_of(document))
    fields.take("parameters")
    encoded = fields.text("sampling_parameters")
    if encoded:
        parameters = {**load_json(encoded.encode()), **parameters}
    stream = fields.flag("stream", parameters.pop("stream", False))
    fields.only("exclude_input_in_output", (True,), "the answer is the new text alone")
    fields.finish()
    inner = Fields(parameters)
    options = read_options(inner, model, inner.whole("max_tokens", 1, MAX_TOKENS))
    inner.finish()
    if options.choices > 1:
        raise ServeError("a request has one text here", expected="n = 1", got=quote(options.choices))
    tokens = model.encode(prompt)
    options.check_length(tokens, model, "text_input")
    return GenerateCall(model, identifier, tokens, options.with_default(DEFAULT_TOKENS), stream)
