"""Text Embeddings Inference's `embed`: a list of the vectors of texts."""

from __future__ import annotations

import numpy as np

from ox.graph.contract import Array
from ox.serve.protocol.openai.embeddings import KINDS, read_dimensions, read_texts
from ox.serve.protocol.openai.requests import finish, read_fields
from ox.serve.protocol.openai.text_pending import submit, text_model
from ox.serve.protocol.rest.routing import Context, PathParameters
from ox.serve.protocol.text.fields import ParameterError
from ox.serve.text.pooling import normalized
from ox.serve.transport.http import Exchange


def embed(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Answers a request.

    Raises:
        ServeError: a wrong request, several models that could answer it, or too much waits.
    """
    fields = read_fields(context, exchange)
    model, text = text_model(context, exchange, fields, KINDS, "embeddings")
    dimensions = read_dimensions(fields, model)
    unit = fields.flag("normalize", True)
    if not unit and text.normalize:
        raise ParameterError("normalize", f"the vectors of '{model.name}' are normalized", hint='"normalize": true')
    truncate = fields.flag("truncate")
    fields.only("truncation_direction", ("right", "Right"), "a text is cut at its end")
    fields.only("prompt_name", (), "prompts of a model are not read", hint="the prompt before each text")
    feed = read_texts(fields, "inputs", text, truncate)
    finish(context, exchange, fields, model.stages)

    def answer(vectors: Array, tokens: int) -> Array:
        vectors = vectors[:, :dimensions]
        return np.ascontiguousarray(normalized(vectors) if unit else vectors, np.float32)

    submit(context, exchange, model, feed, truncate, answer)
