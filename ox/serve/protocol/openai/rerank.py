"""/v1/rerank: documents in the order of how well they answer a query, in the form of Cohere's and Jina's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.graph.contract import Array
from ox.serve.protocol.openai.requests import finish, read_fields
from ox.serve.protocol.openai.text_pairs import TextPairs, submit_pairs
from ox.serve.protocol.openai.text_pending import text_model
from ox.serve.protocol.rest.routing import Context, PathParameters
from ox.serve.protocol.text.fields import Fields
from ox.serve.transport.http import Exchange

KINDS = ("cross-encoder", "embedding")  # of models that answer this route
EXPECTED = 'a list of strings or of {"text": ...}, none of them empty'


def rerank(context: Context, exchange: Exchange, names: PathParameters) -> None:
    """Answers a request.

    Raises:
        ServeError: a wrong request, or too much waits.
    """
    rerank_documents(context, exchange, read_fields(context, exchange))


def rerank_documents(context: Context, exchange: Exchange, fields: Fields) -> None:
    """Answers a request that was read.

    Raises:
        ServeError: a wrong request, or too much waits.
    """
    model, text = text_model(context, exchange, fields, KINDS, "reranking")
    query, documents = read_query(fields), _documents(fields)
    most = fields.whole("top_n", 1, 1 << 31, len(documents))
    shown = fields.flag("return_documents")
    truncate = fields.flag("truncate")
    finish(context, exchange, fields, model.stages)

    def answer(scores: Array, tokens: int) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        for place in np.argsort(-scores, kind="stable")[:most].tolist():
            result: dict[str, Any] = {"index": place, "relevance_score": float(scores[place])}
            results.append(result | ({"document": {"text": documents[place]}} if shown else {}))
        return {"model": model.name, "results": results, "usage": {"total_tokens": tokens}}

    submit_pairs(context, exchange, model, text, TextPairs([query], documents, truncate), answer)


def read_query(fields: Fields) -> str:
    """The query of a request.

    Raises:
        ParameterError: there is none, or it is empty.
    """
    query = fields.text("query")
    if not query:
        raise fields.wrong("query", "a string that is not empty", query)
    return query


def _documents(fields: Fields) -> list[str]:
    given = fields.take("documents")
    texts = [each.get("text") if type(each) is dict else each for each in given] if type(given) is list else []
    if not texts or not all(type(text) is str and text for text in texts):
        raise fields.wrong("documents", EXPECTED, given)
    return [str(text) for text in texts]
