"""/v1/rerank: documents in the order of how well they answer a query, in the form of Cohere's and Jina's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.graph.contract import Array
from ox.serve.protocol.openai.requests import read_fields
from ox.serve.protocol.openai.text_pending import submit, text_model
from ox.serve.protocol.rest.routing import Context, PathParameters
from ox.serve.protocol.text.fields import Fields
from ox.serve.text.pooling import normalized
from ox.serve.text.text_tensors import PAIR, TEXT
from ox.serve.transport.http import Exchange

KINDS = ("cross-encoder", "embedding")  # of models that answer this route
EXPECTED = 'a list of strings or of {"text": ...}, none of them empty'


def rerank(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Answers a request. A cross-encoder reads the query together with each document; of an encoder, the score is the
    cosine of their vectors.

    Raises:
        ServeError: a wrong request, or too much waits.
    """
    fields = read_fields(context, exchange)
    model, text = text_model(context, exchange, fields, KINDS, "reranking")
    query = fields.text("query")
    if not query:
        raise fields.wrong("query", "a string that is not empty", query)
    documents = _documents(fields)
    most = fields.whole("top_n", 1, 1 << 31, len(documents))
    shown = fields.flag("return_documents")
    truncate = fields.flag("truncate")
    fields.finish()
    pairs = text.kind == "cross-encoder"
    column = np.empty((len(documents) + (not pairs), 1), object)
    if pairs:
        column[:, 0] = documents
        feed = {TEXT: np.full(column.shape, query, object), PAIR: column}
    else:
        column[:, 0] = [query, *documents]
        feed = {TEXT: column}

    def answer(values: Array, tokens: int) -> dict[str, Any]:
        if pairs:
            scores = 1 / (1 + np.exp(-values[:, 0].astype(np.float64)))
        else:
            unit = normalized(values.astype(np.float64))
            scores = unit[1:] @ unit[0]
        results: list[dict[str, Any]] = []
        for place in np.argsort(-scores, kind="stable")[:most].tolist():
            result: dict[str, Any] = {"index": place, "relevance_score": float(scores[place])}
            results.append(result | ({"document": {"text": documents[place]}} if shown else {}))
        return {"model": model.name, "results": results, "usage": {"total_tokens": tokens}}

    submit(context, exchange, model, feed, truncate, answer)


def _documents(fields: Fields) -> list[str]:
    given = fields.take("documents")
    texts = [each.get("text") if type(each) is dict else each for each in given] if type(given) is list else []
    if not texts or not all(type(text) is str and text for text in texts):
        raise fields.wrong("documents", EXPECTED, given)
    return [str(text) for text in texts]
