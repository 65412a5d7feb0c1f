"""/v1/embeddings: vectors of texts, in OpenAI's form."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np

from ox.graph.contract import Array
from ox.serve.protocol.openai.requests import finish, read_fields
from ox.serve.protocol.openai.text_pending import submit, text_model
from ox.serve.protocol.rest.routing import Context, PathParameters
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.repository.model import Model
from ox.serve.runtime.instance import Feed
from ox.serve.text.pooling import normalized
from ox.serve.text.text_tensors import TEXT, TextTensors
from ox.serve.transport.http import Exchange

KINDS = ("embedding",)  # of models that answer this route
EXPECTED = "a string, a list of strings, a list of tokens, or a list of lists of tokens; none of them empty"
LITTLE_ENDIAN = np.dtype("<f4")


def embeddings(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Answers a request.

    Raises:
        ServeError: a wrong request, or too much waits.
    """
    fields = read_fields(context, exchange)
    model, text = text_model(context, exchange, fields, KINDS, "embeddings")
    encoding = fields.text("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise fields.wrong("encoding_format", "float or base64", encoding)
    dimensions = read_dimensions(fields, model)
    truncate = fields.flag("truncate")
    feed = read_texts(fields, "input", text, truncate)
    fields.text("user")
    finish(context, exchange, fields, model.stages)

    def answer(vectors: Array, tokens: int) -> dict[str, Any]:
        if dimensions is not None:
            vectors = normalized(vectors[:, :dimensions])
        vectors = np.ascontiguousarray(vectors, np.float32)
        data = [
            {"object": "embedding", "index": i, "embedding": row if encoding == "float" else _base64(row)}
            for i, row in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": model.name, "usage": usage}

    submit(context, exchange, model, feed, truncate, answer)


def read_dimensions(fields: Fields, model: Model) -> int | None:
    """How many numbers of each vector are kept; None for all."""
    size = model.outputs[0].dims[-1]
    return fields.whole("dimensions", 1, size if isinstance(size, int) else 1 << 16)


def read_texts(fields: Fields, name: str, text: TextTensors, truncate: bool) -> Feed:
    """Texts, or tokens in their place.

    Args:
        name: the parameter that has them.
        truncate: leave out what is longer than the model's limit.

    Raises:
        ParameterError: it has none, an empty one, or something else.
        ServeError: tokens that are too many, or that the model does not have.
    """
    given = fields.take(name)
    several = given if type(given) is list and given and type(given[0]) is not int else [given]
    if all(type(each) is str and each for each in several):
        column = np.empty((len(several), 1), object)
        column[:, 0] = several
        return {TEXT: column}
    if not all(type(each) is list and each and set(map(type, each)) == {int} for each in several):
        raise ParameterError(name, f"'{name}' is wrong", expected=EXPECTED)
    return text.feed_of([text.ids(each, i, len(several), truncate) for i, each in enumerate(several)])


def _base64(row: Array) -> str:
    return b64encode(row.astype(LITTLE_ENDIAN, copy=False).tobytes()).decode("ascii")
